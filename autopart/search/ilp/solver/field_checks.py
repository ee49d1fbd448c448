"""What the fields of a pairwise problem may be: each check names the field that is otherwise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopart.search.ilp.solver.pairwise_error import Field, PairwiseError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def numbers(value: Any, field: Field) -> Floats:
    """An array of numbers."""
    try:
        array = np.asarray(value)
        if array.dtype.kind in "iuf":
            return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        pass
    raise PairwiseError(f"is {str(value)[:60]}", field=field, hint="numbers")


def row(value: Any, field: Field) -> Floats:
    """One number for each strategy."""
    array = numbers(value, field)
    if array.ndim != 1 or not len(array):
        raise PairwiseError(f"has shape {array.shape}", field=field, hint="one number for each strategy, at least one")
    return array


def integers(value: Any, field: Field, shape: tuple[int, ...]) -> Ints:
    """Integers of a shape; where the shape has no entries, any empty value is one."""
    array = numbers(value, field) if np.size(value) else np.zeros(shape)
    if array.shape != shape:
        raise PairwiseError(f"has shape {array.shape}", field=field, hint=f"integers of shape {shape}")
    if not (np.isfinite(array).all() and (array == np.round(array)).all()):
        raise PairwiseError("holds numbers that are no integers", field=field, hint=f"integers of shape {shape}")
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
            raise PairwiseError(f"is {str(end)[:60]}", field=("edges", "nodes", edge, side), hint=legal)
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
