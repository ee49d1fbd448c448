"""Peak memory of one device: live ranges with donation, reuse in place, and what loops carry.

    peak = arguments + outputs not donated + most that buffers in between take at any slot

Some buffers are written into the memory of another buffer and take none of their own: an output into the donated
argument that it updates, a loop's next value into the loop's value, an elementwise result into an operand that no later
op reads. A reduction is written over what it reduces, unless that was itself written in place, by an update.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import NARROW_SHARE, LocalArrays, ProgramArrays, Records
from autopart.costmodel.compiled.buffer_assignment.liveness import Buffers
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE, MATMUL, UPDATE
from autopart.costmodel.compiled.fusion.kernel_graph import (
    DEF_MOVE,
    KERNEL,
    MULTIPLIED,
    OVERWRITTEN,
    STREAMED,
    KernelGraph,
    is_copied_carry,
)
from autopart.costmodel.compiled.slots import before

STACK_SHARE = 0.0625
"""What turns of a loop update part by part stays on the chip if it takes at most this share of it."""


@kernel
def plain_sizes(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    structure: np.ndarray,
    leader: np.ndarray,
    narrow: bool,
    maker: np.ndarray,
    multiplied: np.ndarray,
    size: np.ndarray,
) -> None:
    """Fills in size[buffer]: bytes of every buffer that is written; of arguments, which are counted apart, those of the
    copy that is made of them in another layout.

    leader[k]  in which node's kernel node k runs: what joins the kernel that makes a value does not read it from memory
    narrow     f32 values that only matmuls read, at default precision, are stored as bf16 (TPU)

    Scratch: maker[buffer], in which node's kernel it is made, -1 for none; multiplied[buffer], whether only matmuls
    read it from memory.
    """
    for buffer in range(size.shape[0]):
        size[buffer], maker[buffer], multiplied[buffer] = 0.0, -1, True
    for value in range(local.values.shape[0]):
        size[value] = local.values.copy_bytes[value]
    for i in range(program.structure.shape[0]):
        op = program.structure[i]
        end = program.result_ptr[op] + 1 if program.ops.carry_body[op] >= 0 else program.result_ptr[op + 1]
        for value in range(program.result_ptr[op], end):
            size[value] = local.values.settled_bytes[value]
    for k in range(graph.nodes.shape[0]):
        if graph.nodes.kind[k] == KERNEL and program.ops.carry_body[graph.nodes.subject[k]] >= 0:
            continue
        if graph.nodes.kind[k] != KERNEL:
            size[graph.write_buffer[graph.write_ptr[k]]] = graph.nodes.written[k]
        else:
            op = graph.nodes.subject[k]
            for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
                size[local.values.left_in[value]] = local.values.native_bytes[value] + local.values.copy_bytes[value]
                maker[local.values.left_in[value]] = leader[k]
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            if maker[buffer] < 0 or maker[buffer] != leader[k]:
                multiplied[buffer] &= graph.reads.read_how[i] & MULTIPLIED > 0
    if narrow:
        for k in range(graph.nodes.shape[0]):
            if graph.nodes.kind[k] == KERNEL:
                value = program.result_ptr[graph.nodes.subject[k]]
                if (
                    multiplied[value]
                    and structure[value] < 0
                    and local.values.at_def[value] < 0
                    and program.values.element_bytes[value] == 4
                ):
                    size[value] *= NARROW_SHARE


@kernel
def live_ranges(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    slot: np.ndarray,
    leader: np.ndarray,
    plain: np.ndarray,
    by_shape: bool,
    reader: np.ndarray,
    maker: np.ndarray,
    buffers: Buffers,
) -> None:
    """Fills in `end` and `bytes` of buffers that are made and read last as `buffers` says.

    Each is of `plain` bytes or, where it is written into another buffer's memory, of none.

    slot[k], leader[k]   when node k runs, and in which node's kernel; scratch: see `_drop_unwritten`
    by_shape             results are written into operands of their own shape alone (XLA:GPU)
    """
    for buffer in range(plain.shape[0]):
        buffers.end[buffer] = max(buffers.last[buffer], buffers.made[buffer])
        buffers.bytes[buffer] = plain[buffer]
    _drop_unwritten(program, local, graph, slot, leader, reader, maker, buffers)
    for i in range(program.carries.shape[0]):
        _carry(program, local, buffers, program.carries[i])
    _count_results(program, local, graph, leader, buffers, reader, maker)
    _reuse(program, graph, slot, by_shape, reader, maker, buffers)
    for k in range(graph.nodes.shape[0]):
        if graph.nodes.kind[k] == DEF_MOVE:
            source = graph.reads.read_buffer[graph.read_ptr[k]]
            made_by = program.values.value_op[graph.write_buffer[graph.write_ptr[k]]]
            if program.ops.op_class[made_by] == UPDATE:
                continue
            if buffers.bytes[source] == graph.nodes.written[k] and buffers.last[source] == slot[k]:
                buffers.end[source] = slot[k] - 1
    for i in range(program.carries.shape[0]):
        _next_in_place(program, local, buffers, program.carries[i])


@kernel
def _drop_unwritten(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    slot: np.ndarray,
    leader: np.ndarray,
    reader: np.ndarray,
    maker: np.ndarray,
    buffers: Buffers,
) -> None:
    """Gives no memory to a buffer that only nodes of the kernel that makes it read: such a buffer is never written.

    Scratch, of what kernels make: reader[buffer], the kernel that reads it, -2 for several; maker[buffer], that makes
    it; -1 for none.
    """
    for k in range(graph.nodes.shape[0]):
        if graph.nodes.kind[k] == KERNEL:
            op = graph.nodes.subject[k]
            for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
                reader[value], maker[value] = -1, leader[k] if local.values.at_def[value] < 0 else -1
    for k in range(graph.nodes.shape[0]):
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            alone = reader[buffer] == -1 or reader[buffer] == leader[k]
            reader[buffer] = leader[k] if alone else -2
    for k in range(graph.nodes.shape[0]):
        if graph.nodes.kind[k] == KERNEL:
            op = graph.nodes.subject[k]
            for b in range(program.result_ptr[op], program.result_ptr[op + 1]):
                if maker[b] >= 0 and maker[b] == reader[b] and buffers.last[b] == slot[maker[b]]:
                    buffers.bytes[b] = 0.0


@kernel
def _count_results(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    leader: np.ndarray,
    buffers: Buffers,
    results: np.ndarray,
    maker: np.ndarray,
) -> None:
    """Fills in maker[buffer] of what kernels make, the first value of the kernel's leading op, -1 for others; and
    results[that value], how many buffers the kernel makes."""
    for buffer in range(maker.shape[0]):
        results[buffer], maker[buffer] = 0, -1
    for k in range(graph.nodes.shape[0]):
        if graph.nodes.kind[k] != KERNEL:
            continue
        op, first = graph.nodes.subject[k], program.result_ptr[graph.nodes.subject[leader[k]]]
        for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
            left = local.values.left_in[value]
            maker[left] = first
            results[first] += buffers.bytes[left] > 0


@kernel
def _reuse(
    program: ProgramArrays,
    graph: KernelGraph,
    slot: np.ndarray,
    by_shape: bool,
    results: np.ndarray,
    maker: np.ndarray,
    buffers: Buffers,
) -> None:
    """Results of elementwise ops and updates are written where an operand of the same size dies, unless wider elements
    are read beside it, or it is one of several that a kernel made (`_count_results`): libtpu 0.0.51 on v5e holds
    gradients of scores apart from those of a softmax in f32, and what is left of logits from these."""
    for k in range(graph.nodes.shape[0]):
        op = graph.nodes.subject[k]
        if graph.nodes.kind[k] != KERNEL or (
            program.ops.op_class[op] != ELEMENTWISE and program.ops.op_class[op] != UPDATE
        ):
            continue
        result, is_update = program.result_ptr[op], program.ops.op_class[op] == UPDATE
        if buffers.bytes[result] == 0 or _reads_wider(program, graph, k, result):
            continue
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            wanted = OVERWRITTEN if is_update else STREAMED
            if not graph.reads.read_how[i] & wanted or buffers.last[buffer] > slot[k] or buffers.end[buffer] < slot[k]:
                continue
            if maker[buffer] >= 0 and results[maker[buffer]] > 1 and not is_update:
                continue
            if by_shape and _is_collapsed(program, buffer):
                continue
            if buffer < program.values.shape[0] and program.ops.carry_body[program.values.value_op[buffer]] >= 0:
                if is_update:
                    buffers.bytes[result] = 0.0
                    break
            elif buffers.bytes[buffer] == buffers.bytes[result]:
                buffers.end[buffer] = slot[k] - 1
                break


@kernel
def _is_collapsed(program: ProgramArrays, buffer: int) -> bool:
    """True for the result of a product that has more dims than a batch, rows and columns."""
    if buffer >= program.values.shape[0]:
        return False
    op = program.values.value_op[buffer]
    least = 3 if program.specs.batches[program.ops.spec[op]] > 0 else 2
    return program.ops.op_class[op] == MATMUL and program.values.rank[buffer] > least


@kernel
def _reads_wider(program: ProgramArrays, graph: KernelGraph, k: int, result: int) -> bool:
    """True if a kernel reads, in step with a result, an array of wider elements than that has."""
    for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
        buffer = graph.reads.read_buffer[i]
        if not graph.reads.read_how[i] & STREAMED or buffer >= program.values.shape[0]:
            continue
        if program.values.element_bytes[buffer] > program.values.element_bytes[result]:
            return True
    return False


@kernel
def _carry(program: ProgramArrays, local: LocalArrays, buffers: Buffers, op: int) -> None:
    """A loop's buffer lives through the loop; it takes over what it starts from where that is not read again.

    The loop's result is that buffer: it takes no memory of its own. A cache that is copied is not taken over.
    """
    inside = program.result_ptr[op]
    buffers.end[inside] = max(
        before(program.scopes.scope_end[program.ops.carry_body[op]]), buffers.last[inside], buffers.last[inside + 1]
    )
    init = local.uses.use_buffer[program.operand_ptr[op]]
    if is_copied_carry(program, local, op):
        return
    if init >= program.values.shape[0] or buffers.last[init] > before(
        program.uses.use_position[program.operand_ptr[op]]
    ):
        return
    source = program.values.value_op[init]
    if program.ops.carry_body[source] >= 0:
        buffers.bytes[inside] = 0.0
        buffers.end[program.result_ptr[source]] = max(buffers.end[program.result_ptr[source]], buffers.end[inside])
    elif program.values.is_donated[init]:
        buffers.bytes[inside] = 0.0


@kernel
def _next_in_place(program: ProgramArrays, local: LocalArrays, buffers: Buffers, op: int) -> None:
    """A loop's next value is written into the loop's buffer once the current one has been read."""
    inside, body = program.result_ptr[op], program.ops.carry_body[op]
    following = local.uses.use_buffer[program.operand_ptr[op] + 1]
    if following == inside or local.home[following] != body:
        return
    if following < program.values.shape[0] and program.ops.carry_body[program.values.value_op[following]] >= 0:
        following = program.result_ptr[program.values.value_op[following]]
    if buffers.last[inside] <= buffers.made[following] and buffers.end[following] <= before(
        program.scopes.scope_end[body]
    ):
        buffers.bytes[following] = 0.0


@kernel
def place_outputs(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    transposed: np.ndarray,
    gathered: np.ndarray,
    buffers: Buffers,
    waits: np.ndarray,
    output_bytes: np.ndarray,
) -> None:
    """Gives outputs their memory; fills in the bytes of those that take over no donated argument's.

    What a `transposed` node updates is copied into the argument's memory at the end only, and so are a loop's cache and
    what a gather makes where `gathered[output]`; the argument itself is then read from a copy.

    Scratch: waits[buffer], whether a transposed node makes it.
    """
    values = program.values.shape[0]
    for buffer in range(waits.shape[0]):
        waits[buffer] = False
    for k in range(transposed.shape[0]):
        if transposed[k]:
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                waits[graph.write_buffer[i]] = True
    for i in range(program.outputs.shape[0]):
        use, argument = program.outputs.output_use[i], program.outputs.output_argument[i]
        buffer = local.uses.use_buffer[use] if use >= 0 else local.values.shows[program.outputs.output_value[i]]
        if buffer < values and program.ops.carry_body[program.values.value_op[buffer]] >= 0:
            buffer = program.result_ptr[program.values.value_op[buffer]]
        given = buffer < values and program.ops.is_argument[program.values.value_op[buffer]]
        output_bytes[i] = 0.0
        if argument < 0:
            if buffer < values:
                output_bytes[i] = local.values.settled_bytes[buffer]
            else:
                output_bytes[i] = local.moves.moved_bytes[buffer - values]
            if not given:
                buffers.bytes[buffer] = 0.0
        elif gathered[i]:
            buffers.bytes[argument] = local.values.settled_bytes[argument]
            buffers.end[argument] = buffers.last[argument]
            buffers.end[buffer] = min(buffers.end[buffer], max(buffers.made[buffer], buffers.last[argument]))
        elif not given and not waits[buffer]:
            op = program.values.value_op[buffer] if buffer < values else 0
            if buffer < values and is_copied_carry(program, local, op):
                continue
            over = buffer < values and (
                program.ops.op_class[op] == ELEMENTWISE
                or program.ops.op_class[op] == UPDATE
                or program.ops.carry_body[op] >= 0
            )
            if buffers.last[argument] < buffers.made[buffer] or (
                over and buffers.last[argument] == buffers.made[buffer]
            ):
                buffers.bytes[buffer] = 0.0
            else:
                buffers.end[buffer] = min(buffers.end[buffer], max(buffers.made[buffer], buffers.last[argument]))


@kernel
def stay_on_chip(graph: KernelGraph, cache: Records, buffers: Buffers) -> None:
    """Gives no memory to buffers that never leave the chip: `cache` as `kernel_seconds` leaves it."""
    for k in range(graph.nodes.shape[0]):
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            buffer = graph.write_buffer[i]
            if cache.written_by[buffer] >= 0:
                buffers.bytes[buffer] = 0.0
            elif cache.until[buffer] >= 0:
                buffers.made[buffer] = max(buffers.made[buffer], min(cache.until[buffer], buffers.end[buffer]))


@kernel
def carries_on_chip(
    program: ProgramArrays, local: LocalArrays, held: np.ndarray, on_chip_bytes: float, buffers: Buffers
) -> None:
    """Gives no memory to what turns hand on whole where all that a turn touches stays on the chip
    (`loop_residency.py`): sums of gradients, and small stacks that are updated in place, part by part."""
    for i in range(program.carries.shape[0]):
        op = program.carries[i]
        if held[program.ops.carry_body[op]] > 0:
            following = local.uses.use_buffer[program.operand_ptr[op] + 1]
            inside, values = program.result_ptr[op], program.values.shape[0]
            in_parts = following < values and program.ops.op_class[program.values.value_op[following]] == UPDATE
            if following != inside and (not in_parts or buffers.bytes[inside] <= STACK_SHARE * on_chip_bytes):
                buffers.bytes[inside] = 0.0


@kernel
def live_bytes(buffers: Buffers, extra_slot: np.ndarray, extra_bytes: np.ndarray, change: np.ndarray) -> None:
    """Fills in what lives at each slot, with two slots behind the last; `extra_bytes[i]` at `extra_slot[i]` only."""
    changes(buffers, change)
    for i in range(extra_slot.shape[0]):
        change[extra_slot[i]] += extra_bytes[i]
        change[extra_slot[i] + 1] -= extra_bytes[i]
    lives = 0.0
    for i in range(change.shape[0]):
        lives += change[i]
        change[i] = lives


@kernel
def changes(buffers: Buffers, change: np.ndarray) -> None:
    """Fills in by how much what lives at each slot differs from the slot before."""
    made, end, size = buffers.made, buffers.end, buffers.bytes
    for i in range(change.shape[0]):
        change[i] = 0.0
    for i in range(size.shape[0]):
        if size[i] > 0 and end[i] >= made[i]:
            change[made[i]] += size[i]
            change[end[i] + 1] -= size[i]
