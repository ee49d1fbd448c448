"""Propagation: one mesh axis, to a fixed point, by what the neighbours already do.

    x tiled on 0 -> dot(x, w)        evidence: operand 0 sliced on dim 0
                                     fitting: b (0, WHOLE) -> tile 0          exactly one: the op takes it
    w tiled on 1 as well             fitting: b and n                         several: a conflict, left alone

An op without a mapping on the axis looks at how its operands are tiled and at how consumers slice its results. A
mapping fits if it agrees with at least one of these and its extent is a multiple of the axis. If exactly one mapping
fits, the op takes it, and that is evidence for its neighbours. A mapping that agrees with some operands slices the
other operands too (inference). Atomic values are no evidence. Propagation undoes nothing and consults no cost.

Where none fits, though an operand is tiled, the first mapping is taken that the tile draws (`TileMapping.drawn_by`):
the tile is exchanged for the one that the mapping slices, instead of being gathered. Such a tile gives way to one that
was there: where rows that were drawn meet the array that they were merged from, they are exchanged back.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.layout import LAST_TILE
from autopart.core.mapping_table import MappingArrays

NO_MAPPING = -1
MOST_FOLLOWED = 100
"""Values over which a tile is followed back to what it was drawn from."""

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
def mapping_row(graph: GraphArrays, maps: MappingArrays, op: int, mapping: int) -> int:
    """Where mapping number `mapping` of `op` begins in `entries`: its operands, then its results."""
    return maps.start[maps.first[graph.op_spec[op]] + mapping]


@kernel
def result_entry(graph: GraphArrays, maps: MappingArrays, op: int, mapping: int, result: int) -> int:
    """What mapping number `mapping` of `op` does to its result number `result`."""
    first = mapping_row(graph, maps, op, mapping)
    return maps.entries[first + graph.operand_ptr[op + 1] - graph.operand_ptr[op] + result]


@kernel
def operand_entry(graph: GraphArrays, maps: MappingArrays, op: int, mapping: int, operand: int) -> int:
    """The dim on which mapping number `mapping` of `op` slices its operand number `operand`, or WHOLE."""
    return maps.entries[mapping_row(graph, maps, op, mapping) + operand]


@kernel
def tiling(graph: GraphArrays, maps: MappingArrays, state: StateArrays, value: int, axis: int) -> int:
    """The dim that `axis` tiles of `value`, or -1."""
    action = state.action[value, axis]
    if action != 0:
        return action - 1 if action > 0 else -1
    op = graph.value_op[value]
    mapping = state.mapping[op, axis]
    if mapping < 0:
        return -1
    entry = result_entry(graph, maps, op, mapping, value - graph.result_ptr[op])
    return entry if entry < LAST_TILE else -1


@kernel
def decided_at(state: StateArrays, op: int, value: int, axis: int) -> int:
    """The stamp of what tiles `value`, a result of `op`: its action's, or that of the op's loop."""
    if state.action[value, axis] != 0:
        return state.value_stamp[value, axis]
    return state.op_stamp[op, axis]


@kernel
def ways(graph: GraphArrays, maps: MappingArrays, state: StateArrays, sizes: np.ndarray, value: int, dim: int) -> int:
    """Into how many parts the axes that tile `dim` of `value` cut it; `sizes` has the size of each axis."""
    count = 1
    for axis in range(len(sizes)):
        if tiling(graph, maps, state, value, axis) == dim:
            count *= sizes[axis]
    return count


@kernel
def slicing(graph: GraphArrays, maps: MappingArrays, state: StateArrays, value: int, axis: int) -> int:
    """Bit d is set if something downstream slices `value` on dim d: its own tiling, or a consumer's loop."""
    action = state.action[value, axis]
    if action != 0:
        return 1 << (action - 1) if action > 0 else 0
    bits = 0
    for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
        use = graph.user[i]
        op = graph.use_op[use]
        mapping = state.mapping[op, axis]
        if mapping >= 0:
            dim = operand_entry(graph, maps, op, mapping, use - graph.operand_ptr[op])
            if dim >= 0:
                bits |= 1 << dim
    return bits


@kernel
def divides(
    graph: GraphArrays, maps: MappingArrays, state: StateArrays, sizes: np.ndarray, op: int, mapping: int, axis: int
) -> bool:
    """True if the mapping's extent is a multiple of the sizes of `axis` and of all axes that divide it already.

    Another axis divides the extent already if the op's loop over that axis uses the same mapping, or if an action along
    that axis tiles a result of the op on the dim on which the mapping tiles it. A mapping that another excludes, or
    that follows one which is not used up, does not divide.
    """
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
            if action > 0 and result_entry(graph, maps, op, mapping, value - graph.result_ptr[op]) == action - 1:
                divided = True
        if divided:
            ways *= sizes[other]
    if maps.after[row] >= 0 and maps.extent[maps.first[graph.op_spec[op]] + maps.after[row]] != used:
        return False
    return maps.extent[row] % ways == 0


@kernel
def fitting_mappings(
    graph: GraphArrays,
    maps: MappingArrays,
    state: StateArrays,
    sizes: np.ndarray,
    op: int,
    axis: int,
    found: np.ndarray,
) -> int:
    """Writes the mappings of `op` that fit its neighbours on `axis` into `found`; returns how many there are.

    `found` has an entry for each mapping of a spec, and `MOST_FOLLOWED` more; until all are known, 1 marks those that
    agree with a neighbour.
    """
    spec = graph.op_spec[op]
    first_operand, operand_count = graph.operand_ptr[op], graph.operand_ptr[op + 1] - graph.operand_ptr[op]
    first_result, result_count = graph.result_ptr[op], graph.result_ptr[op + 1] - graph.result_ptr[op]
    if graph.closed[op, axis] or (graph.is_argument[op] and state.action[first_result, axis] == ATOMIC):
        return 0
    first, mappings, agree = maps.first[spec], maps.first[spec + 1] - maps.first[spec], 0
    for mapping in range(mappings):
        found[mapping] = 0
    for k in range(operand_count):
        dim = tiling(graph, maps, state, graph.operands[first_operand + k], axis)
        if dim >= 0:
            for mapping in range(mappings):
                fits = found[mapping] == 0 and maps.entries[maps.start[first + mapping] + k] == dim
                if fits and not maps.alone[first + mapping]:
                    found[mapping] = 1
                    agree += 1
    for r in range(result_count):
        if agree == mappings:
            break
        bits = slicing(graph, maps, state, first_result + r, axis)
        if bits != 0:
            for mapping in range(mappings):
                entry = maps.entries[maps.start[first + mapping] + operand_count + r]
                if found[mapping] == 0 and entry < LAST_TILE and bits >> entry & 1 and not maps.alone[first + mapping]:
                    found[mapping] = 1
                    agree += 1
    count = 0
    if agree > 0:
        for mapping in range(mappings):
            if found[mapping] == 1 and divides(graph, maps, state, sizes, op, mapping, axis):
                found[count] = mapping
                count += 1
    if count == 0 and maps.drawn[spec]:
        count = _drawn_mapping(graph, maps, state, sizes, op, axis, found)
    if count > 1:
        count = _not_drawn(graph, maps, state, op, axis, found, count)
    return count


@kernel
def _not_drawn(
    graph: GraphArrays, maps: MappingArrays, state: StateArrays, op: int, axis: int, found: np.ndarray, count: int
) -> int:
    """Of `count` mappings in `found` that fit, leaves the one that not only drawn tiles agree with; returns how many.

    It must slice all operands that are tiled, so that the drawn ones are exchanged and not gathered.
    """
    kept = -1
    for i in range(count):
        if _agrees_with_undrawn(graph, maps, state, op, axis, found[i], found, count):
            if kept >= 0:
                return count
            kept = found[i]
    if kept < 0:
        return count
    for k in range(graph.operand_ptr[op + 1] - graph.operand_ptr[op]):
        value = graph.operands[graph.operand_ptr[op] + k]
        if operand_entry(graph, maps, op, kept, k) < 0 and tiling(graph, maps, state, value, axis) >= 0:
            return count
    found[0] = kept
    return 1


@kernel
def _agrees_with_undrawn(
    graph: GraphArrays,
    maps: MappingArrays,
    state: StateArrays,
    op: int,
    axis: int,
    mapping: int,
    scratch: np.ndarray,
    free: int,
) -> bool:
    """True if a reader of a result, or the tile of an operand that was not drawn, agrees with the mapping."""
    for value in range(graph.result_ptr[op], graph.result_ptr[op + 1]):
        entry = result_entry(graph, maps, op, mapping, value - graph.result_ptr[op])
        if entry < LAST_TILE and slicing(graph, maps, state, value, axis) >> entry & 1:
            return True
    for k in range(graph.operand_ptr[op + 1] - graph.operand_ptr[op]):
        value, entry = graph.operands[graph.operand_ptr[op] + k], operand_entry(graph, maps, op, mapping, k)
        agrees = entry >= 0 and tiling(graph, maps, state, value, axis) == entry
        if agrees and not _is_drawn(graph, maps, state, value, axis, scratch, free):
            return True
    return False


@kernel
def _is_drawn(
    graph: GraphArrays, maps: MappingArrays, state: StateArrays, value: int, axis: int, reached: np.ndarray, free: int
) -> bool:
    """True if the tile of a value comes from ops alone that a tile elsewhere drew, by way of tiles that agree.

    Values that are reached are written to `reached`, from `free` on.
    """
    reached[free] = value
    count, at, drawn = 1, 0, False
    while at < count:
        op = graph.value_op[reached[free + at]]
        mapping = state.mapping[op, axis]
        if state.action[reached[free + at], axis] != 0 or mapping < 0 or graph.is_argument[op]:
            return False
        agrees, elsewhere = False, False
        for k in range(graph.operand_ptr[op + 1] - graph.operand_ptr[op]):
            before = graph.operands[graph.operand_ptr[op] + k]
            dim = tiling(graph, maps, state, before, axis)
            if dim >= 0 and dim == operand_entry(graph, maps, op, mapping, k):
                agrees, known = True, False
                for i in range(count):
                    known = known or reached[free + i] == before
                if not known and count == MOST_FOLLOWED:
                    return False
                if not known:
                    reached[free + count] = before
                    count += 1
            elif dim >= 0:
                elsewhere = True
        drawn = drawn or (elsewhere and not agrees)
        at += 1
    return drawn


@kernel
def _drawn_mapping(
    graph: GraphArrays,
    maps: MappingArrays,
    state: StateArrays,
    sizes: np.ndarray,
    op: int,
    axis: int,
    found: np.ndarray,
) -> int:
    """Writes the first mapping of `op` that a tile of an operand draws into `found`; returns how many: 1 or 0."""
    spec, first_operand = graph.op_spec[op], graph.operand_ptr[op]
    for row in range(maps.first[spec], maps.first[spec + 1]):
        for k in range(graph.operand_ptr[op + 1] - first_operand):
            if maps.draws[maps.start[row] + k] == 0:
                continue
            dim = tiling(graph, maps, state, graph.operands[first_operand + k], axis)
            if dim < 0 or maps.draws[maps.start[row] + k] >> dim & 1 == 0:
                continue
            if divides(graph, maps, state, sizes, op, row - maps.first[spec], axis):
                found[0] = row - maps.first[spec]
                return 1
    return 0


@kernel
def fitting_each(
    graph: GraphArrays,
    maps: MappingArrays,
    state: StateArrays,
    sizes: np.ndarray,
    ops: np.ndarray,
    axis: int,
    found: np.ndarray,
    counts: np.ndarray,
) -> None:
    """`fitting_mappings` of each of `ops` that has no mapping on the axis: counts[i] of them, in the row found[i]."""
    for i in range(ops.shape[0]):
        counts[i] = 0
        if state.mapping[ops[i], axis] < 0:
            counts[i] = fitting_mappings(graph, maps, state, sizes, ops[i], axis, found[i])


@kernel
def propagate(
    graph: GraphArrays,
    maps: MappingArrays,
    state: StateArrays,
    sizes: np.ndarray,
    axis: int,
    stamp: int,
    seeds: np.ndarray,
    heap: np.ndarray,
    queued: np.ndarray,
    found: np.ndarray,
    conflicted: np.ndarray,
) -> int:
    """Spreads `axis` from the ops in `seeds` to a fixed point, always at the earliest op that may change.

    An op is looked at after every earlier op that may change. The order matters only where each of two ops has exactly
    one mapping that fits: the earlier op takes its mapping first. `heap`, `queued` (all False) and `conflicted` are
    scratch of one entry per op, `found` as in `fitting_mappings`. Returns how many ops were left in conflict;
    they are written to `conflicted`, in which an op may appear more than once.
    """
    size = 0
    for op in seeds:
        size = _push(op, state, axis, heap, queued, size)
    return _to_fixed_point(graph, maps, state, sizes, axis, stamp, size, heap, queued, found, conflicted)


@kernel
def _to_fixed_point(
    graph: GraphArrays,
    maps: MappingArrays,
    state: StateArrays,
    sizes: np.ndarray,
    axis: int,
    stamp: int,
    size: int,
    heap: np.ndarray,
    queued: np.ndarray,
    found: np.ndarray,
    conflicted: np.ndarray,
) -> int:
    """`propagate` from the ops in the heap, of which there are `size`."""
    conflicts = 0
    while size > 0:
        op = heap[0]
        size = _pop(heap, size)
        queued[op] = False
        if state.mapping[op, axis] >= 0:
            continue
        count = fitting_mappings(graph, maps, state, sizes, op, axis, found)
        if count > 1 and conflicts < conflicted.shape[0]:
            conflicted[conflicts] = op
            conflicts += 1
        if count != 1:
            continue
        set_mapping(state, op, axis, found[0], stamp)
        for use in range(graph.operand_ptr[op], graph.operand_ptr[op + 1]):
            if operand_entry(graph, maps, op, found[0], use - graph.operand_ptr[op]) < 0:
                continue
            value = graph.operands[use]
            if state.action[value, axis] == 0:
                size = _push(graph.value_op[value], state, axis, heap, queued, size)
        for value in range(graph.result_ptr[op], graph.result_ptr[op + 1]):
            if state.action[value, axis] == ATOMIC:
                continue
            for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
                size = _push(graph.use_op[graph.user[i]], state, axis, heap, queued, size)
    return conflicts


@kernel
def _push(op: int, state: StateArrays, axis: int, heap: np.ndarray, queued: np.ndarray, size: int) -> int:
    """Adds an op that has no mapping yet to the binary heap; returns its new size."""
    if queued[op] or state.mapping[op, axis] >= 0:
        return size
    queued[op] = True
    at = size
    while at > 0 and heap[(at - 1) // 2] > op:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = op
    return size + 1


@kernel
def _pop(heap: np.ndarray, size: int) -> int:
    """Drops the smallest op; returns the heap's new size."""
    size -= 1
    op, at = heap[size], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= op:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = op
    return size


@kernel
def dim_to_tile(
    graph: GraphArrays,
    maps: MappingArrays,
    state: StateArrays,
    sizes: np.ndarray,
    shapes: np.ndarray,
    ranks: np.ndarray,
    value: int,
    dim: int,
    axis: int,
) -> int:
    """`dim` if tile<value, dim, axis> is legal and would decide something, else -1; for dim -1 the first that is.

    A value that is computed, and that all its uses slice on that dim already, is not worth an action.
    """
    if state.action[value, axis] != 0 or tiling(graph, maps, state, value, axis) >= 0:
        return -1
    for d in range(ranks[value]):
        if shapes[value, d] == 0:
            return -1
    first, last = (0, ranks[value]) if dim < 0 else (dim, min(dim + 1, ranks[value]))
    for d in range(first, last):
        if shapes[value, d] % (sizes[axis] * ways(graph, maps, state, sizes, value, d)) != 0:
            continue
        if graph.is_argument[graph.value_op[value]] or slicing(graph, maps, state, value, axis) != 1 << d:
            return d
    return -1


@kernel
def tiled_dims(
    graph: GraphArrays, maps: MappingArrays, state: StateArrays, values: np.ndarray, axis: int, out: np.ndarray
) -> None:
    """out[i]: the dim of values[i] that `axis` tiles, or -1."""
    for i in range(values.shape[0]):
        out[i] = tiling(graph, maps, state, values[i], axis)


@kernel
def propagate_and_tile(
    graph: GraphArrays,
    maps: MappingArrays,
    state: StateArrays,
    sizes: np.ndarray,
    shapes: np.ndarray,
    ranks: np.ndarray,
    seeds: np.ndarray,
    values: np.ndarray,
    dims: np.ndarray,
    axis: int,
    stamp: int,
    heap: np.ndarray,
    queued: np.ndarray,
    found: np.ndarray,
    conflicted: np.ndarray,
    tiled: np.ndarray,
    blocked: np.ndarray,
) -> tuple[int, int, int]:
    """Propagates from `seeds`, then tiles each value that may still be tiled (see `dim_to_tile`), propagating after it.

    Writes (value, dim) into `tiled` and ops left in conflict into `blocked`; returns how many there are of each, and
    the last stamp. `stamp` is the last one used.
    """
    count, stuck = 0, 0
    if seeds.shape[0] > 0:
        stamp += 1
        stuck = propagate(graph, maps, state, sizes, axis, stamp, seeds, heap, queued, found, blocked)
    for i in range(values.shape[0]):
        value = values[i]
        dim = dim_to_tile(graph, maps, state, sizes, shapes, ranks, value, dims[i], axis)
        if dim < 0:
            continue
        stamp += 1
        set_action(state, value, axis, dim + 1, stamp)
        tiled[count, 0], tiled[count, 1] = value, dim
        count += 1
        size = _push(graph.value_op[value], state, axis, heap, queued, 0)
        for k in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
            size = _push(graph.use_op[graph.user[k]], state, axis, heap, queued, size)
        stamp += 1
        conflicts = _to_fixed_point(
            graph, maps, state, sizes, axis, stamp, size, heap, queued, found, conflicted
        )  # fmt: skip
        for k in range(min(conflicts, blocked.shape[0] - stuck)):
            blocked[stuck] = conflicted[k]
            stuck += 1
    return count, stuck, stamp
