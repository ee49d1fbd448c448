"""`ap.tag(name, x)`: a name for an intermediate value, so that tactics can decide about it.

At run time it is the identity. It survives jit, grad (the cotangent is tagged too), remat, scan and vmap, and shows up
in StableHLO as an op that carries the name.
"""

from __future__ import annotations

from typing import Any

import jax

from autopart.base.arguments import TEXT, Kind, check
from autopart.core.doors.jax_internals import is_array, tag_p

ARRAY = Kind("an array, a number, or a pytree of them", is_array)


def tag(name: str, x: Any) -> Any:
    """`x`, named `name`. A pytree gets each leaf named alike.

    >>> import jax.numpy as jnp
    >>> tag("hidden", jnp.ones(2)).shape
    (2,)
    """
    check("tag", name=(name, TEXT))
    for leaf in jax.tree.leaves(x):
        check("tag", x=(leaf, ARRAY))
    return jax.tree.map(lambda leaf: tag_p.bind(leaf, name=name), x)
