"""Pallas kernels known by name, as grid and block specs say too little: megablox gmm and tgmm, norms for GPUs.

    gmm    m k, g k n, m -> m n     grouped products (megablox): groups of rows of m, each times its own matrix
           m: rows of a slice count the groups that they meet, so it needs the place of its first row
           g: a slice has some of the matrices; it leaves zeros for the rows of others, and slices are added up
    tgmm   m k, m n -> g k n        the gradient of the matrices; parts for rows of m are added up
    ln_backward_dw_db   m n, m n -> n, n     the gradient of a norm's scale and bias, by a loop over m in the body

A slice calls the function anew, jax's or MaxText's copy: what it passes to its kernel, such as which tile belongs
to which group, is for all rows. Tiles that are longer than a slice get shorter, down to 128.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.experimental import pallas as pl

if TYPE_CHECKING:
    from autopart.api.kernels.pallas_call import PallasCall

_LEAST_TILE = 128
"""A TPU's lanes: narrower tiles leave a part of the matrix unit idle."""


class Named(NamedTuple):
    """How a kernel that is known by name is sliced.

    name   what reports call it
    rule   of its operands and `more`
    more   what its slices read besides: zero, to which the place of a slice is added, and numbers of groups
    run    (operands and more, whether interpreted) -> results, of any slices
    """

    name: str
    rule: str
    more: tuple[np.ndarray, ...]
    run: Callable[[Sequence[Any], bool], Sequence[Any]]


def named(call: PallasCall) -> Named | None:
    """How a call is sliced, if its kernel is known by name."""
    written = " ".join(call.sources)
    reader = next((read for name, read in NAMED.items() if all(part in written for part in name.split("at "))), None)
    return None if reader is None or call.params["grid_mapping"].vmapped_dims else reader(call)


def _grouped(call: PallasCall) -> Named | None:
    """Either product. One that adds to an array that it is given, or has scales, is sliced by its grid."""
    if len(call.operands) != 7 or call.operands[5].ndim != 2:
        return None
    lhs, rhs = call.operands[5:]
    tm, tk = call.block(5)
    transposed = rhs.ndim == 3 and 0 in call.depends(6)[1].dims
    to_groups = rhs.ndim == 2
    groups = call.results[0].shape[0] if to_groups else rhs.shape[0]
    m, k, n, tn = *lhs.shape, call.results[0].shape[-1], call.block(7)[-1]
    megablox = _module_of(call, "/megablox/")
    most = {name: _ways(size, tile) for name, size, tile in (("m", m, tm), ("k", k, tk), ("n", n, tn))}

    def run(arrays: Sequence[Any], interpret: bool) -> list[Any]:
        _, ends, _, _, offset, lhs, rhs, start, numbers = arrays
        sizes = jax.numpy.diff(jax.numpy.clip(ends - start, 0, lhs.shape[0]))
        left = rhs.shape[1 if rhs.ndim == 2 or transposed else 2]
        tiling = tuple(map(math.gcd, (tm, tk, tn), (*lhs.shape, left)))
        how: dict[str, Any] = {"preferred_element_type": call.results[0].dtype, "tiling": tiling}
        how["group_offset"] = offset[0] + numbers[0]
        how["interpret"] = interpret or bool(call.params["interpret"])
        if to_groups:
            return [megablox.tgmm(lhs.swapaxes(0, 1), rhs, sizes, num_actual_groups=numbers.shape[0], **how)]
        return [megablox.gmm(lhs, rhs, sizes, transpose_rhs=transposed, **how)]

    sides = "m k, m n" if to_groups else "m k, g n k" if transposed else "m k, g k n"
    clauses = "tile g k={k} n={n}; reduce m={m}" if to_groups else "tile m={m} n={n}; reduce k={k} g"
    result = "g k n" if to_groups else "m n"
    rule = f", _, _, _, _, {sides}, @m, g -> {result}; {clauses.format(**most)}"
    return Named("tgmm" if to_groups else "gmm", rule, (np.zeros((), np.int32), np.arange(groups, dtype=np.int32)), run)


def _module_of(call: PallasCall, part: str) -> Any:
    """The module, in such a folder, whose function made the call: jax's own, or a copy of another package."""
    files = {source.partition(" at ")[2].rpartition(":")[0] for source in call.sources if part in source}
    return next(m for m in list(sys.modules.values()) if getattr(m, "__file__", None) in files)


def _ways(size: int, tile: int) -> int:
    return size // math.gcd(size, math.gcd(tile, _LEAST_TILE))


def _scale_gradient(call: PallasCall) -> Named:
    """Of a norm: its kernel's loop goes over the rows that a device has."""
    norm, blocks_of_columns = (
        call.params["jaxpr"].debug_info.func_src_info.rpartition("/")[2].partition(".")[0],
        call.grid[0],
    )
    columns = call.operands[0].shape[1]
    blocks = (32, 128) if columns > 10240 else (16, 16)  # as jax chooses them

    def run(arrays: Sequence[Any], interpret: bool) -> Sequence[Any]:
        module: Any = importlib.import_module(f"jax.experimental.pallas.ops.gpu.{norm}")
        body = getattr(module, f"{norm}_backward_kernel_dw_db")
        body = functools.partial(body, eps=0.0, block_m=blocks[0], block_n=blocks[1])
        out = [jax.ShapeDtypeStruct(r.shape, r.dtype) for r in call.results]
        how: dict[str, Any] = {
            "compiler_params": call.params["compiler_params"],
            "interpret": interpret or call.params["interpret"],
        }
        return pl.pallas_call(body, out_shape=out, grid=(blocks_of_columns,), name="ln_backward_dw_db", **how)(*arrays)

    sides = ", ".join("m n" if len(a.shape) == 2 else "n" if k in (1, 2) else "m" for k, a in enumerate(call.operands))
    return Named(f"{norm} dw db", f"{sides} -> n, n; tile -; reduce m", (), run)


NAMED: dict[str, Callable[[PallasCall], Named | None]] = {
    "transform_indices at /megablox/": _grouped,
    "ln_backward_dw_db at /pallas/ops/gpu/layer_norm.py": _scale_gradient,
    "ln_backward_dw_db at /pallas/ops/gpu/rms_norm.py": _scale_gradient,
}
"""By the names of their functions, or of their index maps, and parts of their files."""
