"""Where reductions are done: at the cheapest point of the way that they can go while they are pending.

    %p = dot_general       sum{B}, f32[8,64]      4 KiB on the links if it is reduced here, twice the value's bytes
    %t = transpose %p      sum{B}, f32[64,8]      the same
    %s = slice %t          sum{B}, f32[16,8]      1 KiB                                                  <- here
    %e = exponential %s                           not linear: the way ends

A value that is pending on an axis goes on through an op if the op has a passage for it (`core/ops/passages.py`), if
nothing else reads the value and no action is on it, and if what else the op reads is whole or stands for parts: zeros
or NaN for a sum, anything for a maximum. A mask or a scale that is tiled is gathered for that, before it is broadcast.
The ways of several sums join in an op that adds them, so a way is a tree. For each tree and axis, the reduction is done
at the points that move the fewest bytes in all:

    bytes = bytes of the value on one device x runs of its loop x (1 if all its readers slice it, else 2)

(reduce_scatter or all_reduce), and what is gathered on the way to it. Where two choices move the same bytes, the one
that repeats less work is taken (an op that passes parts does not loop over the axis), and if that is the same too, the
later one. So sums are added before they are reduced, a slice comes before the reduction and a broadcast after it, and
the reduction comes after a transpose, which the compiler then makes part of the matmul. A convert to a wider float is
passed where two sums are added behind converts, or where a loop adds up what is converted in each turn; elsewhere it
would double the bytes. An array is reduced before it is scaled by a number, as the sums of a mean are: the kernels that
read it scale it, while an array to reduce would be scaled by a kernel of its own.

A carry passes what the body of its loop adds up from zeros, if that moves fewer bytes: one reduction after the loop. It
passes nothing where the bytes are the same, as they are for rows written one by one into a carried array: the array
would be held whole. Nor does a carry that is tiled, where loops hold parts (`ShardLoops`). So does the result of a
branch that is pending in one branch alone: other branches reduce nothing.

In a loop, a value with several readers is a *fork*: it goes on if all of them pass it on and out of the loop.

    %g = dot_general               f32[1024,4096], gradients of four gates in one product; N turns
    %i = slice %g [:, :1024]       each of the four is added to a carry: four reductions of a quarter each after the
                                   loop, instead of N of the whole

Each way from a fork has an equal part of what reducing there costs, and is not reduced before the loop's end. A fork
that some way does not want to be pending is no longer one, and reductions are followed once more.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.layout import ACTION_MASK, LAST_TILE
from autopart.core.op import MUL, OR, SUM
from autopart.core.table.loop_nests import result_entry, tiling
from autopart.spmd.sums.pending_prices import Given, Ways, goes_on, made_whole, price, reduced_bytes

ANY_CODE = ACTION_MASK
"""In `code`: pending by whatever reduction the loop turns out to add up by."""


@kernel
def pass_reductions(given: Given, ways: Ways, passing: np.ndarray) -> None:
    """Finds out what is pending where, if every reduction is done where it is cheapest; axis by axis.

    passing[op]             uint8; bit a: the op works on parts along axis a, or makes its result whole for such an op
    ways.code[value, axis]  the reduction that may be pending on a value, and that is if its op passes parts; else 0
    """
    ops, axes = given.nests.state.mapping.shape
    for op in range(ops):
        passing[op], ways.assumed[op], ways.taken[op], ways.again[op] = 0, 0, -1, False
    for value in range(ways.loop.shape[0]):
        ways.stays[value], ways.loop[value] = False, -1
    for axis in range(axes):
        if _begins(given, axis):
            if given.passages.carries.shape[0] > 0:
                ways.no_fork[:] = False
            _follow(given, ways, axis)
            while _choose(given, ways, axis, passing):
                for op in range(ops):
                    passing[op] &= ~(1 << axis)
                _follow(given, ways, axis)
        else:
            for value in range(ways.code.shape[0]):
                ways.code[value, axis] = 0


@kernel
def _follow(given: Given, ways: Ways, axis: int) -> None:
    """Finds what may be pending along `axis`: first as if all carries were, until what is assumed of them holds."""
    carries = given.passages.carries.shape[0] > 0
    for op in given.passages.carries:
        held = given.sharded_loops and given.nests.state.mapping[op, axis] >= 0
        ways.assumed[op] = 0 if held else ANY_CODE
    changes = every = True
    while changes:
        _spread(given, ways, axis, carries, every)
        changes, every = carries and _revise(given, ways, axis), False


@kernel
def _begins(given: Given, axis: int) -> bool:
    """True if some op leaves a reduction along `axis` pending."""
    graph, state = given.nests.graph, given.nests.state
    for op in range(state.mapping.shape[0]):
        mapping = state.mapping[op, axis]
        if mapping >= 0:
            for place in range(graph.result_ptr[op + 1] - graph.result_ptr[op]):
                if LAST_TILE < result_entry(given.nests, op, mapping, place) <= OR:
                    return True
    return False


@kernel
def _spread(given: Given, ways: Ways, axis: int, carries: bool, every: bool) -> None:
    """Follows every reduction along `axis` as far as it can go, and prices each point.

    Without carries, nothing is pending before the first op that leaves a reduction. Where something else is assumed of
    some carries, not every op is looked at: these, and whatever reads something new.
    """
    graph, passages, some = given.nests.graph, given.passages, carries
    for i in range(passages.order.shape[0]):
        is_after = passages.order[i] < 0
        op = -1 - passages.order[i] if is_after else passages.order[i]
        value, end = graph.result_ptr[op] + is_after, graph.result_ptr[op + 1]
        if not every:
            if not ways.again[op]:
                continue
            ways.again[op] = passages.is_carry[op] and not is_after
            if value < end:
                _note(ways, axis, value)
        if is_after:
            _after_loop(given, ways, axis, op)
        else:
            some = _pass(given, ways, axis, op, some)
        if not every and value < end and _is_new(ways, axis, value):
            for use in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
                ways.again[graph.use_op[graph.user[use]]] = True


@kernel
def _note(ways: Ways, axis: int, value: int) -> None:
    """Notes what is known of a value, for `_is_new`."""
    ways.noted[0], ways.noted[1], ways.noted[2] = ways.code[value, axis], ways.loop[value], ways.forked[value]
    for i in range(5):
        ways.noted[3 + i] = ways.cost[value, i]


@kernel
def _is_new(ways: Ways, axis: int, value: int) -> bool:
    """True if something that readers of the value look at is another than was noted."""
    if ways.code[value, axis] != ways.noted[0]:
        return True
    new = ways.loop[value] != ways.noted[1] or ways.forked[value] != ways.noted[2]
    for i in range(5):
        new = new or ways.cost[value, i] != ways.noted[3 + i]
    return new and ways.code[value, axis] != 0


@kernel
def _after_loop(given: Given, ways: Ways, axis: int, op: int) -> None:
    """Finds what is pending on the second result of a carry."""
    value = given.nests.graph.result_ptr[op] + 1
    ways.code[value, axis] = ways.assumed[op]
    if ways.assumed[op] != 0:
        price(given, ways, axis, op, value)


@kernel
def _pass(given: Given, ways: Ways, axis: int, op: int, some: bool) -> bool:
    """Finds what is pending on the results of an op, of a carry on the first; True if `some` or one of them is."""
    graph, passages = given.nests.graph, given.passages
    assumed, code, taken, cost, stays, loop = ways.assumed, ways.code, ways.taken, ways.cost, ways.stays, ways.loop
    first, spec = graph.result_ptr[op], graph.op_spec[op]
    taken[op] = -1
    if passages.is_carry[op]:
        code[first, axis], loop[first], stays[first], ways.forked[first] = assumed[op], op, False, False
        cost[first] = 0.0
        return some
    mapping, native = given.nests.state.mapping[op, axis], 0
    for value in range(first, graph.result_ptr[op + 1]):
        native = result_entry(given.nests, op, mapping, value - first) if mapping >= 0 else 0
        native = native if LAST_TILE < native <= OR else 0
        code[value, axis] = native
        if native != 0:
            some = True
            cost[value] = reduced_bytes(given, axis, value)
            cost[value, 1] = cost[value, 3] = cost[value, 4] = 0.0
            stays[value], loop[value], ways.forked[value] = True, -1, False
    if not some or passages.first[spec] == passages.first[spec + 1] or graph.result_ptr[op + 1] != first + 1:
        return some
    if (passages.rounded[spec] and not given.rounded) or (passages.divided[spec] and mapping >= 0):
        return some
    if not _reads_pending(given, ways, axis, op):
        return some
    for passage in range(passages.first[spec], passages.first[spec + 1]):
        found = _fits(given, ways, axis, op, passage)
        if found != 0 and (native == 0 or native == found):
            code[first, axis], taken[op] = found, passage
            price(given, ways, axis, op, first)
            if native != 0:
                stays[first] = True
            break
    return some


@kernel
def _reads_pending(given: Given, ways: Ways, axis: int, op: int) -> bool:
    graph = given.nests.graph
    code = ways.code
    found = False
    for use in range(graph.operand_ptr[op], graph.operand_ptr[op + 1]):
        found = found or code[graph.operands[use], axis] != 0
    return found


@kernel
def _fits(given: Given, ways: Ways, axis: int, op: int, passage: int) -> int:
    """By which reduction the op's result is pending if it takes the passage; 0 if it cannot take it."""
    graph, passages, code = given.nests.graph, given.passages, ways.code
    by, found = passages.code[passage], 0
    for use in range(graph.operand_ptr[op], graph.operand_ptr[op + 1]):
        value = graph.operands[use]
        pending = code[value, axis]
        if passages.parts[passages.start[passage] + use - graph.operand_ptr[op]]:
            if pending == 0:
                if not _stands_for_parts(given, axis, value, by):
                    return 0
                continue
            if pending != by and pending != ANY_CODE:
                return 0
            if not goes_on(given, axis, value) and not _is_fork(given, ways, axis, value):
                return 0
            found = by if found == by or pending == by else ANY_CODE
        elif pending != 0 or (not _is_whole(given, axis, value) and _divides_more(given, axis, op)):
            return 0
    return found


@kernel
def _divides_more(given: Given, axis: int, op: int) -> bool:
    """True if another axis tiles the op's result and not all that it reads. Bytes are compared axis by axis, and a sum
    over both axes would seem to be cheaper there than it is."""
    graph = given.nests.graph
    for other in range(given.nests.sizes.shape[0]):
        if other != axis and tiling(given.nests, graph.result_ptr[op], other) >= 0:
            for use in range(graph.operand_ptr[op], graph.operand_ptr[op + 1]):
                if tiling(given.nests, graph.operands[use], other) < 0:
                    return True
    return False


@kernel
def _is_fork(given: Given, ways: Ways, axis: int, value: int) -> bool:
    """True if several uses in a loop read the value, which may pass it on."""
    graph, passages = given.nests.graph, given.passages
    if passages.runs[passages.scope[graph.value_op[value]]] <= 1 or ways.no_fork[value]:
        return False
    several = graph.user_ptr[value + 1] - graph.user_ptr[value] > 1
    return several and not given.is_output[value] and given.nests.state.action[value, axis] == 0


@kernel
def _stands_for_parts(given: Given, axis: int, value: int, code: int) -> bool:
    """True if the value, the same on every device, reduces to itself: zeros for a sum, anything for a maximum."""
    passages = given.passages
    if code in (SUM, MUL) and passages.identity[value] >> (code - SUM) & 1 == 0:
        return False
    return _is_whole(given, axis, value)


@kernel
def _is_whole(given: Given, axis: int, value: int) -> bool:
    """True if each device has all of the value, or can make it from scalars instead of its tile."""
    graph, passages = given.nests.graph, given.passages
    if tiling(given.nests, value, axis) < 0:
        return True
    if not passages.from_scalars[graph.value_op[value]]:
        return False
    return goes_on(given, axis, value)


@kernel
def _revise(given: Given, ways: Ways, axis: int) -> bool:
    """Takes back what was assumed of carries and does not hold; True if that is anything.

    A carry is pending if what the body makes of it is, by the same reduction, and if it begins with parts.
    """
    graph, state = given.nests.graph, given.nests.state
    assumed, code, loop = ways.assumed, ways.code, ways.loop
    changes, open_ = False, False
    for op in given.passages.carries:
        if assumed[op] == 0:
            continue
        initial, next_ = graph.operands[graph.operand_ptr[op]], graph.operands[graph.operand_ptr[op] + 1]
        inside, found = graph.result_ptr[op], code[next_, axis]
        unused = graph.user_ptr[inside] == graph.user_ptr[inside + 1] and state.action[inside, axis] == 0
        added_up = loop[next_] == op and goes_on(given, axis, inside)
        holds = found != 0 and (unused or added_up) and goes_on(given, axis, next_)
        if holds and found == ANY_CODE:
            open_ = True
        elif holds:
            begins = code[initial, axis]
            holds = assumed[op] == found or assumed[op] == ANY_CODE
            if begins == 0:
                holds = holds and _stands_for_parts(given, axis, initial, found)
            else:
                other = begins != found and begins != ANY_CODE
                holds = holds and not other and goes_on(given, axis, initial)
        revised = found if holds else 0
        if revised != assumed[op]:
            assumed[op], ways.again[op], changes = revised, True, True
    if open_ and not changes:
        for op in given.passages.carries:
            if assumed[op] == ANY_CODE:
                assumed[op], ways.again[op], changes = 0, True, True
    return changes


@kernel
def _choose(given: Given, ways: Ways, axis: int, passing: np.ndarray) -> bool:
    """From the ends of all ways backwards: sets the bit of `axis` in passing[op] of the ops that pass parts.

    True if a fork is to be reduced for some uses, so that it is no fork, and all is to be followed again.
    """
    graph, passages = given.nests.graph, given.passages
    assumed, code, taken, stays, wanted = ways.assumed, ways.code, ways.taken, ways.stays, ways.wanted
    wanted[:] = 0
    for i in range(passages.order.shape[0] - 1, -1, -1):
        op = passages.order[i]
        after_loop = op < 0
        if after_loop:
            op = -1 - op
            value = graph.result_ptr[op] + 1
            able = assumed[op] != 0
        else:
            value = graph.result_ptr[op]
            able = taken[op] >= 0
        if not able or not (wanted[value] > 0 or stays[value]):
            continue
        passing[op] |= 1 << axis
        for use in range(graph.operand_ptr[op], graph.operand_ptr[op + 1]):
            operand = graph.operands[use]
            if code[operand, axis] != 0:
                wanted[operand] += 1
            else:
                source = made_whole(given, axis, operand)
                while operand != source and tiling(given.nests, operand, axis) >= 0:
                    maker = graph.value_op[operand]
                    passing[maker] |= 1 << axis
                    operand = source if source < 0 else graph.operands[graph.operand_ptr[maker]]
    again = False
    for value in range(wanted.shape[0] if passages.carries.shape[0] > 0 else 0):
        if 0 < wanted[value] < graph.user_ptr[value + 1] - graph.user_ptr[value]:
            ways.no_fork[value] = again = True
    return again
