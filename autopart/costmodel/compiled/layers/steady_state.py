"""Is a run in a steady state around the typical layer, and what do the layers that are left out hold?

    nodes      of the layers before the typical one, of that, and after it: as long, at corresponding places
    buffers    of the three: as many bytes, made and gone at corresponding places
    chip       where layers are left out it holds nothing from before the layer that runs there: they would touch more

Nodes and buffers of a layer are compared in the order of their numbers, which is that of the program.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import ProgramArrays
from autopart.costmodel.compiled.buffer_assignment.liveness import Buffers
from autopart.costmodel.compiled.fusion.kernel_graph import DEF_MOVE, KERNEL, USE_MOVE, KernelGraph
from autopart.costmodel.compiled.links.collective_combiner import MAX_COMBINED, kind_of
from autopart.costmodel.compiled.links.redistribution_costs import COUNTED_BYTES

NOWHERE = -1000
"""The layer of what is in none."""

NOT_STEADY = -1
"""Instead of a number of nodes."""


class Layers(NamedTuple):
    """Where things are in the stack: the fields of `WholeProgram` of the same names.

    typical, left_out   the layer that stands for others, and for how many
    times_of_op         float64[ops]: how many ops of the whole program each stands for
    """

    typical: int
    left_out: int
    layer_of_op: np.ndarray
    chain_of_op: np.ndarray
    value_layer: np.ndarray
    value_part: np.ndarray
    is_shared: np.ndarray
    step: np.ndarray
    gap: np.ndarray
    passes: np.ndarray
    times_of_op: np.ndarray


class Run(NamedTuple):
    """A run of the simulator: fields of `Simulation`, of its lowering (`at_def`) and its placement, and the device's.

    moved_value, moved_position   `Placement.value` and `Placement.position`
    plan_rows, figures            the row of each node's plan in `KnownPlans.figures`
    """

    program: ProgramArrays
    graph: KernelGraph
    at_def: np.ndarray
    moved_value: np.ndarray
    moved_position: np.ndarray
    node_s: np.ndarray
    node_hbm_bytes: np.ndarray
    node_since: np.ndarray
    node_extra_bytes: np.ndarray
    slot: np.ndarray
    leader: np.ndarray
    operands: np.ndarray
    buffers: Buffers
    live: np.ndarray
    plan_rows: np.ndarray
    figures: np.ndarray
    combine_bytes: float


class Three(NamedTuple):
    """Scratch: the numbers of what belongs to the three layers, as int32[3, most]; begun, ended: bytes per slot."""

    nodes: np.ndarray
    buffers: np.ndarray
    begun: np.ndarray
    ended: np.ndarray


@kernel
def steady(layers: Layers, run: Run, three: Three) -> tuple[int, float]:
    """(nodes of the typical layer, most bytes alive in the whole program besides arguments and outputs).

    `NOT_STEADY` nodes where the three layers do not agree, or a node finds on the chip what the layers that are left
    out might have displaced.
    """
    nodes, count = three.nodes, _nodes_of_three(layers, run, three.nodes)
    buffers, held = three.buffers, _buffers_of_three(layers, run, three.buffers)
    if count == NOT_STEADY or held == NOT_STEADY:
        return NOT_STEADY, 0.0
    if _finds_what_was_before(layers, run, nodes, count):
        return NOT_STEADY, 0.0
    for i in range(held):
        if not _buffers_agree(layers, run, buffers[0, i], buffers[1, i], buffers[2, i]):
            return NOT_STEADY, 0.0
    for i in range(count):
        if not _nodes_agree(layers, run, nodes[0, i], nodes[1, i], nodes[2, i]):
            return NOT_STEADY, 0.0
    for i in range(count):
        if not _fits_together(layers, run, nodes, i):
            return NOT_STEADY, 0.0
    return count, _most_bytes(layers, run, three, held)


@kernel
def _nodes_of_three(layers: Layers, run: Run, nodes: np.ndarray) -> int:
    """Lists the nodes of the three layers; returns how many each has, `NOT_STEADY` where not all have as many."""
    before = here = after = 0
    for k in range(run.slot.shape[0]):
        turn = _node_layer(layers, run, k) - layers.typical
        if turn == -1:
            nodes[0, before], before = k, before + 1
        elif turn == 0:
            nodes[1, here], here = k, here + 1
        elif turn == 1:
            nodes[2, after], after = k, after + 1
    return here if before == here == after else NOT_STEADY


@kernel
def _buffers_of_three(layers: Layers, run: Run, buffers: np.ndarray) -> int:
    """The same for buffers."""
    before = here = after = 0
    for b in range(run.buffers.made.shape[0]):
        turn = _buffer_layer(layers, run, b) - layers.typical
        if turn == -1:
            buffers[0, before], before = b, before + 1
        elif turn == 0:
            buffers[1, here], here = b, here + 1
        elif turn == 1:
            buffers[2, after], after = b, after + 1
    return here if before == here == after else NOT_STEADY


@kernel
def _finds_what_was_before(layers: Layers, run: Run, nodes: np.ndarray, count: int) -> bool:
    """True if behind layers that are left out a node finds on the chip what was touched before the layer before them,
    or after a pass what was touched before it left layers out.

    So it is where layers touch little: the moments of a small layer are still there when the next pass reads them.
    """
    for i in range(layers.passes.shape[0]):
        begin, end, until, runs = layers.passes[i, 0], layers.passes[i, 1], layers.passes[i, 2], False
        for turn in range(3):
            for j in range(count):
                runs = runs or begin <= run.slot[nodes[turn, j]] < end
        for k in range(run.slot.shape[0] if runs else 0):
            since = run.node_since[k]
            if (run.slot[k] >= end and since < begin) or (run.slot[k] >= until and since < end):
                return True
    return False


# ---- layers and parts: a part is equal for things that correspond in two layers


@kernel
def _move_layer(layers: Layers, run: Run, move: int) -> int:
    """That of the value that is moved, or of the reader of a value that all layers share."""
    value = run.moved_value[move]
    if layers.value_layer[value] != NOWHERE or not layers.is_shared[value]:
        return layers.value_layer[value]
    return layers.layer_of_op[min(run.moved_position[move], layers.times_of_op.shape[0])]


@kernel
def _move_part(layers: Layers, run: Run, move: int) -> float:
    ops = layers.times_of_op.shape[0] + 1
    maker, reader = run.program.values.value_op[run.moved_value[move]], min(run.moved_position[move], ops - 1)
    return 3.0 * ops * (layers.chain_of_op[maker] + ops) + (layers.chain_of_op[reader] + ops)


@kernel
def _node_value(run: Run, k: int) -> int:
    """The first value of a kernel, or the one that is redistributed after its op."""
    subject = run.graph.nodes.subject[k]
    return run.program.result_ptr[subject] if run.graph.nodes.kind[k] == KERNEL else run.at_def[subject]


@kernel
def _node_layer(layers: Layers, run: Run, k: int) -> int:
    if run.graph.nodes.kind[k] == USE_MOVE:
        return _move_layer(layers, run, run.graph.nodes.subject[k])
    return layers.value_layer[_node_value(run, k)]


@kernel
def _node_part(layers: Layers, run: Run, k: int) -> float:
    if run.graph.nodes.kind[k] == USE_MOVE:
        return _move_part(layers, run, run.graph.nodes.subject[k])
    return layers.value_part[_node_value(run, k)] + (0.0 if run.graph.nodes.kind[k] == KERNEL else 0.5)


@kernel
def _buffer_layer(layers: Layers, run: Run, b: int) -> int:
    values, moves = layers.value_layer.shape[0], run.moved_value.shape[0]
    if b < values:
        return layers.value_layer[b]
    return (
        _move_layer(layers, run, b - values)
        if b < values + moves
        else layers.value_layer[run.at_def[b - values - moves]]
    )


@kernel
def _buffer_part(layers: Layers, run: Run, b: int) -> float:
    values, moves = layers.value_layer.shape[0], run.moved_value.shape[0]
    if b < values:
        return layers.value_part[b]
    return (
        _move_part(layers, run, b - values)
        if b < values + moves
        else layers.value_part[run.at_def[b - values - moves]] + 0.5
    )


# ---- do three things agree?


@kernel
def _in_step(layers: Layers, before: int, here: int, after: int) -> bool:
    """True if slots are at corresponding places of layers, each one layer on from the one before."""
    step = layers.step
    return step[here] - step[before] == 1 and step[after] - step[here] == 1


@kernel
def _corresponds(layers: Layers, before: int, here: int, after: int) -> bool:
    """True if slots are in step, or what happens there happens at one place for all layers."""
    return before == here == after or _in_step(layers, before, here, after)


@kernel
def _lives(run: Run, b: int) -> bool:
    return run.buffers.bytes[b] > 0 and run.buffers.end[b] >= run.buffers.made[b]


@kernel
def _made(run: Run, b: int) -> int:
    return run.buffers.made[b] if _lives(run, b) else 0


@kernel
def _end(run: Run, b: int) -> int:
    return run.buffers.end[b] if _lives(run, b) else 0


@kernel
def _bytes(run: Run, b: int) -> float:
    return run.buffers.bytes[b] if _lives(run, b) else 0.0


@kernel
def _operands(layers: Layers, run: Run, b: int) -> float:
    """How many arrays the expression of a buffer that is a value reads; else 0."""
    return run.operands[b] if b < layers.value_layer.shape[0] else 0.0


@kernel
def _buffers_agree(layers: Layers, run: Run, before: int, here: int, after: int) -> bool:
    """True if three buffers take as much at corresponding times, and their expressions read as many arrays.

    Of those that take nothing it does not matter which correspond: redistributions that only slice.
    """
    if not _corresponds(layers, _made(run, before), _made(run, here), _made(run, after)):
        return False
    if not _corresponds(layers, _end(run, before), _end(run, here), _end(run, after)):
        return False
    if not _bytes(run, before) == _bytes(run, here) == _bytes(run, after):
        return False
    if not _operands(layers, run, before) == _operands(layers, run, here) == _operands(layers, run, after):
        return False
    part = _buffer_part(layers, run, here)
    if _bytes(run, here) == 0:
        return True
    return _buffer_part(layers, run, before) == part and _buffer_part(layers, run, after) == part


@kernel
def _takes_as_much(layers: Layers, run: Run, one: int, other: int) -> bool:
    """True if two nodes play the same part, take as long, move as many bytes, and so do the kernels they run in."""
    return (
        run.node_s[one] == run.node_s[other]
        and run.node_hbm_bytes[one] == run.node_hbm_bytes[other]
        and run.node_extra_bytes[one] == run.node_extra_bytes[other]
        and _node_part(layers, run, one) == _node_part(layers, run, other)
        and _node_part(layers, run, run.leader[one]) == _node_part(layers, run, run.leader[other])
    )


@kernel
def _nodes_agree(layers: Layers, run: Run, before: int, here: int, after: int) -> bool:
    """True if three nodes take as much, run at corresponding places and in such kernels."""
    if not _takes_as_much(layers, run, before, here) or not _takes_as_much(layers, run, here, after):
        return False
    planned = run.graph.nodes.slot
    first, second, third = planned[run.leader[before]], planned[run.leader[here]], planned[run.leader[after]]
    if run.leader[here] != here and not _in_step(layers, first, second, third):
        return False
    return _corresponds(layers, run.slot[before], run.slot[here], run.slot[after])


@kernel
def _fits_together(layers: Layers, run: Run, nodes: np.ndarray, i: int) -> bool:
    """True if node i of the typical layer, a reduction that waits for those of all layers, may do so in the whole."""
    k = nodes[1, i]
    waits = run.graph.nodes.kind[k] == DEF_MOVE and not _in_step(
        layers, run.slot[nodes[0, i]], run.slot[k], run.slot[nodes[2, i]]
    )
    if not waits:
        return True
    kind, joined, sent = kind_of(run.graph, run.figures, run.plan_rows[k], k), 0.0, 0.0
    for other in range(run.slot.shape[0]):
        if run.slot[other] == run.slot[k] and kind_of(run.graph, run.figures, run.plan_rows[other], other) == kind:
            times = 1.0 + layers.left_out if _node_layer(layers, run, other) == layers.typical else 1.0
            joined += times
            sent += times * run.figures[COUNTED_BYTES, run.plan_rows[other]]
    return joined <= MAX_COMBINED and sent <= run.combine_bytes


# ---- what the layers that are left out hold


@kernel
def _most_bytes(layers: Layers, run: Run, three: Three, held: int) -> float:
    """The most that lives at any slot, with what the layers that are left out hold there.

    A slot of the typical layer becomes the gap where layers are left out; what happens at one place for all layers
    happens there.
    """
    slots, begun, ended = run.live.shape[0], three.begun, three.ended
    for slot in range(slots + 1):
        begun[slot] = ended[slot] = 0.0
    for i in range(held):
        before, here, after = three.buffers[0, i], three.buffers[1, i], three.buffers[2, i]
        begin, end = _made(run, here), _end(run, here)
        if _in_step(layers, _made(run, before), begin, _made(run, after)):
            begin = layers.gap[begin]
        last = end
        if _in_step(layers, _end(run, before), end, _end(run, after)):
            last = layers.gap[end] - 1
        if begin <= last:
            in_bytes = layers.left_out * _bytes(run, here)
            begun[begin] += in_bytes
            ended[min(last, slots - 1) + 1] += in_bytes
    most, lives = -np.inf, 0.0
    for slot in range(slots):
        lives += begun[slot] - ended[slot]
        most = max(most, run.live[slot] + lives)
    return most
