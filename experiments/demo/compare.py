"""How far two results of one step are apart, over every number in them.

|partitioned - whole| / root mean square of the whole array, the largest over all arrays
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

RELATIVE = {"float32": 1e-3, "float64": 1e-9}
"""How much rounding may show after a few steps of Adam: sums run in another order, and Adam scales up small gradients.
The whole step in f32 is as far from the whole step in f64."""


@dataclass(frozen=True)
class Difference:
    """`scaled` is the difference over the array's root mean square; integers count as 0 or infinity."""

    scaled: float
    path: str


def worst_difference(found: Any, expected: Any) -> Difference:
    """The largest difference between two pytrees of arrays, and where it is."""
    differences = jax.tree_util.tree_map_with_path(_difference, found, expected)
    leaves = jax.tree.leaves(differences, is_leaf=lambda x: isinstance(x, Difference))
    return max(leaves, key=lambda difference: difference.scaled)


def _difference(path: Any, found: jax.Array, expected: jax.Array) -> Difference:
    name = "/".join(str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", key)))) for key in path)
    ours, theirs = np.asarray(found), np.asarray(expected)
    if not np.issubdtype(theirs.dtype, np.floating):
        return Difference(0.0 if np.array_equal(ours, theirs) else np.inf, name)
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.isfinite(ours).all():
        return Difference(np.inf, name)
    largest = np.max(np.abs(ours - theirs), initial=0.0)
    return Difference(float(largest / np.sqrt(np.mean(np.square(theirs)))) if largest else 0.0, name)
