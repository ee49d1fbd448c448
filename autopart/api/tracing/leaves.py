"""The flat arrays of a call: are they those that the program was lowered for, and what its results become.

step(state, key)      leaves_of  ->  [w, b, key]      check_leaf each, bits_of each  ->  what a program takes
[w, b, bits]          results_of ->  (state, key)     in the function's own pytree, keys as keys

The gradient of an integer is an array of jax's type `float0`, which says nothing; a program has truth values there.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from autopart.api.tracing.trace import Traced
from autopart.base.arguments import shown
from autopart.base.errors import CallError
from autopart.core.doors.jax_internals import is_array, wrap_key


def leaves_of(traced: Traced, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The flat arguments of a call, after what the function closes over.

    Raises `CallError` where their pytree is another than `traced` has.
    """
    leaves, tree = jax.tree.flatten((tuple(args), dict(kwargs)))
    if tree != traced.in_tree:
        found, wanted = (textwrap.shorten(str(t), 300) for t in (tree, traced.in_tree))
        raise CallError("called with another pytree than it was lowered for", why=f"{found} is not {wanted}")
    return [*traced.closed_over, *leaves]


def check_leaf(name: str, leaf: Any, aval: jax.ShapeDtypeStruct) -> None:
    """Raises `CallError` where the leaf is no array of the shape and type it was lowered for."""
    wanted = f"it was lowered for {list(aval.shape)} of {aval.dtype}"
    if not is_array(leaf):
        raise CallError(f"{name} is {shown(leaf)}", why=wanted)
    if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer) and leaf.is_deleted():
        raise CallError(
            f"{name} is an array that has been deleted, or donated to an earlier call",
            hint="pass on what that call returned",
        )
    if np.shape(leaf) != aval.shape or jax.dtypes.result_type(leaf) != aval.dtype:
        raise CallError(
            f"{name} has shape {list(np.shape(leaf))} of {jax.dtypes.result_type(leaf)}",
            why=wanted,
            hint="call the jitted function, which lowers anew for each shape",
        )


def results_of(traced: Traced, results: Sequence[Any]) -> Any:
    """Flat results in the function's own pytree, PRNG keys as keys, gradients of integers as jax has them."""
    leaves = [_result(x, aval) for x, aval in zip(results, traced.out_avals, strict=True)]
    return jax.tree.unflatten(traced.out_tree, leaves)


def _result(raw: Any, aval: jax.ShapeDtypeStruct) -> Any:
    if aval.dtype == jax.dtypes.float0:
        return np.zeros(aval.shape, jax.dtypes.float0)
    return wrap_key(raw, aval.dtype) if is_key(aval.dtype) else raw


def is_key(dtype: Any) -> bool:
    """True for the dtype of PRNG keys."""
    return jax.numpy.issubdtype(dtype, jax.dtypes.prng_key)


def bits_of(x: Any) -> Any:
    """PRNG keys as their bits, arrays of `float0` as truth values, everything else as it is."""
    if getattr(x, "dtype", None) == jax.dtypes.float0:
        return np.zeros(np.shape(x), bool)
    return jax.random.key_data(x) if isinstance(x, jax.Array) and is_key(x.dtype) else x
