"""Matrix products that run inside the product that reads them: what lies between the two is never written.

    %h = dot %x %a           [65536,256] . [256,1024]
    %g = gelu %h
    %y = dot %g %b           [65536,1024] . [1024,256]: one kernel, 421 us where the two take 970

XLA's TPU compiler computes a product inside another that alone reads it, at once or behind elementwise ops, if the work
that may be repeated is small and the operand that is multiplied again and again stays on the chip. A kernel has two
products at most, so that of three in a row the first two run as one. Forward passes of which nothing is kept and the
first layer's gradient are such: dot %x (%d . (dot %e %b)). A reshape between the two, a product with a row, a
convolution, and batch dims that the inner product has not (queries, in that of scores) end it.

    summed s, then [e, d] . [d, n]   s * min(e, d) * n is at most 2^29, or 2^28 if s * min(e, d) is 2^20, its most
    more than 512 rows e             each 512 of the columns n compute the inner product again

Found with libtpu 0.0.51: 220 shapes on v5e, 11 of which, at the border, are decided otherwise, and some on v3 to v6e,
where tiles twice as wide let through twice as much (`tests/cost/test_nested_products.py`).
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import LocalArrays, Lowered, ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import MATMUL
from autopart.costmodel.simulator.kernels.fusion import Fused
from autopart.costmodel.simulator.kernels.merged_kernels import where_readers_meet

MOST_REPEATED = 2.0**22
"""Most multiplications of the inner product and the outer one's columns, by the width of a tile."""

MOST_HELD = 1.5 * 2**13
"""Most elements that are multiplied again and again, by the width of a tile; of more than half as many, by half as many
columns."""

COLUMNS = 512
"""Columns of the outer product that share what is computed of the inner one."""

FEW_ROWS = 512
"""Of no more rows all of the inner product is computed first, once."""


@kernel
def nest_products(program: ProgramArrays, local: LocalArrays, lowered: Lowered, fused: Fused) -> None:
    """Sets fused.away[value] of products that run inside others, and fused.ends of these; adds what is repeated to
    `local.ops.unfilled`."""
    if not lowered.nests_products:
        return
    for op in range(program.ops.shape[0]):
        value = program.result_ptr[op]
        if program.ops.op_class[op] != MATMUL or fused.ends[value] or not _may_leave(program, local, value):
            continue
        met = where_readers_meet(program, fused.able, fused.meets, value) - program.values.shape[0]
        if met < 0 or program.ops.op_class[met] != MATMUL or fused.ends[program.result_ptr[met]]:
            continue
        if program.ops.op_scope[met] != program.ops.op_scope[op] or _more_batches(program, met, op):
            continue
        use = _use_behind(program, local, fused, value, met)
        repeats = _repeats(program, local, op, met, use, float(lowered.matmul_tile[2])) if use >= 0 else 0.0
        if repeats > 0:
            fused.away[value] = fused.ends[program.result_ptr[met]] = True
            local.ops.unfilled[op] *= repeats


@kernel
def _more_batches(program: ProgramArrays, outer: int, inner: int) -> bool:
    """True if a product runs along more batch dims than another."""
    batches = program.specs.batches
    return bool(batches[program.ops.spec[outer]] > batches[program.ops.spec[inner]])


@kernel
def _may_leave(program: ProgramArrays, local: LocalArrays, value: int) -> bool:
    """True if nothing but its readers needs a product's result in memory: no output, and nothing moves it."""
    if program.values.is_output[value] or program.values.is_written[value] or local.values.left_in[value] != value:
        return False
    for i in range(program.user_ptr[value], program.user_ptr[value + 1]):
        use = program.user[i]
        moved = local.uses.of_use[use]
        if moved >= 0 and not local.moves.moves_nothing[moved]:
            return False
    return True


@kernel
def _use_behind(program: ProgramArrays, local: LocalArrays, fused: Fused, value: int, product: int) -> int:
    """The operand of `product` by which it reads a value; -1 if there are two, or a view or what is written between."""
    found, count, at = -1, 1, 0
    between = fused.between
    between[0] = value
    while at < count:
        for i in range(program.user_ptr[between[at]], program.user_ptr[between[at] + 1]):
            use = program.user[i]
            reader = program.uses.use_op[use]
            if reader == product:
                if found >= 0 and found != use:
                    return -1
                found = use
                continue
            result = program.result_ptr[reader]
            if program.ops.is_view[reader] or not fused.away[result]:
                return -1
            known = False
            for k in range(count):
                known = known or between[k] == result
            if not known and count == between.shape[0]:
                return -1
            if not known:
                between[count] = result
                count += 1
        at += 1
    return found


@kernel
def _repeats(program: ProgramArrays, local: LocalArrays, inner: int, outer: int, use: int, tile: float) -> float:
    """How often the inner product is computed inside the outer one, which reads it by `use`; 0 if it is not."""
    first = program.operand_ptr[outer]
    other = first + 1 if use == first else first
    made, result = local.values.native_elements[program.result_ptr[inner]], program.result_ptr[outer]
    read, beside, written = (
        local.uses.use_elements[use],
        local.uses.use_elements[other],
        local.values.native_elements[result],
    )
    if made <= 0 or read <= 0 or beside <= 0 or written <= 0:
        return 0.0
    inner_flop = program.ops.matrix_flop[inner] / local.ops.ways[inner]
    outer_flop = program.ops.matrix_flop[outer] / local.ops.ways[outer]
    held, rows, columns = nested_sizes(inner_flop, made, outer_flop, written, read, beside)
    if rows <= 1 or not is_small(held, columns, tile):
        return 0.0
    return max(1.0, columns / COLUMNS) if rows > FEW_ROWS else 1.0


@kernel
def nested_sizes(
    inner_flop: float, made: float, outer_flop: float, written: float, read: float, beside: float
) -> tuple[float, float, float]:
    """(what is multiplied again and again, rows and columns of the outer product), in elements.

    made, written   by the inner product and the outer one; read, beside: the outer one's operands, that which the inner
                    one makes first
    """
    summed, along = inner_flop / (2 * made), outer_flop / (2 * written)
    rows = written * along / beside
    return summed * min(along, rows), rows, written * along / read


@kernel
def is_small(held: float, columns: float, tile: float) -> bool:
    """True if a product is computed inside another: what is multiplied again and again has `held` elements, and the
    other one so many columns."""
    much = 2.0 if held > MOST_HELD * tile / 2 else 1.0
    return held <= MOST_HELD * tile and much * held * max(columns, tile) <= MOST_REPEATED * tile
