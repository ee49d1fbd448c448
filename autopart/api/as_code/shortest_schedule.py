"""The shortest manual tactics that lay everything out as a schedule did, for readers and to keep.

    118 tiles of a search, on each axis        {"t": 0}, axis=("data", "model")
                                               {"params/*/kernel": 0}, axis=("model", "data")

What a tactic decided is written as blocks, one a propagation. Then whatever makes it shorter is tried: names that
differ in numbers become a glob, blocks of one axis become one, decisions that change nothing go, names of one decision
become a wider glob, equal blocks of several axes become one. Each try is carried out as a user's tactics would be and
lowered: it stands where every loop, layout and redistribution is what it was. Tries are limited by `TRIED_OPS`, so that
a large program takes a few seconds; what was not tried stays long, and is right.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from autopart.api.as_code.schedule_blocks import Block, blocks_of
from autopart.api.plan.canonical_actions import canonical_actions, same_program
from autopart.api.tactics.manual import FIRST_DIVISIBLE_DIM, LARGEST_DIVISIBLE_DIM, REPLICATED, ManualPartition
from autopart.api.tactics.schedule import Scheduled
from autopart.api.tactics.tactic import TacticContext
from autopart.api.tracing.globs import wider, with_globs
from autopart.api.tracing.names import Keys, Names
from autopart.base.errors import PartitionError
from autopart.core.importer.constraints import is_constraint
from autopart.core.table.actions import Action, Atomic, Propagate, ShardLoops, ShareGathers, Tile
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.spmd.device_local import DeviceLocal, LoweringContext

TRIED_OPS = 1_600_000
"""Ops that are lowered for tries, of a whole schedule: a try is a quarter of the program and `OF_DECISION` for each
decision, and the whole of it where the table is the same and is lowered."""

OF_DECISION = 100

SHORT = 6
"""Length up to which no other way to write a tactic is tried."""

GIVEN = "shardings"
"""What the report of given shardings has."""


@dataclass(frozen=True)
class Shortest:
    """The shortest schedule of what was scheduled, looked for when somebody asks."""

    scheduled: Scheduled

    @functools.cached_property
    def blocks(self) -> list[list[Block]]:
        """Those of each tactic."""
        return shortest_schedule(self.scheduled)


def shortest_schedule(scheduled: Scheduled) -> list[list[Block]]:
    """Blocks for each tactic of the schedule. Those that the model's own constraints make again are left out.

    Where a decision that changes nothing of its own tactic is missed by a later one, all are kept.
    """
    keys = Keys(scheduled.partitioning.program)
    found = _shortest(scheduled, drops=True) or _shortest(scheduled, drops=False)
    return found or [list(blocks_of(part, keys)) for part in _parts(scheduled)]


def _shortest(scheduled: Scheduled, drops: bool) -> list[list[Block]] | None:
    """The same, each tactic after those before it as they are written; None where that is not found."""
    local = scheduled.device_local
    program, mesh = local.program, local.mesh
    parts = list(_parts(scheduled))
    canonical = functools.cache(lambda: canonical_actions(program, mesh, local.options, parts))
    tries = _Tries(Partitioning(program, mesh), LoweringContext.of(program), local, drops)
    theirs, found = Partitioning(program, mesh), list[list[Block]]()
    for n, (report, part) in enumerate(zip(scheduled.reports, parts, strict=True)):
        theirs.apply_all(part)
        if "pipeline" in report.report:  # its tactic takes its own actions
            tries.own.apply_all(part)
            found.append([])
            continue
        own = [a for a in part if GIVEN in report.report and _is_of_model(a, program.tags_of)]
        own += map(Propagate, mesh.axis_names) if own else ()
        blocks = tries.shortest(theirs, part, lambda n=n: canonical()[n], own)
        if blocks is None:
            return None
        found.append(blocks)
    return found


def _parts(scheduled: Scheduled) -> Iterator[list[Action]]:
    left = iter(scheduled.actions)
    for report in scheduled.reports:
        yield [next(left) for _ in report.actions]


def _is_of_model(action: Action, tags: dict[int, list[str]]) -> bool:
    return isinstance(action, Tile | Atomic) and any(map(is_constraint, tags.get(action.value, ())))


@dataclass
class _Tries:
    """Carries out blocks on `own`, which stands after the tactics before."""

    own: Partitioning
    statics: LoweringContext
    like: DeviceLocal
    drops: bool
    ops_left: int = TRIED_OPS
    wanted: DeviceLocal = field(init=False)
    mapping: np.ndarray = field(init=False)
    others: tuple[Sequence[Action], Sequence[Action]] = field(init=False)

    def __post_init__(self) -> None:
        self.keys, self.names = Keys(self.own.program), Names.of(self.own.program)

    def shortest(
        self,
        theirs: Partitioning,
        part: Sequence[Action],
        canonical: Callable[[], Sequence[Action]],
        own: Sequence[Action],
    ) -> list[Block] | None:
        """Of a tactic that left `theirs`; `own` of its actions need no words. Goes there, by the blocks."""
        self.wanted, self.mapping = self._lowered(theirs), theirs.state.mapping.copy()
        flags = [action for action in part if isinstance(action, ShareGathers | ShardLoops)]
        found: list[tuple[list[Block], Sequence[Action]]] = []
        for others, actions in ((own, lambda: [a for a in part if a not in own]), ((), canonical)):
            if found and (_length(found[0][0]) <= (SHORT, 0) or self.ops_left <= 0):
                break
            self.others = others, flags
            for keys in (self.keys, lambda v: self.keys(v) if v not in self.own.program.argument_place else f"%{v}"):
                blocks = [self._with_globs(block) for block in blocks_of(actions(), keys)]
                if self._same(blocks):
                    found.append((self._shortened(blocks), others))
                    break
        if not found:
            return None
        best, others = min(found, key=lambda entry: _length(entry[0]))
        self.others = others, flags
        self._carried_out(best)
        return best

    def _lowered(self, partitioning: Partitioning) -> DeviceLocal:
        return lower_for_device(partitioning, self.like.options, self.statics)

    def _same(self, blocks: Sequence[Block]) -> bool:
        """Whether the blocks lead to what is wanted."""
        start, decided = self.own.mark(), np.count_nonzero(self.own.state.action)
        try:
            self._carried_out(blocks)
            taken = np.count_nonzero(self.own.state.action) - decided
            self.ops_left -= self.own.program.op_count // 4 + OF_DECISION * int(taken)
            if not np.array_equal(self.own.state.mapping, self.mapping):
                return False
            self.ops_left -= self.own.program.op_count
            return same_program(self._lowered(self.own), self.wanted)
        except PartitionError:  # what is not legal is not the same
            return False
        finally:
            self.own.undo(start)

    def _carried_out(self, blocks: Sequence[Block]) -> None:
        before, after = self.others
        self.own.apply_all(before)
        for block in blocks:
            ManualPartition(block.decisions, block.axes).act(self.own, TacticContext())
        self.own.apply_all(after)

    def _taken(self, blocks: list[Block], tried: list[Block]) -> list[Block]:
        """What was tried, if it is as good; else the blocks."""
        return tried if tried != blocks and self.ops_left > 0 and self._same(tried) else blocks

    def _with_globs(self, block: Block) -> Block:
        return Block(block.axes, with_globs(list(block.decisions.items()), self.names))

    # ---- ways to make it shorter

    def _shortened(self, blocks: list[Block]) -> list[Block]:
        for shorter in (
            self._joined,
            self._over_axes,
            self._without_needless,
            self._with_wider,
            self._by_choice,
            self._over_axes,
        ):
            blocks = shorter([block for block in blocks if block.decisions])
        return [block for block in blocks if block.decisions]

    def _joined(self, blocks: list[Block]) -> list[Block]:
        """As few blocks of each axis as can be: one, or the first and one, or by halves."""
        for axes in dict.fromkeys(block.axes for block in blocks):
            spans = [[block for block in blocks if block.axes == axes]]
            while spans:
                same, before = spans.pop(), blocks
                for of in (0, -1) if len(same) > 1 else ():
                    blocks = self._taken(blocks, self._as_one(blocks, same, same[of])) if blocks is before else blocks
                if blocks is before and len(same) > 2:
                    cut = 1 if same[0] is next(b for b in blocks if b.axes == axes) else len(same) // 2
                    spans += [same[:cut], same[cut:]]
        return blocks

    def _as_one(self, blocks: list[Block], same: Sequence[Block], at: Block) -> list[Block]:
        """With one block for several, in the place of one of them."""
        decided = [entry for block in same for entry in block.decisions.items()]
        one = Block(at.axes, with_globs(decided, self.names))
        gone = {id(block) for block in same if block is not at}
        return [one if block is at else block for block in blocks if id(block) not in gone]

    def _without_needless(self, blocks: list[Block]) -> list[Block]:
        """Without the decisions that change nothing, those gone first that are hard to read."""
        if not self.drops:
            return blocks
        for n in reversed(range(len(blocks))):
            blocks = self._taken(blocks, _replaced(blocks, n, Block(blocks[n].axes, {})))
        entries = [(n, key) for n, block in enumerate(blocks) for key in block.decisions]
        for n, key in sorted(entries, key=lambda entry: (-_hardness(entry[1]), -entry[0])):
            blocks = self._taken(blocks, _replaced(blocks, n, blocks[n].without(key)))
        return blocks

    def _by_choice(self, blocks: list[Block]) -> list[Block]:
        """A dim that is to be chosen, for all arrays of an argument."""
        for n, choice in itertools.product(range(len(blocks)), (FIRST_DIVISIBLE_DIM, LARGEST_DIVISIBLE_DIM)):
            tiles = [key for key, decision in blocks[n].decisions.items() if decision is not REPLICATED]
            for head in dict.fromkeys(key.partition("/")[0] for key in tiles):
                under = [key for key in tiles if key.partition("/")[0] == head]
                if len(under) > 1:
                    blocks = self._taken(blocks, _replaced(blocks, n, blocks[n].merged(under, head, choice)))
        return blocks

    def _with_wider(self, blocks: list[Block]) -> list[Block]:
        """Two names of one decision as a glob, as long as there are such."""
        for n in range(len(blocks)):
            refused: set[str] = set()
            while tried := next(self._wider(blocks[n], refused), None):
                before, glob = blocks, tried[0]
                blocks = self._taken(blocks, _replaced(blocks, n, tried[1]))
                if blocks is before:
                    refused.add(glob)
        return blocks

    @staticmethod
    def _wider(block: Block, refused: set[str]) -> Iterator[tuple[str, Block]]:
        for (one, decision), (other, same) in itertools.combinations(block.decisions.items(), 2):
            if decision == same:
                for glob in wider(one, other):
                    if glob not in refused and (glob not in block.decisions or glob in (one, other)):
                        yield glob, block.merged([one, other], glob, decision)

    def _over_axes(self, blocks: list[Block]) -> list[Block]:
        """Equal blocks that follow one another along several axes as one."""
        n = 0
        while n + 1 < len(blocks):
            one, other = blocks[n : n + 2]
            both, before = Block((*one.axes, *other.axes), one.decisions), blocks
            if one.decisions == other.decisions and not set(one.axes) & set(other.axes):
                blocks = self._taken(blocks, [*blocks[:n], both, *blocks[n + 2 :]])
            n += blocks is before
        return blocks


def _replaced(blocks: list[Block], n: int, block: Block) -> list[Block]:
    return [*blocks[:n], block, *blocks[n + 1 :]]


def _hardness(key: str) -> int:
    return 2 if key.startswith("%") else "@" in key


def _length(blocks: Sequence[Block]) -> tuple[int, int]:
    """What is short: few tactics and decisions, those that are hard to read thrice; then few letters."""
    keys = [key for block in blocks for key in block.decisions]
    return len(blocks) + sum(1 + 2 * _hardness(key) for key in keys), sum(map(len, keys))
