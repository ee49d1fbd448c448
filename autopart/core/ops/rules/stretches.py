"""Mappings whose iterations read stretches of an operand: what rules share to state and to emit them.

    y = x[:, 2:6]      (1) -> tile 1, reads Stretch(rows=4, low=-2)

Such a mapping is taken where an operand is tiled along the dim, which it would else be gathered for: its tiles, or the
parts of them that are read elsewhere, move to the devices that read them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from autopart.core.op import REDUCTION_NAMES, WHOLE, OpSpec, TileMapping
from autopart.core.ops.rule import LocalOp, Value
from autopart.core.stretch import Stretch

MOST_STRETCHED = 3
"""Dims of an operand that mappings of one op may read in stretches."""


def stretched(
    spec: OpSpec, reads: Mapping[int, tuple[int, Stretch]], result: int, sliced: Mapping[int, int] | None = None
) -> TileMapping:
    """A mapping that reads (dim, stretch) of some operands and slices others; `result` is its action on all results."""
    dims = {k: dim for k, (dim, _) in reads.items()} | dict(sliced or {})
    ways = [stretch.extent(spec.operands[k].shape[dim]) for k, (dim, stretch) in reads.items()]
    ways += [spec.operands[k].shape[dim] for k, dim in (sliced or {}).items()]
    ways += [t.shape[result] for t in spec.results if result not in REDUCTION_NAMES]
    count = len(spec.operands)
    return TileMapping(
        tuple(dims.get(k, WHOLE) for k in range(count)),
        (result,) * len(spec.results),
        math.gcd(*ways),
        drawn_by=tuple(sorted(dims.items())),
        reads=tuple(reads[k][1] if k in reads else None for k in range(count)),
    )


class Read(NamedTuple):
    """A stretch that a device was given of an operand: by which mapping, in how many ways."""

    operand: int
    dim: int
    stretch: Stretch
    mapping: int
    ways: int


def reads_of(local: LocalOp) -> Iterator[Read]:
    """The stretches that an op on one device was given."""
    for number, mapping in enumerate(local.mappings):
        for k, stretch in enumerate(mapping.reads):
            if stretch is not None and local.ways(number) > 1:
                yield Read(k, mapping.operands[k], stretch, number, local.ways(number))


def filled(local: LocalOp, value: Value, read: Read, fill: Value | float) -> Value:
    """The stretch with `fill`, a scalar or a number, in place of the zeros outside the dim."""
    type_, size = local.type_of(value), local.spec.operands[read.operand].shape[read.dim]
    first = read.stretch.first(read.ways, 0)
    step = read.stretch.first(read.ways, 1) - first
    last = read.stretch.first(read.ways, read.ways - 1)
    if np.isscalar(fill) and is_zero(fill):
        return value
    if min(first, last) >= 0 and max(first, last) + type_.shape[read.dim] <= size:
        return value
    index = local.iota(type(type_)(type_.shape, "i32"), read.dim)
    start = local.binary("multiply", local.position(read.mapping), local.constant(step, "i32"))
    start = local.binary("add", start, local.constant(first, "i32"))
    index = local.binary("add", index, local.broadcast(start, type_.shape))
    inside = local.binary(
        "and",
        local.compare(index, local.constant(0, "i32", type_.shape), "GE"),
        local.compare(index, local.constant(size, "i32", type_.shape), "LT"),
    )
    is_number = np.isscalar(fill)
    other = local.constant(fill, type_.dtype, type_.shape) if is_number else local.broadcast(fill, type_.shape)
    return local.select(inside, value, other)


def is_zero(known: Any) -> bool:
    """True for the zero that a stretch holds outside the dim, which is not the negative one."""
    return known is not None and bool(known == 0) and not np.signbit(np.real(known))
