"""From loop nests to layouts: what each op produces, what each use needs, and where a value settles in between.

    %g = dot_general    loop "B" [#sum]            native    sum{B}
    %m = multiply %g    loop "B" [#tile<0>]        required  [{B},{}]
                                                   settled   [{B},{}]        one reduce_scatter, shared by all uses

native    the layout in which the op leaves its result
settled   the layout in which the value waits for its uses: explicit tilings and atomics applied, every pending
          reduction resolved once (to a tile if all uses slice, that of most uses, else whole). An atomic value that
          all uses slice is not made whole: an all_gather and a slice would be an all_to_all
required  the layout in which a use reads it

An op that passes parts (`pending.py`) reads and leaves what is pending as it is.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.layout import LAST_TILE, action_of, pack
from autopart.core.table.loop_nests import ATOMIC, GraphArrays, LoopNests, decided_at, mapping_row, tiling


@kernel
def layouts(
    nests: LoopNests,
    shapes: np.ndarray,
    is_output: np.ndarray,
    passing: np.ndarray,
    code: np.ndarray,
    native: np.ndarray,
    settled: np.ndarray,
    required: np.ndarray,
    scratch: np.ndarray,
) -> None:
    """Fills native[value], settled[value] and required[use] (uint64 layouts); `passing` and `code`: see `pending.py`.

    `scratch` is int64[3, axes].
    """
    graph, maps, state = nests.graph, nests.maps, nests.state
    ops, axes = state.mapping.shape
    actions, stamps, rows = scratch[0], scratch[1], scratch[2]
    for op in range(ops):
        first, end = graph.operand_ptr[op], graph.operand_ptr[op + 1]
        if graph.is_argument[op]:
            value = graph.result_ptr[op]
            for axis in range(axes):
                actions[axis] = tiling(nests, value, axis) + 1
                stamps[axis] = decided_at(state, op, value, axis)
            native[value] = settled[value] = pack(actions, stamps)
            for use in range(first, end):
                required[use] = settled[value]
            continue
        loops = passing[op] != 0
        for axis in range(axes):
            mapping = state.mapping[op, axis]
            stamps[axis], rows[axis] = state.op_stamp[op, axis], -1
            if mapping >= 0:
                loops, rows[axis] = True, mapping_row(nests, op, mapping)
        for use in range(first, end):
            required[use] = 0
            if loops:
                for axis in range(axes):
                    actions[axis] = 0
                    if passing[op] >> axis & 1:
                        if code[graph.result_ptr[op], axis] != 0:
                            actions[axis] = code[graph.operands[use], axis]
                    elif rows[axis] >= 0:
                        actions[axis] = maps.entries[rows[axis] + use - first] + 1
                required[use] = pack(actions, stamps)
        for value in range(graph.result_ptr[op], graph.result_ptr[op + 1]):
            native[value] = 0
            if loops:
                for axis in range(axes):
                    actions[axis] = 0
                    if passing[op] >> axis & 1:
                        actions[axis] = code[value, axis]
                    elif rows[axis] >= 0:
                        entry = maps.entries[rows[axis] + end - first + value - graph.result_ptr[op]]
                        if entry < LAST_TILE:
                            actions[axis] = entry + 1
                        elif entry <= LAST_TILE + 6:
                            actions[axis] = entry
                native[value] = pack(actions, stamps)
    for value in range(native.shape[0]):
        if not graph.is_argument[graph.value_op[value]]:
            settled[value] = _settle(nests, shapes, is_output, native, required, value, actions, stamps)


@kernel
def layouts_hash(native: np.ndarray, settled: np.ndarray, required: np.ndarray) -> np.uint64:
    """64 bits that identify all layouts of a program, the order of the axes on a dim included."""
    h = np.uint64(0xCBF29CE484222325)
    for layout in (native, settled, required):
        for i in range(layout.shape[0]):
            h = (h ^ layout[i]) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(29)
    return h


@kernel
def loops_hash(mapping: np.ndarray, passing: np.ndarray, stretch: np.ndarray) -> np.uint64:
    """64 bits that identify what ops loop over, on which axes they pass parts on, and the stretches that uses read."""
    h = np.uint64(0)
    for op in range(mapping.shape[0]):
        loops = np.uint64(passing[op])
        for axis in range(mapping.shape[1]):
            loops = loops * np.uint64(65537) + np.uint64(mapping[op, axis] + 1)
        h += _at(loops, op)
    for use in range(stretch.shape[0]):
        if stretch[use] != 0:
            h ^= _at(np.uint64(stretch[use]), use)
    return h


@kernel
def _at(what: np.uint64, place: int) -> np.uint64:
    """64 bits that identify what is at a place."""
    h = (what + np.uint64(place) * np.uint64(0xD1B54A32D192ED03)) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ h >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
    return h ^ h >> np.uint64(32)


@kernel
def _settle(
    nests: LoopNests,
    shapes: np.ndarray,
    is_output: np.ndarray,
    native: np.ndarray,
    required: np.ndarray,
    value: int,
    actions: np.ndarray,
    stamps: np.ndarray,
) -> np.uint64:
    graph, state, sizes = nests.graph, nests.state, nests.sizes
    axes = sizes.shape[0]
    op = graph.value_op[value]
    as_it_is = True
    for axis in range(axes):
        as_it_is &= state.action[value, axis] == 0 and action_of(native[value], axis) <= LAST_TILE
    if as_it_is:
        return native[value]
    for axis in range(axes):
        stamps[axis] = decided_at(state, op, value, axis)
        left = action_of(native[value], axis)
        if state.action[value, axis] == ATOMIC:
            kept = not _is_sliced(graph, is_output, required, value, axis)
            actions[axis] = 0 if kept else left
            stamps[axis] = state.op_stamp[op, axis]
        elif left > LAST_TILE and _is_passed_on(graph, required, value, axis, left):
            actions[axis] = left
        elif left <= LAST_TILE or tiling(nests, value, axis) >= 0:
            actions[axis] = tiling(nests, value, axis) + 1
        else:
            actions[axis] = left
    for axis in range(axes):
        is_kept_tile = state.action[value, axis] == ATOMIC and 0 < actions[axis] <= LAST_TILE
        if is_kept_tile and shapes[value, actions[axis] - 1] % _parts(sizes, actions, actions[axis]):
            actions[axis] = 0
    for axis in range(axes):
        if actions[axis] > LAST_TILE:
            actions[axis] = _resolved(graph, sizes, shapes, is_output, required, value, axis, actions)
            if 0 < actions[axis] <= LAST_TILE:
                use = _first_to_read(graph, required, value, axis, actions[axis])
                stamps[axis] = state.op_stamp[graph.use_op[use], axis]
    return pack(actions, stamps)


@kernel
def _parts(sizes: np.ndarray, actions: np.ndarray, tile: int) -> int:
    """Into how many parts the axes that tile this dim cut it."""
    parts = 1
    for axis in range(actions.shape[0]):
        if actions[axis] == tile:
            parts *= sizes[axis]
    return parts


@kernel
def _is_sliced(graph: GraphArrays, is_output: np.ndarray, required: np.ndarray, value: int, axis: int) -> bool:
    """True if no reader of the value needs it whole on the axis: each takes a tile, straight from where it was made."""
    first, last = graph.user_ptr[value], graph.user_ptr[value + 1]
    sliced = first < last and not is_output[value]
    for i in range(first, last):
        sliced = sliced and 0 < action_of(required[graph.user[i]], axis) <= LAST_TILE
    return sliced


@kernel
def _is_passed_on(graph: GraphArrays, required: np.ndarray, value: int, axis: int, code: int) -> bool:
    """True if the ops of all uses pass what is pending: it is reduced after that, into whatever tile."""
    first, last = graph.user_ptr[value], graph.user_ptr[value + 1]
    passed_on = first < last
    for i in range(first, last):
        passed_on = passed_on and action_of(required[graph.user[i]], axis) == code
    return passed_on


@kernel
def _first_to_read(graph: GraphArrays, required: np.ndarray, value: int, axis: int, action: int) -> int:
    """The first use of the value that reads it so on the axis."""
    for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
        if action_of(required[graph.user[i]], axis) == action:
            return graph.user[i]
    return -1


@kernel
def _resolved(
    graph: GraphArrays,
    sizes: np.ndarray,
    shapes: np.ndarray,
    is_output: np.ndarray,
    required: np.ndarray,
    value: int,
    axis: int,
    actions: np.ndarray,
) -> int:
    """What the reduction pending on `axis` becomes: still pending for an op that passes it, a tile, or whole.

    Of several tiles that are read, that of most uses: an exchange of it for another moves less than to reduce it whole.
    """
    first, last = graph.user_ptr[value], graph.user_ptr[value + 1]
    if is_output[value]:
        return 0
    if first == last:
        return actions[axis]
    wanted, most = 0, 0
    for i in range(first, last):
        read, alike = action_of(required[graph.user[i]], axis), 0
        for j in range(first, last):
            alike += action_of(required[graph.user[j]], axis) == read
        if alike < last - first and not 0 < read <= LAST_TILE:
            return 0
        if alike > most:
            wanted, most = read, alike
        if alike == last - first:
            break
    if 0 < wanted <= LAST_TILE:
        ways = sizes[axis]
        for other in range(sizes.shape[0]):
            if other != axis and actions[other] == wanted:
                ways *= sizes[other]
        if shapes[value, wanted - 1] % ways != 0:
            return 0
    return wanted
