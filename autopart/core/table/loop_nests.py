"""PartIR:Core as arrays: the loop nest of each op, and what was decided of each value.

    mapping[dot, "B"] = 0       for "B": slice lhs on dim 0, rhs whole; results are tiled on dim 0
    action[%x, "B"] = 1         tile<%x, 0, "B">
    trail = [(%x, B), (dot, B)] by which both are undone
    tiling(%x, "B") = 0         by its own action, or by the loop of the op that makes it

Propagation and the space of decisions write and read these arrays by the kernels here.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.layout import LAST_TILE
from autopart.core.table.mapping_table import MappingArrays

NO_MAPPING = -1
ATOMIC = -1
"""Value action: kept whole on the axis. 0 is no action, 1 + d is tile<d>."""


class GraphArrays(NamedTuple):
    """The program's structure as the kernels read it.

    op_spec[op]        the op's spec; its operands are uses operand_ptr[op] .. operand_ptr[op + 1]
    operands[use]      the value that a use reads; its op is use_op[use]
    value_op[value]    the op that makes a value; its results are values result_ptr[op] .. result_ptr[op + 1]
    user[...]          the uses of a value, from user_ptr[value] to user_ptr[value + 1]
    is_argument[op]    True if the op stands for an argument of the program
    closed[op, axis]   True if the op may get no loop over the axis: it is partitioned by hand along it
    """

    op_spec: np.ndarray
    operand_ptr: np.ndarray
    operands: np.ndarray
    result_ptr: np.ndarray
    value_op: np.ndarray
    use_op: np.ndarray
    user_ptr: np.ndarray
    user: np.ndarray
    is_argument: np.ndarray
    closed: np.ndarray


class StateArrays(NamedTuple):
    """The table that determines PartIR:Core, with the trail by which it is undone.

    mapping[op, axis]      mapping number within the op's spec, or NO_MAPPING; entered the nest at op_stamp[op, axis]
    action[value, axis]    0, ATOMIC or 1 + tiled dim; decided at value_stamp[value, axis]
    trail[i]               (op, axis) or (-1 - value, axis) of the i-th entry set
    length[0]              how many entries of the trail are set
    fingerprint[0]         a hash of what is set, whatever the order in which it was set: see `mix`
    """

    mapping: np.ndarray
    op_stamp: np.ndarray
    action: np.ndarray
    value_stamp: np.ndarray
    trail: np.ndarray
    length: np.ndarray
    fingerprint: np.ndarray

    @staticmethod
    def empty(ops: int, values: int, axes: int) -> StateArrays:
        """Those of a program about which nothing is decided."""
        return StateArrays(
            mapping=np.full((ops, axes), NO_MAPPING, np.int16), op_stamp=np.zeros((ops, axes), np.int32),
            action=np.zeros((values, axes), np.int8), value_stamp=np.zeros((values, axes), np.int32),
            trail=np.zeros(((ops + values) * axes + 1, 2), np.int32), length=np.zeros(1, np.int64),
            fingerprint=np.zeros(1, np.uint64),
        )  # fmt: skip


class LoopNests(NamedTuple):
    """PartIR:Core of one program on one mesh, as kernels take it.

    graph          the program's structure
    maps           the mappings of its specs
    state          which mapping each op's loop over each axis uses, and what was decided of values
    sizes[axis]    of the mesh
    """

    graph: GraphArrays
    maps: MappingArrays
    state: StateArrays
    sizes: np.ndarray


@kernel
def mix(a: int, b: int, c: int) -> np.uint64:
    """A 64-bit hash of three small numbers (splitmix64 finaliser)."""
    h = (np.uint64(a) * np.uint64(0x9E3779B97F4A7C15)) ^ (np.uint64(b) * np.uint64(0xC2B2AE3D27D4EB4F))
    h ^= np.uint64(c) * np.uint64(0x165667B19E3779F9)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@kernel
def _op_hash(state: StateArrays, op: int, axis: int) -> np.uint64:
    depth = 0
    for other in range(state.mapping.shape[1]):
        if other != axis and state.mapping[op, other] >= 0 and state.op_stamp[op, other] < state.op_stamp[op, axis]:
            depth += 1
    return mix(op + 1, axis + 1, state.mapping[op, axis] * 8 + depth + 1)


@kernel
def set_mapping(state: StateArrays, op: int, axis: int, mapping: int, stamp: int) -> None:
    """The op's loop over `axis` uses `mapping`; recorded on the trail."""
    state.mapping[op, axis] = mapping
    state.op_stamp[op, axis] = stamp
    state.trail[state.length[0], 0] = op
    state.trail[state.length[0], 1] = axis
    state.length[0] += 1
    state.fingerprint[0] ^= _op_hash(state, op, axis)


@kernel
def set_action(state: StateArrays, value: int, axis: int, action: int, stamp: int) -> None:
    """An explicit tile or atomic on a value; recorded on the trail."""
    state.action[value, axis] = action
    state.value_stamp[value, axis] = stamp
    state.trail[state.length[0], 0] = -1 - value
    state.trail[state.length[0], 1] = axis
    state.length[0] += 1
    state.fingerprint[0] ^= mix(-1 - value, axis + 1, action + 2)


@kernel
def undo(state: StateArrays, mark: int) -> None:
    """Takes back every entry set since the trail was `mark` long."""
    while state.length[0] > mark:
        state.length[0] -= 1
        where, axis = state.trail[state.length[0], 0], state.trail[state.length[0], 1]
        if where >= 0:
            state.fingerprint[0] ^= _op_hash(state, where, axis)
            state.mapping[where, axis] = NO_MAPPING
        else:
            value = -1 - where
            state.fingerprint[0] ^= mix(where, axis + 1, state.action[value, axis] + 2)
            state.action[value, axis] = 0


@kernel
def mapping_row(nests: LoopNests, op: int, mapping: int) -> int:
    """Where mapping number `mapping` of `op` begins in `entries`: its operands, then its results."""
    graph, maps = nests.graph, nests.maps
    return maps.start[maps.first[graph.op_spec[op]] + mapping]


@kernel
def result_entry(nests: LoopNests, op: int, mapping: int, result: int) -> int:
    """What mapping number `mapping` of `op` does to its result number `result`."""
    graph, maps = nests.graph, nests.maps
    first = mapping_row(nests, op, mapping)
    return maps.entries[first + graph.operand_ptr[op + 1] - graph.operand_ptr[op] + result]


@kernel
def operand_entry(nests: LoopNests, op: int, mapping: int, operand: int) -> int:
    """The dim on which mapping number `mapping` of `op` slices its operand number `operand`, or WHOLE."""
    maps = nests.maps
    return maps.entries[mapping_row(nests, op, mapping) + operand]


@kernel
def tiling(nests: LoopNests, value: int, axis: int) -> int:
    """The dim that `axis` tiles of `value`, or -1."""
    graph, state = nests.graph, nests.state
    action = state.action[value, axis]
    if action != 0:
        return action - 1 if action > 0 else -1
    op = graph.value_op[value]
    mapping = state.mapping[op, axis]
    if mapping < 0:
        return -1
    entry = result_entry(nests, op, mapping, value - graph.result_ptr[op])
    return entry if entry < LAST_TILE else -1


@kernel
def decided_at(state: StateArrays, op: int, value: int, axis: int) -> int:
    """The stamp of what tiles `value`, a result of `op`: its action's, or that of the op's loop."""
    if state.action[value, axis] != 0:
        return state.value_stamp[value, axis]
    return state.op_stamp[op, axis]


@kernel
def ways(nests: LoopNests, value: int, dim: int) -> int:
    """Into how many parts the axes that tile `dim` of `value` cut it."""
    sizes = nests.sizes
    count = 1
    for axis in range(len(sizes)):
        if tiling(nests, value, axis) == dim:
            count *= sizes[axis]
    return count


@kernel
def slicing(nests: LoopNests, value: int, axis: int) -> int:
    """Bit d is set if something downstream slices `value` on dim d: its own tiling, or a consumer's loop."""
    graph, state = nests.graph, nests.state
    action = state.action[value, axis]
    if action != 0:
        return 1 << (action - 1) if action > 0 else 0
    bits = 0
    for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
        use = graph.user[i]
        op = graph.use_op[use]
        mapping = state.mapping[op, axis]
        if mapping >= 0:
            dim = operand_entry(nests, op, mapping, use - graph.operand_ptr[op])
            if dim >= 0:
                bits |= 1 << dim
    return bits


@kernel
def divides(nests: LoopNests, op: int, mapping: int, axis: int) -> bool:
    """True if the mapping's extent is a multiple of the sizes of `axis` and of all axes that divide it already.

    Another axis divides the extent already if the op's loop over that axis uses the same mapping, or if an action along
    that axis tiles a result of the op on the dim on which the mapping tiles it. A mapping that another excludes, or
    that follows one which is not used up, does not divide.
    """
    graph, maps, state, sizes = nests.graph, nests.maps, nests.state, nests.sizes
    row = maps.first[graph.op_spec[op]] + mapping
    ways, used = sizes[axis], 1
    for other in range(sizes.shape[0]):
        if other == axis:
            continue
        taken = state.mapping[op, other]
        if taken >= 0 and maps.excludes[row] >> taken & 1:
            return False
        if taken >= 0 and taken == maps.after[row]:
            used *= sizes[other]
        divided = taken == mapping
        for value in range(graph.result_ptr[op], graph.result_ptr[op + 1]):
            action = state.action[value, other]
            if action > 0 and result_entry(nests, op, mapping, value - graph.result_ptr[op]) == action - 1:
                divided = True
        if divided:
            ways *= sizes[other]
    if maps.after[row] >= 0 and maps.extent[maps.first[graph.op_spec[op]] + maps.after[row]] != used:
        return False
    return maps.extent[row] % ways == 0
