"""The pass `known_windows`: a window read or written at a place known beforehand is a slice, or a choice by place.

    gather %x at (1, 1), 62 x 62             ->      slice %x [1:63, 1:63]
    scatter %u into %x at (1, 1)             ->      select(1 <= iota < 63 in both dims, pad %u by 1 and 1, %x)
    scatter by add                           ->      add(%x, pad %u by 1 and 1, with -0.0)
    pad %x by -1 and -1                      ->      slice %x [1:63, 1:63]

So jax writes `x.at[1:-1, 1:-1].set(u)` and its gradients: stencils with borders. A window that leaves out a small part
of a dim is of a length that no axis divides; slices and pads of such lengths are evened out (`even_slices`), scatters
and gathers are not. A window that is a small part is written in place, and stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autopart.core.op import SUM, OpSpec
from autopart.core.ops.rules.index_vectors import index_array
from autopart.core.ops.rules.reduce import identity
from autopart.core.passes.even_slices import is_shortened
from autopart.core.passes.pattern_rewriter import COMBINED, PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass


@register_pass("known_windows")
@dataclass(frozen=True)
class KnownWindows(PatternPass):
    """Gathers, scatters and updates of a window at a known place, and pads that only cut, become slices and choices."""

    roots = ("gather", "scatter", "dynamic_update_slice", "pad")

    def wanted(self, spec: OpSpec) -> bool:
        """See `PatternPass.wanted`."""
        return _window_of(spec) is not None

    def rewrite(self, at: PatternRewriter, op: int) -> int | None:
        """See `PatternPass.rewrite`."""
        spec, operands, window = at.spec(op), at.operands(op), _window_of(at.spec(op))
        starts = None if window is None else starts_of(at, op, window)
        if window is None or starts is None:
            return None
        if spec.kind == "dynamic_update_slice":
            return _written(at, spec, operands[0], operands[1], starts)
        if spec.kind == "scatter":
            return _written(at, spec, operands[0], operands[2], starts)
        limits = [start + size for start, size in zip(starts, window, strict=True)]
        return at.reshape(at.slice(operands[0], starts, limits), spec.results[0].shape)


def _window_of(spec: OpSpec) -> tuple[int, ...] | None:
    """The sizes of the one window that an op reads or writes, in dims of operand 0; None where it is left as it is."""
    window = window_of(spec)
    cut = [(long, short) for long, short in zip(spec.operands[0].shape, window or (), strict=False) if long != short]
    return window if cut and (spec.kind == "gather" or all(is_shortened(*sizes) for sizes in cut)) else None


def window_of(spec: OpSpec) -> tuple[int, ...] | None:
    """The sizes of the one window that an op reads or writes, in dims of operand 0; None where there is no such."""
    if spec.kind == "dynamic_update_slice":
        return spec.operands[1].shape
    if spec.kind == "pad":
        if any(spec.attributes["interior_padding"]) or max(*_edges(spec, "low"), *_edges(spec, "high"), 0) > 0:
            return None
        return spec.results[0].shape
    if not _has_one_vector(spec):
        return None
    if spec.kind == "gather":
        return tuple(spec.attributes["slice_sizes"])
    if len(spec.results) != 1 or spec.region not in ("overwrite", *COMBINED) or spec.results[0].dtype == "i1":
        return None
    inserted = spec.attributes["scatter_dimension_numbers"]["inserted_window_dims"]
    sizes = iter(spec.operands[-1].shape)
    return tuple(1 if d in inserted else next(sizes) for d in range(len(spec.operands[0].shape)))


def _edges(pad: OpSpec, end: str) -> Sequence[int]:
    return pad.attributes[f"edge_padding_{end}"]


def _has_one_vector(spec: OpSpec) -> bool:
    """True for a gather or scatter whose indices are one vector."""
    array = index_array(spec)
    return (
        array is not None and len(spec.operands[array.operand].shape) == 1 and not (array.vector_dim or array.batching)
    )


def starts_of(at: PatternRewriter, op: int, window: tuple[int, ...]) -> list[int] | None:
    """Where the window begins; None where that is not known, or the window does not fit."""
    spec, operands = at.spec(op), at.operands(op)
    if spec.kind == "pad":
        return [-low for low in _edges(spec, "low")]
    starts = [0] * len(window)
    if spec.kind == "dynamic_update_slice":
        known = [at.splat(value) for value in operands[2:]]
        indexed: Sequence[int] = range(len(window))
    else:
        array = index_array(spec)
        assert array is not None
        indexed, known = array.indexed, list(_components(at, operands[array.operand]))
    if len(known) != len(indexed) or any(k is None for k in known):
        return None
    for dim, start in zip(indexed, known, strict=True):
        assert start is not None
        starts[dim] = int(start)
    most = [long - short for long, short in zip(spec.operands[0].shape, window, strict=True)]
    if spec.kind != "scatter":
        starts = [min(max(start, 0), last) for start, last in zip(starts, most, strict=True)]
    return starts if all(0 <= start <= last for start, last in zip(starts, most, strict=True)) else None


def _components(at: PatternRewriter, value: int) -> Iterator[np.generic | None]:
    """The entries of an index vector."""
    op = at.maker(value)
    if at.spec(op).kind == "concatenate":
        for part in at.operands(op):
            yield from _components(at, part)
    else:
        yield from [at.splat(value)] * math.prod(at.type_of(value).shape)


def _written(at: PatternRewriter, spec: OpSpec, whole: int, update: int, starts: list[int]) -> int:
    """The update moved to its place, and what it is combined with."""
    window, (shape, dtype) = _window_of(spec) or (), (spec.operands[0].shape, spec.operands[0].dtype)
    high = [n - start - size for n, start, size in zip(shape, starts, window, strict=True)]
    code, combine = COMBINED.get(spec.region, (-1, ""))
    least = 0 if not combine else identity(code, dtype)
    fill = at.constant(-0.0 if code == SUM and not dtype.startswith(("i", "ui")) else least, dtype)
    moved = at.pad(at.reshape(update, window), fill, starts, high)
    if combine:
        return at.binary(combine, whole, moved)
    ends = [(d, s, s + n) for d, (s, n) in enumerate(zip(starts, window, strict=True)) if n != shape[d]]
    return at.select(at.box(shape, ends), moved, whole)
