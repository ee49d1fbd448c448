"""What it costs to reduce a pending sum at a value, for `pending.py`, which follows sums from op to op.

here     bytes of the value on a device, twice if it is made whole, and of what is gathered on the way to it
sooner   the same at the best points up to it
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.table.loop_nests import LoopNests, operand_entry, tiling
from autopart.spmd.sums.passage_arrays import PassageArrays


class Given(NamedTuple):
    """What is read: a partitioning, its program's passages, and the shapes and mesh that say what a reduction moves.

    nests                the partitioning's arrays
    passages             of the program
    shapes[value, dim]   whole shapes, 1 behind the last dim
    is_output[value]     True for what the program returns
    stored[value]        True for what is gathered anew for each use, see `placement.stored_values`
    rounded              reductions also pass ops whose parts are rounded otherwise than the whole
    sharded_loops        a carry that is tiled passes nothing: what it adds up is reduced in every turn
    """

    nests: LoopNests
    passages: PassageArrays
    shapes: np.ndarray
    is_output: np.ndarray
    stored: np.ndarray
    rounded: bool
    sharded_loops: bool


class Ways(NamedTuple):
    """How far reductions along one axis can go, and what that costs.

    assumed[op]        by which reduction a carry is taken to be pending; 0 for none
    code[value, axis]  by which reduction a value may be pending; 0 for none
    taken[op]          the passage by which the op can pass, or -1
    cost[value]        of what may be pending: reducing at the value: bytes, work repeated; at the best points up to it:
                       bytes, work repeated; bytes of what is gathered on the way to the value
    stays[value]       True if reducing at the value, or later, is at least as good as reducing before
    loop[value]        the carry on which it depends that the value is pending; it is reduced after that loop only
    forked[value]      it comes from a fork in its loop: it is reduced after that loop only
    no_fork[value]     a fork that is reduced, since some of its ways are
    wanted[value]      scratch of `_choose`: the value must be pending for so many uses, which pass it on
    again[op]          what is assumed of it, or found of what it reads, is another: it is to be looked at again
    noted              scratch: code, loop, whether it is forked, and cost of one value
    """

    assumed: np.ndarray
    code: np.ndarray
    taken: np.ndarray
    cost: np.ndarray
    stays: np.ndarray
    loop: np.ndarray
    forked: np.ndarray
    no_fork: np.ndarray
    wanted: np.ndarray
    again: np.ndarray
    noted: np.ndarray

    @staticmethod
    def empty(ops: int, values: int, axes: int) -> Ways:
        """Room for a program."""
        return Ways(
            assumed=np.empty(ops, np.uint8), code=np.empty((values, axes), np.uint8), taken=np.empty(ops, np.int32),
            cost=np.empty((values, 5)), stays=np.empty(values, np.bool_), loop=np.empty(values, np.int32),
            forked=np.empty(values, np.bool_), no_fork=np.empty(values, np.bool_), wanted=np.empty(values, np.int32),
            again=np.empty(ops, np.bool_), noted=np.empty(8),
        )  # fmt: skip


@kernel
def goes_on(given: Given, axis: int, value: int) -> bool:
    """True if one use alone reads the value, and nothing is decided about the axis."""
    graph, state, is_output = given.nests.graph, given.nests.state, given.is_output
    alone = graph.user_ptr[value + 1] - graph.user_ptr[value] == 1
    return alone and not is_output[value] and state.action[value, axis] == 0


@kernel
def made_whole(given: Given, axis: int, value: int) -> int:
    """The value that is gathered to have all of this one, which is tiled: what it is a broadcast of; -1 if scalars
    alone make it. What is between is made whole by each device."""
    graph = given.nests.graph
    while tiling(given.nests, value, axis) >= 0 and goes_on(given, axis, value):
        op = graph.value_op[value]
        if given.passages.from_scalars[op]:
            return -1
        if given.nests.maps.repeats[graph.op_spec[op]] == 0:
            break
        value = int(graph.operands[graph.operand_ptr[op]])
    return value


@kernel
def _gathered_bytes(given: Given, axis: int, value: int) -> float:
    """What it moves to have all of a value on each device."""
    graph, passages = given.nests.graph, given.passages
    source = made_whole(given, axis, value)
    if source < 0 or tiling(given.nests, source, axis) < 0:
        return 0.0
    size = elements_without(given, axis, source) * passages.element_bytes[source]
    return size * passages.runs[passages.scope[graph.value_op[source]]]


@kernel
def price(given: Given, ways: Ways, axis: int, op: int, value: int) -> None:
    """Fills in cost, stays, loop and forked of a value that is pending because its op passes parts; see `_spread`."""
    graph, state, passages = given.nests.graph, given.nests.state, given.passages
    code, cost, stays, loop = ways.code, ways.cost, ways.stays, ways.loop
    sooner, sooner_work, work, gathered, inside, forked = 0.0, 0.0, 0.0, 0.0, -1, False
    leaves_loop = passages.is_carry[op]
    spec = graph.op_spec[op]
    if passages.leaves[spec] or (state.mapping[op, axis] >= 0 and not passages.free[spec]):
        work = elements_without(given, axis, value)
    for use in range(graph.operand_ptr[op], graph.operand_ptr[op + 1]):
        operand = graph.operands[use]
        if code[operand, axis] != 0:
            uses = graph.user_ptr[operand + 1] - graph.user_ptr[operand]
            work += cost[operand, 1] / uses
            sooner += cost[operand, 2] / uses
            sooner_work += cost[operand, 3] / uses
            gathered += cost[operand, 4] / uses
            forked = forked or (not leaves_loop and (ways.forked[operand] or uses > 1))
            if loop[operand] >= 0 and loop[operand] != op:
                inside = loop[operand]
        else:
            gathered += _gathered_bytes(given, axis, operand)
    here = reduced_bytes(given, axis, value) + gathered
    loop[value], ways.forked[value] = inside, forked
    as_good = here == sooner and work <= sooner_work and not _only_scales(given, ways, axis, op, value)
    stays[value] = inside < 0 and not forked and (here < sooner or as_good)
    cost[value, 0], cost[value, 1], cost[value, 4] = here, work, gathered
    cost[value, 2], cost[value, 3] = (here, work) if stays[value] else (sooner, sooner_work)


@kernel
def _only_scales(given: Given, ways: Ways, axis: int, op: int, value: int) -> bool:
    """True for an array of what is pending times, or over, a number: readers of what was reduced compute that."""
    graph = given.nests.graph
    first, elements = graph.operand_ptr[op], elements_without(given, axis, value)
    if graph.operand_ptr[op + 1] - first != 2 or elements == 1:
        return False
    for use in range(first, first + 2):
        operand = graph.operands[use]
        if ways.code[operand, axis] == 0 and given.passages.from_scalars[graph.value_op[operand]]:
            return elements_without(given, axis, operand) == elements
    return False


@kernel
def elements_without(given: Given, axis: int, value: int) -> float:
    """Elements on one device of a value, were it not tiled on `axis`."""
    sizes, shapes = given.nests.sizes, given.shapes
    elements = 1.0
    for dim in range(shapes.shape[1]):
        elements *= shapes[value, dim]
    for other in range(sizes.shape[0]):
        if other != axis and tiling(given.nests, value, other) >= 0:
            elements /= sizes[other]
    return elements


@kernel
def reduced_bytes(given: Given, axis: int, value: int) -> float:
    """What a reduction of the value along `axis` moves: its bytes, twice if it is made whole, whenever it runs."""
    graph, state, passages, is_output = given.nests.graph, given.nests.state, given.passages, given.is_output
    first, last = graph.user_ptr[value], graph.user_ptr[value + 1]
    times = 2.0 if is_output[value] or first < last else 0.0
    if state.action[value, axis] > 0 or (not is_output[value] and _is_sliced(given, axis, value)):
        times = 1.0
    runs = passages.runs[passages.scope[graph.value_op[value]]]
    size = elements_without(given, axis, value) * passages.element_bytes[value]
    return times * runs * size


@kernel
def _is_sliced(given: Given, axis: int, value: int) -> bool:
    """True if the loops of all readers over `axis` slice the value."""
    graph, state = given.nests.graph, given.nests.state
    for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
        use = graph.user[i]
        op = graph.use_op[use]
        mapping = state.mapping[op, axis]
        if mapping < 0 or operand_entry(given.nests, op, mapping, use - graph.operand_ptr[op]) < 0:
            return False
    return graph.user_ptr[value] < graph.user_ptr[value + 1]
