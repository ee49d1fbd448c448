"""Operands of products along batch dims on GPUs: in which order of dims cuBLAS takes them, and what is written twice.

    %s = dot %k, %q         f32[b,h,s,t,g]   row-major, as each such product leaves its result
    %p = softmax of a transpose of %s        the same order in memory: f32[b,h,g,t,s]{3,2,4,1,0}
    %o = dot %p, %v         asks for f32[b,h,g,t,s]: batch dims, those that stay, g and t, the summed s
    %d = multiply %p, ..    reads it as it lies

XLA transposes operands so, on the right summed dims first, wherever a product has several dims of a kind or its batch
dims do not lead (`dot_decomposer.cc`). What it has transposed, and all others, it takes row-major
(`SetDotOperandLayout` in `gpu/transforms/layout_assignment.cc`). So `%p` is written in both orders, as by a fusion with
two results. Where two orders meet, that of what was made first stays, and the other array is laid anew:

    %e = multiply %p, %dp   %dp, a product's too, row-major f32[b,h,g,t,s]: copied before into the order of %p

What loops carry lies row-major; arguments are not followed: they are laid as asked where they are read.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.layout_assignment.layout_constraints import (
    ASKED,
    UNASKED,
    Ops,
    Scratch,
    ShardedValues,
    local_dims,
)
from autopart.costmodel.compiled.layout_assignment.layout_through import through
from autopart.costmodel.compiled.layout_assignment.transfers import (
    CARRIED,
    FLEXIBLE,
    FOLLOWS,
    NO_GROUP,
    STRICT,
    Transfers,
)
from autopart.costmodel.compiled.tiled_layouts import dim_at, row_major

BATCH, FREE, SUMMED = range(3)


@kernel
def written_twice(
    ops: Ops, values: ShardedValues, by: Transfers, is_view: np.ndarray, scratch: Scratch, layout: np.ndarray,
    root: np.ndarray, product: np.ndarray, read: np.ndarray, anew: np.ndarray, twice: np.ndarray,
) -> None:  # fmt: skip
    """Fills in twice, float64[ops]: the elements of a result that is written in a second order, else 0; and anew,
    bool[values]: what a product leaves that is read in another order.

    Scratch: layout, uint64[values]; root, int32[values], what a view shows; product, int32[values], the result of a
    product in whose order a value lies; read, bool[values]: a reader takes it as it lies; scratch.is_copied: one asks
    for another order.
    """
    for value in range(layout.shape[0]):
        layout[value], scratch.priority[value] = row_major(values.rank[value]), UNASKED
        root[value], product[value], read[value] = value, value, False
        anew[value] = scratch.is_copied[value] = False
    for op in range(ops.op_spec.shape[0]):
        spec, first, start = ops.op_spec[op], ops.result_ptr[op], ops.operand_ptr[op]
        is_product = by.kind[spec] in (STRICT, FLEXIBLE) and not by.is_convolution[spec]
        for use in range(start, ops.operand_ptr[op + 1]):
            value, at = ops.operands[use], by.first[spec] + use - start
            follows = by.kind[spec] == FOLLOWS and first < ops.result_ptr[op + 1]
            if is_product and scratch.priority[value] == ASKED and by.asked[at]:
                if _lies_as_asked(values, by, scratch, layout, value, at, use == start):
                    read[root[value]] = True
                else:
                    scratch.is_copied[root[value]] = True
            elif is_view[spec] and follows:
                root[first] = root[value]
            else:
                read[root[value]] = True
            if follows and scratch.priority[value] == ASKED:
                found, _ = through(
                    layout[value], values.rank[value], values.rank[first], by.of_operand[at], by.of_result[at]
                )
                if found != 0 and scratch.priority[first] != ASKED:
                    layout[first], scratch.priority[first], product[first] = found, ASKED, product[value]
                elif found != 0 and not _alike(values, scratch, first, found, layout[first]):
                    anew[max(product[first], product[value])] = True
                    if product[value] < product[first]:
                        layout[first], product[first] = found, product[value]
        if (is_product or by.kind[spec] == CARRIED) and first < ops.result_ptr[op + 1]:
            scratch.priority[first] = ASKED
    for op in range(ops.op_spec.shape[0]):
        first = ops.result_ptr[op]
        if first < ops.result_ptr[op + 1] and read[first] and scratch.is_copied[first]:
            twice[op] = 1.0
            for d in range(local_dims(values, first, scratch.dims)):
                twice[op] *= scratch.dims[d]


@kernel
def _alike(values: ShardedValues, scratch: Scratch, value: int, layout: int, other: int) -> bool:
    """True if two layouts of a value have its dims in one order, but for those of one element."""
    at, rank = 0, local_dims(values, value, scratch.dims)
    for place in range(rank):
        d = dim_at(layout, place)
        if scratch.dims[d] == 1.0:
            continue
        while scratch.dims[dim_at(other, at)] == 1.0:
            at += 1
        if dim_at(other, at) != d:
            return False
        at += 1
    return True


@kernel
def _lies_as_asked(
    values: ShardedValues, by: Transfers, scratch: Scratch, layout: np.ndarray, value: int, at: int, is_left: bool
) -> bool:
    """True if an operand lies row-major where the product is canonical, else as `DotDecomposer` transposes it."""
    rank = local_dims(values, value, scratch.dims)
    canonical = _is_canonical(by, scratch, at, rank)
    place = rank - 1
    for turn in range(1 if canonical else 3):
        part = (BATCH, FREE, SUMMED)[turn] if is_left else (BATCH, SUMMED, FREE)[turn]
        for d in range(rank):
            if scratch.dims[d] == 1.0 or not (canonical or _part(by, at, d) == part):
                continue
            while scratch.dims[dim_at(layout[value], place)] == 1.0:
                place -= 1
            if dim_at(layout[value], place) != d:
                return False
            place -= 1
    return True


@kernel
def _is_canonical(by: Transfers, scratch: Scratch, at: int, rank: int) -> bool:
    """True if batch dims come first, and beside them there is at most one dim that is summed over, and one that is
    not."""
    seen = 0
    for d in range(rank):
        if scratch.dims[d] == 1.0:
            continue
        part = _part(by, at, d)
        if seen if part == BATCH else seen >> part & 1:
            return False
        seen |= 0 if part == BATCH else 1 << part
    return True


@kernel
def _part(by: Transfers, at: int, d: int) -> int:
    """What a dim of a product's operand is to it."""
    if not by.asked[at] >> d & 1:
        return BATCH
    return SUMMED if by.of_operand[at, d] == NO_GROUP else FREE
