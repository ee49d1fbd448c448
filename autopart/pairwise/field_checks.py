"""What the fields of a pairwise problem may be: each check names the field that is otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autopart.pairwise.pairwise_error import Field, PairwiseError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EXACT = 2.0**53
"""Integers below this are exact as float64."""


def numbers(value: Any, field: Field) -> Floats:
    """An array of numbers; of lists, the error names the first entry that is none."""
    if (found := _no_number(value)) is not None:
        steps, entry = found
        raise PairwiseError(f"is {shown(entry)}", field=(*field, *steps), hint="a number")
    try:
        return np.asarray(value, np.float64)
    except ValueError:
        raise PairwiseError(f"is {shown(value)}", field=field, hint="rows of equal length") from None


def _no_number(value: Any) -> tuple[tuple[int, ...], Any] | None:
    """Where the first entry is that no float64 can hold, in lists of lists, and the entry; None if there is none."""
    if not isinstance(value, (list, tuple)):
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        held = _held_by_floats([value]) if is_integer else np.asarray(value).dtype.kind in "iuf"
        return None if held else ((), value)
    entries = cast("Sequence[Any]", value)
    if set(map(type, entries)) <= {int, float} and _held_by_floats(entries):
        return None
    for i, entry in enumerate(entries):
        if (found := _no_number(entry)) is not None:
            return (i, *found[0]), found[1]
    return None


def _held_by_floats(values: Sequence[Any]) -> bool:
    try:
        np.asarray(values, np.float64)
    except OverflowError:
        return False
    return True


def shown(value: Any) -> str:
    """A value as its first 60 characters; integers of thousands of digits, which Python does not print, by a word."""
    try:
        return repr(value)[:60]
    except ValueError:
        return "an integer of thousands of digits"


def row(value: Any, field: Field) -> Floats:
    """One number for each strategy."""
    array = numbers(value, field)
    if array.ndim != 1 or not len(array):
        raise PairwiseError(f"has shape {array.shape}", field=field, hint="one number for each strategy, at least one")
    return array


def integers(value: Any, field: Field, shape: tuple[int, ...]) -> Ints:
    """Integers of a shape; where the shape has no entries, any empty value is one."""
    array = numbers(value, field)
    array = array if array.size else np.zeros(shape)
    if array.shape != shape:
        raise PairwiseError(f"has shape {array.shape}", field=field, hint=f"integers of shape {shape}")
    for at in np.argwhere((np.abs(array) >= EXACT) | (array != np.round(array)))[:1].tolist():
        what = f"is {array[tuple(at)]:.17g}"
        raise PairwiseError(what, field=(*field, *at), hint="an integer below 2**53")
    return array.astype(np.int64)


def check_lengths(costs: list[Floats], usages: list[Floats]) -> None:
    """As many usages as costs, for each node."""
    if len(costs) != len(usages):
        what = f"has {len(usages)} rows, and nodes.costs {len(costs)}"
        raise PairwiseError(what, field=("nodes", "usages"), hint="a row for each node")
    for i, (cost, usage) in enumerate(zip(costs, usages, strict=True)):
        if len(cost) != len(usage):
            what = f"has {len(usage)} numbers, and nodes.costs[{i}] {len(cost)}"
            raise PairwiseError(what, field=("nodes", "usages", i), hint="one for each strategy")


def check_ends(edge: int, ends: tuple[Any, Any], nodes: int) -> None:
    """Both ends are nodes, and different ones."""
    for side, end in enumerate(ends):
        if isinstance(end, bool) or not isinstance(end, (int, np.integer)) or not 0 <= end < nodes:
            legal = f"a node, from 0 to {nodes - 1}"
            raise PairwiseError(f"is {shown(end)}", field=("edges", "nodes", edge, side), hint=legal)
    if ends[0] == ends[1]:
        hint = "add the diagonal of its costs to those of the node"
        raise PairwiseError(f"joins node {ends[0]} with itself", field=("edges", "nodes", edge), hint=hint)


def check_matrix(edge: int, ends: tuple[int, int], shape: tuple[int, ...], counts: tuple[int, int]) -> None:
    """An entry for each pair of strategies, as a matrix or row by row."""
    if shape not in (counts, (counts[0] * counts[1],)):
        raise PairwiseError(
            f"has {math.prod(shape)} numbers" if len(shape) == 1 else f"has shape {shape}",
            field=("edges", "costs", edge),
            why=f"node {ends[0]} has {counts[0]} strategies and node {ends[1]} has {counts[1]}",
            hint=f"{counts[0] * counts[1]} numbers, row by row",
        )


def check_entries(values: Floats, start: Ints, legal: NDArray[np.bool_], field: Field, says: str) -> None:
    """All entries of rows that begin at `start` are legal."""
    for k in np.flatnonzero(~legal)[:1]:
        at = int(np.searchsorted(start, k, "right")) - 1
        raise PairwiseError(f"is {values[k]:.17g}", field=(*field, at, int(k - start[at])), hint=says)


def check_intervals(live: Ints) -> None:
    """No interval stops before it starts."""
    for i in np.flatnonzero(live[:, 0] > live[:, 1])[:1]:
        says = "[start, stop) with start <= stop"
        raise PairwiseError(f"is {live[i].tolist()}", field=("nodes", "intervals", int(i)), hint=says)
