"""Early ops computed again, right before the first late op that reads what they leave.

    h = dot x, w          early                    h = dot x, w
    r = relu h            early                    r = relu h
    ...                                            ...
    dr = ...              late                     dr = ...
    dw = dot r, dr        late                     x', dr' = optimization_barrier x, dr
                                                   h' = dot x', w;  r' = relu h'
                                                   dw = dot r', dr'

As `jax.checkpoint` does, a barrier holds what the copies read together with what the late op waits for: a compiler can
neither merge a copy with its original nor run it before it is needed. Everything is computed again at most once, and a
late op that reads several results has one barrier for them. A block has one barrier, where the first of its results is
read: what late ops read behind a barrier cannot be fused with what made it.

The arguments that a block reads go through its barrier too, and what is late in the block reads them behind it, from
the first to the last of its results that are read: so a weight is gathered and converted once for the copies and for
what comes of them, as with `jax.checkpoint`. Other values of outside are there in any case; they, and arguments of
copies that belong to no block, go through a barrier only where a copy reads nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import has_effect
from autopart.core.passes.recompute.late_values import LateValues
from autopart.core.passes.recompute.lifetimes import Lifetimes
from autopart.core.passes.rewriting import Rewriting
from autopart.core.program import ROOT, Program


def repeatable(program: Program) -> np.ndarray:
    """bool[ops]: the op may be computed again.

    None that draws from a hidden state, has an effect, or is a loop, a branch or a part of one. Nor a barrier that the
    user wrote, nor what comes behind one in its scope: the user said already what is computed again there.
    """
    specs = np.array([_is_repeatable(spec) for spec in program.specs], np.bool_)[program.op_spec]
    behind = np.zeros(program.value_count, np.bool_)
    for op in range(program.barriers[0].start, program.op_count) if program.barriers else ():
        if program.spec(op).kind == "optimization_barrier" or behind[program.operands_of(op)].any():
            specs[op] = False
            behind[program.result_ptr[op] : program.result_ptr[op + 1]] = True
    return specs


def _is_repeatable(spec: OpSpec) -> bool:
    structural = ("argument", "carry", "join", "while", "case", "condition", "optimization_barrier", "rng")
    return spec.kind not in structural and not has_effect(spec)


@dataclass
class Again:
    """The copies behind one cut of a scope.

    kept[i]     the i-th of the lifetimes' values is not computed again
    block[i]    the number of the block that makes it; -1 where it belongs to none
    """

    rewriting: Rewriting
    life: Lifetimes
    cut: int
    kept: np.ndarray
    block: np.ndarray
    _copy: dict[int, int] = field(default_factory=dict[int, int])
    _held: dict[int, int] = field(default_factory=dict[int, int])
    _taken: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """(block, argument) -> the argument behind the block's barrier."""
    _awaited: dict[int, int] = field(default_factory=dict[int, int])
    _opened: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        program, life = self.life.program, self.life
        self._early = np.zeros(program.value_count, np.bool_)
        self._early[life.values[life.first <= self.cut]] = True
        self._again = np.zeros(program.value_count, np.bool_)
        self._again[life.values[(life.first <= self.cut) & ~self.kept]] = True
        self._free = (np.diff(program.operand_ptr) == 0)[program.value_op]
        self._block = np.full(program.value_count, -1)
        self._block[life.values] = self.block
        late = np.flatnonzero((life.reader > self.cut) & (self._again & ~self._free)[life.read])
        self._late_uses = life.uses.start + late
        of_uses, steps = self._block[life.read[late]], life.reader[late]
        self._last = np.zeros(self.block.max(initial=0) + 1, np.int64)
        np.maximum.at(self._last, of_uses[of_uses >= 0], steps[of_uses >= 0])
        self._read_of_block: dict[int, list[int]] = {}
        for block, value in zip(of_uses.tolist(), life.read[late].tolist(), strict=True):
            self._read_of_block.setdefault(block, []).append(value)
        self._late = LateValues(life, self.cut)
        self._arguments = set(program.arguments) if life.scope == ROOT else set[int]()

    def write(self) -> None:
        """Puts the copies and their barriers in, and lets the late ops read them."""
        program, life = self.life.program, self.life
        for at, together in groupby(self._late_uses.tolist(), lambda use: life.step_of(program.use_op[use])):
            self._before(at, list(together))

    def _before(self, at: int, uses: list[int]) -> None:
        """Computes again, before the step `at`, what it reads by `uses`."""
        program, rewriting = self.life.program, self.rewriting
        ops = self._needed(program.operands[uses].tolist())
        opened = self._open(ops)
        of_blocks = self._needed(value for block in opened for value in self._read_of_block.get(block, ()))
        held = self._to_hold(sorted({*ops, *of_blocks}), bool(opened))
        if held:
            awaited = self._late.awaited_by(at)
            now = [self._awaited.get(v, v) for v in awaited]
            behind = rewriting.barrier([*(self._now(v) for v in held), *now], self.life.scope, at, at)
            after_barrier = dict(zip(held, behind, strict=False))
            self._held.update(
                {v: after for v, after in after_barrier.items() if v not in self._arguments or not opened}
            )
            self._taken.update({(b, v): after_barrier[v] for b in opened for v in held if v in self._arguments})
            for value, after in zip(awaited, behind[len(held) :], strict=True):
                self._wait(value, after, at)
            if opened:
                self._read_behind(after_barrier, at, int(self._last[list(opened)].max()))
        for op in ops:
            operands = [self._read(use) for use in self._uses(op)]
            results = rewriting.again(op, operands, self.life.scope, at)
            self._copy.update(zip(program.results_of(op), results, strict=True))
        for use in uses:
            rewriting.read(use, self._copy[int(program.operands[use])])

    def _open(self, ops: list[int]) -> set[int]:
        """The blocks of which some of these ops are the first to be computed again."""
        program = self.life.program
        opened = {int(self._block[v]) for op in ops for v in program.results_of(op)} - self._opened - {-1}
        self._opened |= opened
        return opened

    def _read_behind(self, after_barrier: dict[int, int], at: int, last: int) -> None:
        """Lets the late ops from step `at` to `last` read what went through a block's barrier behind it."""
        for value, after in after_barrier.items():
            for use in self._late.later_uses(value, at, last) if value < self.life.program.value_count else ():
                if self.rewriting.read_by(use) == value:
                    self.rewriting.read(use, after)

    def _uses(self, op: int) -> range:
        return range(int(self.life.program.operand_ptr[op]), int(self.life.program.operand_ptr[op + 1]))

    def _now(self, value: int) -> int:
        return self._awaited.get(value, value)

    def _read(self, use: int) -> int:
        value, program = self.rewriting.read_by(use), self.life.program
        block = int(self._block[program.result_ptr[program.use_op[use]]])
        held = self._taken.get((block, value), self._held.get(value, value))
        return self._copy.get(value, held)

    def _needed(self, values: Iterable[int]) -> list[int]:
        """The early ops to run for some values that are computed again, in order, without those that ran already."""
        program = self.life.program
        stack, found = list(values), set[int]()
        while stack:
            value = stack.pop()
            if value >= len(self._again) or not self._again[value] or value in self._copy:
                continue
            op = int(program.value_op[value])
            if op not in found:
                found.add(op)
                stack += [self.rewriting.read_by(use) for use in self._uses(op)]
        return sorted(found)

    def _to_hold(self, ops: list[int], with_arguments: bool) -> list[int]:
        """What goes through a barrier, so that no copy reads only what its original reads."""
        held: dict[int, None] = {}
        copied: set[int] = set()
        for op in ops:
            reads = [self.rewriting.read_by(use) for use in self._uses(op)]
            kept = [v for v in reads if self._is_kept(v) or (with_arguments and v in self._arguments)]
            held.update(dict.fromkeys(v for v in kept if v not in self._held))
            if reads and not (kept or any(v in copied or v in self._copy or v in self._held for v in reads)):
                held[min(reads, key=self._bytes)] = None
            copied.update(self.life.program.results_of(op))
        return list(held)

    def _is_kept(self, value: int) -> bool:
        """An early value of the scope that is kept; of those put in by an earlier cut, all are."""
        return value >= len(self._early) or bool(self._early[value] and not (self._again[value] or self._free[value]))

    def _bytes(self, value: int) -> float:
        program = self.life.program
        return program.type_of(value).bytes if value < program.value_count else 0.0

    def _wait(self, value: int, after: int, at: int) -> None:
        self._awaited[value] = after
        for use in self._late.later_uses(value, at):
            self.rewriting.read(use, after)
