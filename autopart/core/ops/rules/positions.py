"""Where a device stands in the slices of a sliced dim, as values that rules emit.

dim of 12, 3 ways:   position 0 1 2     offset 0 4 8
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from autopart.core.ops.rule import LocalOp, Value


def is_first(local: LocalOp, mappings: Sequence[int]) -> Value:
    """i1 scalar: true on the device that holds slice 0 of every one of `mappings`, of which there is at least one."""
    holds = [local.compare(local.position(m), local.constant(0, "i32"), "EQ") for m in mappings]
    return functools.reduce(lambda a, b: local.binary("and", a, b), holds)


def offset(local: LocalOp, mapping: int, local_size: int) -> Value:
    """i32 scalar: where this device's slice of `local_size` elements starts in the whole dim."""
    return local.binary("multiply", local.position(mapping), local.constant(local_size, "i32"))


def clamped_index(local: LocalOp, index: Value, highest: int) -> Value:
    """An index of any integer type, scalar or array, as i32 between 0 and `highest`."""
    type_ = local.type_of(index)
    signed = not type_.dtype.startswith("ui")
    bits = int(type_.dtype.removeprefix("ui").removeprefix("i"))

    def bounded(kind: str, bound: int) -> Value:
        return local.binary(kind, index, local.constant(bound, type_.dtype, type_.shape))

    if signed:
        index = bounded("maximum", 0)
    if highest < 2 ** (bits - signed):
        index = bounded("minimum", highest)
    return local.convert(index, "i32")


def between(local: LocalOp, index: Value, end: int) -> Value:
    """i1, of the index's shape: 0 <= index < end."""
    type_ = local.type_of(index)
    above = local.compare(index, local.constant(0, type_.dtype, type_.shape), "GE")
    below = local.compare(index, local.constant(end, type_.dtype, type_.shape), "LT")
    return local.binary("and", above, below)


def shifted(local: LocalOp, index: Value, by: Value) -> Value:
    """The index, scalar or array, less the scalar `by`."""
    type_ = local.type_of(index)
    by = local.convert(by, type_.dtype)
    return local.binary("subtract", index, local.broadcast(by, type_.shape) if type_.shape else by)
