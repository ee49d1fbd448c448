"""Lines between colours of ops: which member of one stands beside, or reads, which member of the other.

    a   a0  a1  a2  a3          b_i reads a_i       turn  1, offset 0
    b   b0  b1  b2  b3          c_i reads a_3-i     turn -1, offset 3
    c   c0  c1  c2  c3

From one colour whose layers are known, the lines lead to the layers of all colours that stand in line with it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.program import Program


class Lines(NamedTuple):
    """Lines between colours, int64; by number of the line unless said otherwise. Make them with `lines_between`.

    pointer   lines of colour g to what it reads, and to what reads it: `pointer[g]` to `pointer[g+1]`
    beside    by colour: the line to what follows in the program, or -1
    other     the colour that member `turn * i + offset` has; member i has the line's own
    """

    pointer: np.ndarray
    beside: np.ndarray
    other: np.ndarray
    turn: np.ndarray
    offset: np.ndarray


class Members(NamedTuple):
    """Ops by colour, int64: those of colour g are `ops[pointer[g]:pointer[g+1]]`, in program order.

    group[op], rank[op]   the number of the op's colour; how many ops of that colour stand before it
    """

    ops: np.ndarray
    pointer: np.ndarray
    group: np.ndarray
    rank: np.ndarray


class Met(NamedTuple):
    """What the members of a colour meet at one place each, int64[colours]; between two looks all of `times` is 0.

    seen     the first so many are the colours that were met
    times    how often each was met
    first    the member that met it first, and the rank that it met: `first[g, 0]`, `first[g, 1]`
    last     the same of the last
    along    True as long as ranks grow by as much as the members' own
    against  the same where they fall
    """

    seen: np.ndarray
    times: np.ndarray
    first: np.ndarray
    last: np.ndarray
    along: np.ndarray
    against: np.ndarray


class Pairs(NamedTuple):
    """Colours in line, int64[pairs]: member i of `one` stands with member `turn * i + offset` of `other`."""

    one: np.ndarray
    other: np.ndarray
    turn: np.ndarray
    offset: np.ndarray


class Followed(NamedTuple):
    """Colours in the order in which they were found, and their layers.

    known    int64[1]: how many were found
    order    int64[colours]: the first so many are those
    phase    int64[colours]: beside `order`; equal for those that follow each other in the program
    number   int32[colours]: the place of a colour in `order`, or -1
    start    int64[colours]: the layer of its member 0
    turn     int64[colours]: 1 or -1 a member
    """

    known: np.ndarray
    order: np.ndarray
    phase: np.ndarray
    number: np.ndarray
    start: np.ndarray
    turn: np.ndarray


def lines_between(program: Program, members: Members, least: int) -> Lines:
    """The lines between colours of at least so many ops: of two that follow a colour in the program the last counts."""
    many = np.diff(members.pointer) >= least
    ops = np.flatnonzero(many[members.group])
    after = np.full(len(members.ops), -1)
    after[ops[:-1]] = ops[1:]
    beside = _in_line(members, np.arange(len(members.ops) + 1), after, many)
    reads = _in_line(members, program.operand_ptr, program.value_op[program.operands], many)
    return _sorted(len(many), beside, reads)


def _sorted(colours: int, beside: Pairs, reads: Pairs) -> Lines:
    """Lines by colour, those of `reads` from both sides."""
    back = Pairs(reads.other, reads.one, reads.turn, -reads.turn * reads.offset)
    one, other, turn, offset = (np.stack(each, axis=1).reshape(-1) for each in zip(reads, back, strict=True))
    order = np.argsort(one, kind="stable")
    after = np.full(colours, -1)
    after[beside.one] = len(order) + np.arange(len(beside.one))
    return Lines(
        np.concatenate([[0], np.cumsum(np.bincount(one, minlength=colours))]),
        after,
        np.append(other[order], beside.other),
        np.append(turn[order], beside.turn),
        np.append(offset[order], beside.offset),
    )


def _in_line(members: Members, pointer: np.ndarray, met: np.ndarray, many: np.ndarray) -> Pairs:
    """The colours that agree throughout in the ops that their members meet; op o meets `met[pointer[o]:pointer[o+1]]`.

    Of either colour, which has `many` members, two may have no partner. Pairs come by colour, place, and other colour.
    """
    colours = len(many)
    scratch = Met(
        np.zeros(colours, np.int64), np.zeros(colours, np.int64), np.zeros((colours, 2), np.int64),
        np.zeros((colours, 2), np.int64), np.zeros(colours, np.bool_), np.zeros(colours, np.bool_),
    )  # fmt: skip
    pairs = Pairs(*np.empty((4, len(met)), np.int64))
    count = _find_pairs(members, pointer.astype(np.int64), met.astype(np.int64), many, scratch, pairs)
    return Pairs(*(each[:count] for each in pairs))


@kernel
def _find_pairs(
    members: Members, pointer: np.ndarray, met: np.ndarray, many: np.ndarray, scratch: Met, pairs: Pairs
) -> int:
    """Fills `pairs`; returns how many there are."""
    count = 0
    for one in range(many.shape[0]):
        if many[one]:
            op = members.ops[members.pointer[one]]
            for place in range(pointer[op + 1] - pointer[op]):
                seen = _meet(members, pointer, met, many, scratch, one, place)
                before = count
                for n in range(seen):
                    other = scratch.seen[n]
                    if _agree(members, scratch, one, other):
                        _add(pairs, before, count, one, other, scratch)
                        count += 1
                    scratch.times[other] = 0
    return count


@kernel
def _meet(
    members: Members, pointer: np.ndarray, met: np.ndarray, many: np.ndarray, scratch: Met, one: int, place: int
) -> int:
    """Looks at what each member of a colour meets at a place; returns how many colours those are."""
    seen, begin = 0, members.pointer[one]
    for i in range(members.pointer[one + 1] - begin):
        op = members.ops[begin + i]
        other_op = met[pointer[op] + place]
        if other_op < 0 or not many[members.group[other_op]]:
            continue
        other, j = members.group[other_op], members.rank[other_op]
        if scratch.times[other] == 0:
            scratch.seen[seen] = other
            scratch.first[other, 0], scratch.first[other, 1] = i, j
            scratch.along[other] = scratch.against[other] = True
            seen += 1
        else:
            step, taken = i - scratch.last[other, 0], j - scratch.last[other, 1]
            scratch.along[other] = scratch.along[other] and taken == step
            scratch.against[other] = scratch.against[other] and taken == -step
        scratch.last[other, 0], scratch.last[other, 1] = i, j
        scratch.times[other] += 1
    return seen


@kernel
def _agree(members: Members, scratch: Met, one: int, other: int) -> bool:
    """True if what a colour has met of another is a line."""
    sizes = members.pointer[one + 1] - members.pointer[one], members.pointer[other + 1] - members.pointer[other]
    enough = scratch.times[other] >= max(min(sizes[0], sizes[1]) - 2, 3)
    return enough and (scratch.along[other] or scratch.against[other])


@kernel
def _add(pairs: Pairs, before: int, count: int, one: int, other: int, scratch: Met) -> None:
    """Adds a pair, in order of the other colour among those from `before` on."""
    n = count
    while n > before and pairs.other[n - 1] > other:
        for each in pairs:
            each[n] = each[n - 1]
        n -= 1
    turn = 1 if scratch.along[other] else -1
    pairs.one[n], pairs.other[n], pairs.turn[n] = one, other, turn
    pairs.offset[n] = scratch.first[other, 1] - turn * scratch.first[other, 0]


def followed(lines: Lines, begin: int) -> Followed:
    """The colours that lines lead to from `begin`, whose member i belongs to layer i."""
    colours = len(lines.beside)
    order, phase, start, turn = np.zeros((4, colours), np.int64)
    found = Followed(np.zeros(1, np.int64), order, phase, np.full(colours, -1, np.int32), start, turn)
    turn[begin] = 1
    _follow(lines, found, begin)
    known = int(found.known[0])
    return found._replace(order=order[:known], phase=phase[:known])


@kernel
def _follow(lines: Lines, found: Followed, begin: int) -> None:
    """Fills `found`, where the layers of `begin` are known."""
    _along(lines, found, begin, 0)
    at, phase = 0, 0
    while at < found.known[0]:
        one = found.order[at]
        for line in range(lines.pointer[one], lines.pointer[one + 1]):
            if found.number[lines.other[line]] < 0:
                phase += 1
                _through(lines, found, one, line)
                _along(lines, found, lines.other[line], phase)
        at += 1


@kernel
def _along(lines: Lines, found: Followed, one: int, phase: int) -> None:
    """Adds a colour whose layers are known, and what comes after it in the program up to what is found."""
    while found.number[one] < 0:
        found.number[one] = found.known[0]
        found.order[found.known[0]], found.phase[found.known[0]] = one, phase
        found.known[0] += 1
        line = lines.beside[one]
        if line >= 0 and found.number[lines.other[line]] < 0:
            _through(lines, found, one, line)
            one = int(lines.other[line])


@kernel
def _through(lines: Lines, found: Followed, one: int, line: int) -> None:
    """Finds the layers of the colour at the end of a line of `one`."""
    other, turn = lines.other[line], found.turn[one] * lines.turn[line]
    found.start[other] = found.start[one] - turn * lines.offset[line]
    found.turn[other] = turn
