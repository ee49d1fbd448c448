"""What a barrier of copies waits for: the late value that its step reads, or else the deepest that waits there.

step                4 da = f(a)     5 db = g(da)     6 dw = h(x, w)      reads nothing late
waited for                          da               db, of the longest chain, which is still read
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np

from autopart.core.ops.rule import traits_of
from autopart.core.passes.recompute.lifetimes import Lifetimes


class LateValues:
    """The late values of a scope that is cut; to be asked step by step, in order."""

    def __init__(self, life: Lifetimes, cut: int):
        self._life = life
        self._late = np.flatnonzero(life.first > cut)
        self._depth = self._depths()
        self._entered = 0
        self._there: list[tuple[int, int]] = []

    def awaited_by(self, at: int) -> list[int]:
        """The late value that the step `at` waits for, or else the deepest that is there and still read."""
        program, life = self._life.program, self._life
        own = [v for op in self._ops_of(at) for v in program.operands_of(op).tolist() if self._depth.get(v, 0)]
        own = [v for v in own if life.first[life.number[v]] < at]
        return [max(own, key=self._depth.__getitem__)] if own else self._deepest(at)

    def later_uses(self, value: int, at: int, last: int | None = None) -> list[int]:
        """The uses by which the step `at` or a later one, up to the step `last`, reads a value.

        Uses come in the order of their ops, and so of their steps: the first and the last one are looked for.
        """
        life, (pointer, uses) = self._life, self._life.program.users
        use_op, before, behind = life.program.use_op, int(pointer[value]), int(pointer[value + 1])
        end = bisect_left(uses, life.end, before, behind, key=lambda use: use_op[use])
        begin = bisect_left(uses, at, before, end, key=lambda use: life.step_of(int(use_op[use])))
        if last is not None:
            end = bisect_right(uses, last, begin, end, key=lambda use: life.step_of(int(use_op[use])))
        return uses[begin:end].tolist()

    def _deepest(self, at: int) -> list[int]:
        """Of the values that are made before `at`, the deepest that is read from there on; what is not, never is."""
        life = self._life
        while self._entered < len(self._late) and life.first[self._late[self._entered]] < at:
            value = int(life.values[self._late[self._entered]])
            self._entered += 1
            if value in self._depth:
                heapq.heappush(self._there, (-self._depth[value], value))
        while self._there:
            value = self._there[0][1]
            if life.last[life.number[value]] >= at and self.later_uses(value, at):
                return [value]
            heapq.heappop(self._there)
        return []

    def _depths(self) -> dict[int, int]:
        """Late value of the scope -> ops of the longest chain of late ops that leads to it."""
        program, depth = self._life.program, dict[int, int]()
        cloned = [traits_of(spec).cloned_per_use for spec in program.specs]
        late = self._life.values[self._late]
        makers = program.value_op[late]
        for value, op, spec in zip(late.tolist(), makers.tolist(), program.op_spec[makers].tolist(), strict=True):
            reads = program.operands_of(op)
            if len(reads) and not cloned[spec]:
                depth[value] = 1 + max(depth.get(v, 0) for v in reads.tolist())
        return depth

    def _ops_of(self, at: int) -> Iterator[int]:
        yield at
        op = at + 1
        while self._life.step_of(op) == at:
            if self._life.program.op_scope[op] == self._life.scope:
                yield op
            op += 1
