"""`ap.tag(name, x)`: a name for an intermediate value, so that tactics can decide about it.

At run time it is the identity. It survives jit, grad (the cotangent is tagged too), remat, scan and vmap, and shows up
in StableHLO as an op that carries the name.
"""

from __future__ import annotations

from typing import Any

import jax

from autopart.core.jax_internals import tag_p


def tag(name: str, x: Any) -> Any:
    """`x`, named `name`. A pytree gets each leaf named alike.

    >>> import jax.numpy as jnp
    >>> tag("hidden", jnp.ones(2)).shape
    (2,)
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"a tag's name is a non-empty string, not {name!r}")
    return jax.tree.map(lambda leaf: tag_p.bind(leaf, name=name), x)
