"""Equal blocks that a program has one after the other: layers that nobody wrote as a loop.

    e  n a o +  n m +  n a o +  n m +  n a o +  n m +  l      ops of the program itself, without constants
       |- block 0 ---| |- block 1 ---| |- block 2 ---|        op j and op j + period are of one kind

    operand of op j            of op j + period
    what op i makes            what op i + period makes       inside the block, or from the block before
    %x                         %x                             the same for all blocks
    what stands before all     other such, of its type        one for each block: its parameters

Slices of what stands before all may take other places of it in each block: they are such parameters too.
The first block may lack sums with what the blocks before have added up: there are none before it. It has what it adds
in the place of such a sum. The last block may lack what nobody would read: gradients of data.

Blocks begin where least flows from one to the next. What nothing flows between, such as updates of parameters, is no
row of blocks, nor is what has no product. The search is linear in the program for each of a few periods.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

from autopart.core.control_flow import Loop, statements
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import work
from autopart.core.program import Program
from autopart.core.ragged import entries_of
from autopart.core.repeats.periods import periods
from autopart.core.repeats.repeated_layers import like_specs

LEAST_SHARE = 0.02
"""Share of a program's products that equal blocks have at least."""

MOST = 0.5
"""Share of them that all rows have: else layers are loops already, or there are none."""

ALMOST = 0.8
"""Of rows with about as many products, this share of the most or more, those of the shortest blocks are taken."""

ABOUT = 1.05
"""Places through which up to so many times the least flows are as narrow."""

MOST_BETWEEN = 4
"""Ops that may stand between two of the last block, and are none of its own."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Equal blocks: int32 `ops[b, o]` is the o-th op of block b, constants left out, or -1 if it lacks that one."""

    ops: np.ndarray = field(repr=False)

    @property
    def template(self) -> int:
        """The number of a block that lacks nothing."""
        return int((self.ops >= 0).all(1).argmax())

    @property
    def start(self) -> int:
        """The first op of all."""
        return int(self.ops[0][self.ops[0] >= 0].min())

    @property
    def end(self) -> int:
        """The op behind the last."""
        return int(self.ops[-1].max()) + 1


def repeated_blocks(program: Program) -> list[Blocks]:
    """All rows of equal blocks of the program itself, in order; else of the loop in it that has most of the products.

    That is a loop over microbatches with layers one by one. What it carries stands before all that is in it.
    """
    start, end, finder = 0, program.op_count, _Finder(program, 0, program.op_count)
    found, all_ = finder.found(finder.products), finder.products
    while not found:
        loops = [s.body.scope for s in statements(program, start, end) if isinstance(s, Loop)]
        inside = [_Finder(program, scope.start, scope.end) for scope in loops]
        finder = max(inside, key=lambda one: one.products, default=finder)
        if not inside or finder.products < MOST * all_:
            return []
        start, end, found = finder.start, finder.end, finder.found(all_)
    return found


class _Finder:
    """Places are numbers of the ops of a scope, `[start, end)`, that are neither arguments nor constants, in order."""

    def __init__(self, program: Program, start: int, end: int):
        self._program, self.start, self.end = program, start, end
        counts = np.array([spec.kind != "argument" and not is_made_of_nothing(spec) for spec in program.specs])[
            program.op_spec
        ]
        self._ops = start + np.flatnonzero(counts[start:end])
        self._place = np.full(program.op_count + 1, -1)
        self._place[self._ops] = np.arange(len(self._ops))
        self._word = self._words()
        makes = [work(traits_of(spec), spec) for spec in program.specs]
        flop = np.array([0.0 if w is None else w.matrix_flop for w in makes])[program.op_spec]
        self._flop = np.append(0.0, np.cumsum((flop * program.scope_trips[program.op_scope])[self._ops]))
        self.products = float(self._flop[-1])
        starts = [s if isinstance(s, int) else s.op for s in statements(program, start, end)]
        self._may_begin = np.zeros(program.op_count + 1, np.bool_)
        self._may_begin[starts] = True
        for barrier in program.barriers:
            self._may_begin[barrier.start + 1 : barrier.stop] = False

    def _words(self) -> np.ndarray:
        """uint64: equal for ops that do the same, in loops that turn as often."""
        program, known = self._program, dict[tuple[int, ...], int]()
        like, scopes = like_specs(program)[program.op_spec], program.scopes
        for n, scope in enumerate(scopes):
            length = 0 if n == 0 else scope.end - scope.start
            known[n, 0] = hash((scope.kind, scope.trips, length)) & 0x7FFFFFFF
        of_scope = np.array([known[n, 0] for n in range(len(scopes))], np.uint64)
        return (like.astype(np.uint64) * np.uint64(2**31) + of_scope[program.op_scope])[self._ops]

    def found(self, products: float) -> list[Blocks]:
        """See `repeated_blocks`; shares are of so many products."""
        least = LEAST_SHARE * products
        found = (rows for period in periods(self._word, np.diff(self._flop) > 0) for rows in self._rows(period))
        rows, taken = [each for each in found if self._products(each[0]) > least], list[list[Blocks]]()
        while rows:
            most = max(self._products(one) for one, *_ in rows)
            many = [each for each in rows if self._products(each[0]) >= ALMOST * most]
            best = min(many, key=lambda each: (each[0].ops.shape[1], each[0].start))
            taken.append(best)
            rows = [e for e in rows if e[0].end <= best[0].start or e[0].start >= best[0].end]
        if sum(self._products(one) for one, *_ in taken) < MOST * products:
            return []
        block_of, chosen = np.full(self._program.op_count, -1), list[Blocks]()
        for each in sorted(taken, key=lambda each: each[0].start):
            chosen.append(min(each, key=lambda row: self._from_others(row, block_of)))
            ops = chosen[-1].ops
            block_of[ops] = block_of.max() + 1 + np.arange(len(ops))[:, None]
        return self._in_step(chosen)

    def _in_step(self, rows: list[Blocks]) -> list[Blocks]:
        """Rows of which one goes over the layers of another, with as many blocks as the one that has fewest.

        Layers of a period may be alike in their gradients: those of a mask are, wherever it is.
        """
        program = self._program
        for late, early in combinations(range(len(rows) - 1, -1, -1), 2):
            block = np.full(program.op_count + 1, -1)
            block[rows[early].ops] = np.arange(len(rows[early].ops))[:, None]
            block[-1] = -1
            ends = [entries_of(program.operand_ptr, ops[ops >= 0]) for ops in rows[late].ops[[0, -1]]]
            one, other = (set(block[program.value_op[program.operands[of]]].tolist()) - {-1} for of in ends)
            few, many = sorted((late, early), key=lambda n: len(rows[n].ops))
            times, left = divmod(len(rows[many].ops), len(rows[few].ops))
            if one and other and one.isdisjoint(other) and times > 1 and not left:
                rows[many] = Blocks(rows[many].ops.reshape(len(rows[few].ops), -1))
                return self._in_step(rows)
        return rows

    def _from_others(self, row: Blocks, block_of: np.ndarray) -> int:
        """How much of what the second block reads of earlier rows is of others than that of which it reads most."""
        program, ops = self._program, row.ops[1][row.ops[1] >= 0]
        read = np.unique(program.operands[entries_of(program.operand_ptr, ops)])
        blocks = block_of[program.value_op[read]]
        counts = np.bincount(blocks[blocks >= 0])
        return int(counts.sum() - counts.max(initial=0))

    def _products(self, row: Blocks) -> float:
        return float(self._flop[self._place[row.end - 1] + 1] - self._flop[self._place[row.start]])

    def _rows(self, period: int) -> Iterator[list[Blocks]]:
        """The rows of blocks of a length, each cut where least flows, which may be at several places."""
        for start, stop in _stretches(self._word[:-period] == self._word[period:], 0, period):
            yield from self._alike(start, stop, period)

    def _alike(self, start: int, stop: int, period: int) -> Iterator[list[Blocks]]:
        """The same of places from `start` that are like those a period later, up to `stop`."""
        made = self._shared(start, stop, period)
        stretches = (
            _stretches(self._corresponds(start, stop, period), start, period)
            if made < 0
            else [(a, b) for a, b in ((start, made), (made + 1, stop)) if b - a >= period]
        )
        if stretches == [(start, stop)]:
            if rows := self._narrowest(start, stop + period, period):
                yield rows
            return
        for begin, end in stretches:
            yield from self._alike(begin, end, period)

    def _cut(self, start: int, end: int, period: int) -> Blocks:
        """A row, with a first block that lacks sums if one stands before the others."""
        blocks = self._ops[start : end - (end - start) % period].reshape(-1, period)
        first = _Lacking(self._program, self._ops[:start], self._place, self._word, blocks).found()
        edges = ([] if first is None else [first]), self._last(blocks)
        return Blocks(np.stack([*edges[0], *blocks, *edges[1]]).astype(np.int32))

    def _last(self, blocks: np.ndarray) -> list[np.ndarray]:
        """int[period]: the ops behind a row, as far as they are those of one more block; none where most are not."""
        program, last, at = self._program, blocks[-1], int(self._place[blocks[-1, -1]]) + 1
        results = [entries_of(program.result_ptr, block).tolist() for block in blocks[-2:]]
        after, inside, found = dict(zip(*results, strict=True)), set(results[1]), np.full(len(last), -1)
        for number, op in enumerate(last.tolist()):
            word, read = self._word[self._place[op]], program.operands_of(op).tolist()
            for place in range(at, min(at + MOST_BETWEEN, len(self._ops))):
                here = int(self._ops[place])
                reads = zip(read, program.operands_of(here).tolist(), strict=False)
                if self._word[place] == word and all(
                    after[v] == e if v in after else v not in inside or program.value_op[v] > op for v, e in reads
                ):
                    found[number], at = here, place + 1
                    after |= zip(program.results_of(op), program.results_of(here), strict=True)
                    break
        lacks = entries_of(program.result_ptr, blocks[-2][found < 0])
        pointer, uses = program.users
        reads = program.use_op[uses[entries_of(pointer, lacks)]]
        behind = bool((reads > last.max()).any()) or not program.output_place.keys().isdisjoint(lacks.tolist())
        return [] if behind or 2 * np.count_nonzero(found >= 0) <= len(found) else [found]

    def _shared(self, start: int, stop: int, period: int) -> int:
        """The last place from `start` on that makes what all blocks read, -1 where none does."""
        program = self._program
        one, other = (
            program.operands[entries_of(program.operand_ptr, self._ops[at : at + stop - start])]
            for at in (start, start + period)
        )
        return max((at for at in self._place[program.value_op[one[one == other]]].tolist() if at >= start), default=-1)

    def _corresponds(self, start: int, stop: int, period: int) -> np.ndarray:
        """bool[stop - start]: what each place reads corresponds to what the one a period later reads."""
        program, here = self._program, self._ops[start:stop]
        first, then = (
            entries_of(program.operand_ptr, ops) for ops in (here, self._ops[start + period : stop + period])
        )
        one, other = program.operands[first], program.operands[then]
        made, made_then = self._place[program.value_op[one]], self._place[program.value_op[other]]
        result = program.result_ptr[program.value_op[one]] - one == program.result_ptr[program.value_op[other]] - other
        inside, inside_then = made >= start, made_then >= start
        is_first = self._place[program.use_op[first]] < start + period
        legal = np.where(
            inside,
            (made_then == made + period) & result,
            np.where(inside_then, is_first & (made_then < start + period), True)
            & (program.value_type_id[one] == program.value_type_id[other]),
        )
        other_spec = program.op_spec[here] != program.op_spec[self._ops[start + period : stop + period]]
        legal &= ~(np.repeat(other_spec, np.diff(program.operand_ptr)[here]) & (inside | inside_then))
        return np.bincount(program.use_op[first][~legal], minlength=program.op_count)[here] == 0

    def _narrowest(self, start: int, end: int, period: int) -> list[Blocks]:
        """The rows among repeating places, of as many blocks as begin where least flows; none where nothing flows."""
        program = self._program
        uses = entries_of(program.operand_ptr, self._ops[start:end])
        values, reader = program.operands[uses], self._place[program.use_op[uses]] - start
        made = self._place[program.value_op[values]] - start
        inside = (made >= 0) & (made < reader)
        last = np.zeros(program.value_count, np.int64)
        np.maximum.at(last, values[inside], reader[inside])
        values = np.unique(values[inside])
        made = self._place[program.value_op[values]] - start
        bytes_ = (program.value_elements * program.element_bytes)[values]
        change = np.zeros(end - start + 1)
        np.add.at(change, made + 1, bytes_)
        np.add.at(change, last[values] + 1, -bytes_)
        flow, count = np.cumsum(change), (end - start) // period
        if flow[period : (count - 1) * period + 1].min(initial=np.inf) <= 0:
            return []
        wide = flow[period : count * period].reshape(count - 1, period).max(axis=0)
        wide[~self._may_begin[self._ops[start : start + period]]] = np.inf
        narrow = np.flatnonzero(np.isfinite(wide) & (wide <= ABOUT * wide.min()))
        rows = [self._cut(start + int(at), end, period) for at in narrow if end - start - at >= 2 * period]
        whole = [(len(row.ops), -np.count_nonzero(row.ops < 0)) for row in rows]
        return [row for row, has in zip(rows, whole, strict=True) if has == max(whole)]


def is_made_of_nothing(spec: OpSpec) -> bool:
    """Whether an op is a constant or counts, so that a program has one of its own for each reader."""
    return spec.kind == "constant" or spec.kind == "iota"


def same_value(program: Program, *values: int) -> bool:
    """Whether some values are one, or one constant that is written more than once."""
    ops = program.value_op[[*values]]
    constant = is_made_of_nothing(program.spec(int(ops[0])))
    return len(set(values)) == 1 or (constant and len(set(program.op_spec[ops].tolist())) == 1)


class _Lacking:
    """The block before the first of a row, found from its end: what an op reads, what corresponds to it reads too.

    meant   value of the second block -> the value of the block before the first that takes its place
    """

    def __init__(self, program: Program, ops: np.ndarray, place: np.ndarray, word: np.ndarray, blocks: np.ndarray):
        self._program, self._ops, self._place, self._word = program, ops, place, word
        self._first, self._second = blocks[0], blocks[1]
        self._of_first = dict(zip(*(entries_of(program.result_ptr, row).tolist() for row in blocks[:2]), strict=True))
        self._inside = set(self._of_first.values())
        self.meant = dict[int, int]()

    def found(self) -> np.ndarray | None:
        """int[period]: its ops, -1 for sums that it lacks; None where it lacks anything else."""
        program, first, found = self._program, len(self._ops), np.full(len(self._second), -1)
        for one, other in zip(self._first.tolist(), self._second.tolist(), strict=True):
            for early, late in zip(program.operands_of(one).tolist(), program.operands_of(other).tolist(), strict=True):
                if late in self._of_first and not self._means(self._of_first[late], early):
                    return None
        for at, op in reversed([*enumerate(self._second.tolist())]):
            values = [self.meant[v] for v in program.results_of(op) if v in self.meant]
            place = int(self._place[program.value_op[values[0]]]) if values else self._before(first, op)
            if place < 0 or place >= len(self._ops) or self._word[place] != self._word[self._place[op]]:
                if program.spec(op).kind != "add" or not values or not self._passes(op, values[0]):
                    return None
                continue
            found[at], first = self._ops[place], min(first, place)
            if not self._reads_alike(op, int(found[at])):
                return None
        members = found[found >= 0]
        return found if len(members) == len(set(members.tolist())) and len(members) else None

    def _before(self, first: int, op: int) -> int:
        """The last place before those that are taken with an op of the same kind, within a block's length."""
        length = len(self._second)
        alike = np.flatnonzero(self._word[max(0, first - length) : first] == self._word[self._place[op]])
        return max(0, first - length) + int(alike[-1]) if len(alike) else -1

    def _means(self, value: int, early: int) -> bool:
        return self.meant.setdefault(value, early) == early

    def _passes(self, op: int, early: int) -> bool:
        """A sum that is not there is what it adds to the sum of the block before."""
        added = [v for v in self._program.operands_of(op).tolist() if v not in self._of_first]
        if len(added) != 1:
            return False
        return self._means(added[0], early) if added[0] in self._inside else same_value(self._program, added[0], early)

    def _reads_alike(self, op: int, early: int) -> bool:
        reads = zip(self._program.operands_of(op).tolist(), self._program.operands_of(early).tolist(), strict=True)
        return all(self._means(v, e) if v in self._inside else v == e or v not in self._shared for v, e in reads)

    @cached_property
    def _shared(self) -> set[int]:
        """What both blocks read alike."""
        read = [
            self._program.operands[entries_of(self._program.operand_ptr, ops)] for ops in (self._first, self._second)
        ]
        return set(read[0][read[0] == read[1]].tolist())


def _stretches(holds: np.ndarray, start: int, least: int) -> list[tuple[int, int]]:
    """[begin, end) of all stretches that hold and are as long as `least`; places count from `start`."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], holds, [False]]).astype(np.int8))).reshape(-1, 2)
    return [(start + int(a), start + int(b)) for a, b in edges if b - a >= least]
