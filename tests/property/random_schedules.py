"""Random schedules for the random programs of one module.

    RandomActions     tile and atomic actions on any values of one program, propagating now and then
    manual            tactics over inputs, outputs and tags by name, glob and callable, on one axis or several
    search            an `ap.AutomaticPartition` with a tiny budget and an odd objective
    Replay            recorded actions, by the position of their values in one program

A value is known by its position among the values its program reaches, so that actions taken in a module of ten programs
can be repeated on one of them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import autopart as ap
from autopart.api.tactics.tactic import Tactic, TacticContext, TacticResult
from autopart.base.errors import TileError, UnknownNameError
from autopart.core.program import Program
from autopart.core.table.actions import Action, Atomic, Propagate, ShardLoops, ShareGathers, Tile
from autopart.core.table.partitioning import Partitioning
from autopart.spmd.device_local import DeviceLocal
from tests.property.random_programs import RandomProgram

MESHES = (
    {"a": 2},
    {"a": 4},
    {"a": 2, "b": 2},
    {"a": 2, "b": 4},
    {"a": 2, "b": 2, "c": 2},
    {"a": 8},
    {"a": 3, "b": 2},
    {"a": 6},
    {"a": 4, "b": 2},
    {"a": 1, "b": 3},
)


def values_of(program: Program, name: str) -> list[int]:
    """The values that the random program called `name` computes its results from, arguments first, in program order."""
    named = zip(program.argument_names, program.arguments, strict=True)
    arguments = [v for n, v in named if n.split("/")[1] == name]
    outputs = zip(program.output_names, program.outputs, strict=True)
    reached: set[int] = set()
    waiting = [v for n, v in outputs if n.split("/")[0] == name]
    while waiting:
        value = int(waiting.pop())
        if value not in reached:
            reached.add(value)
            waiting += program.operands_of(int(program.value_op[value])).tolist()
    return arguments + sorted(reached.difference(program.arguments))


@dataclass(frozen=True)
class RandomActions:
    """A tactic of random legal actions on any values of one program, propagating now and then."""

    program: RandomProgram
    count: int = 8
    name: str = "random actions"

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        values = values_of(partitioning.program, self.program.name)
        groups = [values, values[:5], _named(partitioning.program, self.program.name) or values]
        return _taken(np.random.default_rng([self.program.seed, 3]), partitioning, groups, self.count)


@dataclass(frozen=True)
class RandomActionsAnywhere:
    """A tactic of random legal actions on any values of a whole program, every other one an argument."""

    seed: int
    count: int = 8
    name: str = "random actions"

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        program = partitioning.program
        groups = [list(range(program.value_count)), list(program.arguments)]
        return _taken(np.random.default_rng([self.seed, 3]), partitioning, groups, self.count)


def _taken(
    rng: np.random.Generator, partitioning: Partitioning, groups: Sequence[Sequence[int]], count: int
) -> TacticResult:
    """Up to `count` actions on values of a random one of `groups` each, and propagations of all axes at the end."""
    axes = partitioning.mesh.axis_names
    taken: list[Action] = []
    for _ in range(count):
        among = groups[rng.integers(len(groups))]
        action = _random_action(rng, partitioning, int(rng.choice(among)), str(rng.choice(axes)))
        if action is None:
            continue
        taken.append(action)
        partitioning.apply(action)
        if rng.integers(2):
            taken.append(Propagate(action.axis))
            partitioning.propagate([action.axis])
    partitioning.propagate()
    return TacticResult([*taken, *map(Propagate, axes)])


def _named(program: Program, name: str) -> list[int]:
    """Values with a tag of the program called `name`, and its outputs."""
    tagged = [v for tag, values in program.tags.items() if tag.startswith(f"{name}_t") for v in values]
    outputs = zip(program.output_names, program.outputs, strict=True)
    return tagged + [v for n, v in outputs if n.split("/")[0] == name]


def _random_action(rng: np.random.Generator, partitioning: Partitioning, value: int, axis: str) -> Tile | Atomic | None:
    rank = len(partitioning.program.type_of(value).shape)
    legal = [d for d in range(rank) if not partitioning.why_not_tile(value, d, axis)]
    if legal and rng.integers(6):
        return Tile(value, int(rng.choice(legal)), axis)
    return Atomic(value, axis) if partitioning.tiled_dim(value, axis) < 0 else None


@dataclass(frozen=True)
class Lenient:
    """A tactic that is left out where it is not legal: what was asked at random may be impossible."""

    tactic: Tactic

    @property
    def name(self) -> str:
        return self.tactic.name

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        mark = partitioning.mark()
        try:
            return self.tactic.act(partitioning, context)
        except (TileError, UnknownNameError):
            partitioning.undo(mark)
            return TacticResult([])


def manual(program: RandomProgram, axes: Sequence[str]) -> list[Tactic]:
    """One to three manual tactics about the names of one program."""
    rng = np.random.default_rng([program.seed, 4])
    found: list[Tactic] = []
    if rng.integers(3) == 0:
        axis = str(rng.choice(axes))
        found.append(Lenient(ap.ManualPartition({f"inputs/{program.name}/*": ap.REPLICATED}, axis)))
        found.append(Lenient(ap.ManualPartition({f"outputs/{program.name}/*": ap.FIRST_DIVISIBLE_DIM}, axis)))
    for _ in range(int(rng.integers(1, 4))):
        on = [str(a) for a in rng.permutation(list(axes))[: rng.integers(1, len(axes) + 1)]]
        name = str(rng.choice(_keys(program)))
        decisions = tuple(_decision(rng) for _ in on)
        wanted = decisions if rng.integers(2) else decisions[0]
        found.append(Lenient(ap.ManualPartition({name: wanted}, on[0] if len(on) == 1 else on)))
    return found


def _keys(program: RandomProgram) -> list[str]:
    p = program.name
    tags = [f"{p}_t{i}" for i in range(4)]
    return [
        f"inputs/{p}/x0",
        f"inputs/{p}/x[12]",
        f"inputs/{p}/*",
        f"outputs/{p}/*",
        f"outputs/{p}/0",
        *tags,
        f"{p}_t*",
    ]


def _decision(rng: np.random.Generator) -> Any:
    dim = int(rng.integers(3))
    return [0, dim, -1, ap.FIRST_DIVISIBLE_DIM, ap.REPLICATED, ap.UNKNOWN, largest_dim][rng.integers(7)]


def largest_dim(path: str, shape: tuple[int, ...]) -> Any:
    """A callable decision: the largest dim, if there is one."""
    return int(np.argmax(shape)) if shape else ap.UNKNOWN


@dataclass(frozen=True)
class Counted:
    """What a search reads of an estimate."""

    step_s: float
    peak_bytes: float = 1.0
    fits: bool = True


def by_collectives(local: DeviceLocal, mesh: ap.Mesh) -> Any:
    """A cost model that knows no device: a second, and one more for each collective."""
    return Counted(1.0 + sum(local.collectives().values()))


OBJECTIVES: dict[str, Callable[[ap.Cost], float]] = {
    "fastest": lambda cost: cost.step_s,
    "slowest": lambda cost: 1 / cost.step_s,
    "as many actions as possible": lambda cost: 1.0 / (1 + cost.actions),
    "all alike": lambda cost: 0.0,
    "a hash": lambda cost: float(hash((cost.step_s, cost.actions)) % 1009),
}


def search(seed: int, axes: Sequence[str]) -> ap.AutomaticPartition:
    """A search over all programs of the module, which ends after a few states."""
    rng = np.random.default_rng([seed, 5])
    objective = str(rng.choice(list(OBJECTIVES)))
    return ap.AutomaticPartition(
        list(axes),
        optimizer=str(rng.choice(["mcts", "beam", "greedy", "annealing", "random"])),
        budget=ap.Budget(int(rng.integers(1, 12))),
        seed=seed,
        name=f"search ({objective})",
        objective=OBJECTIVES[objective],
        cost_model=by_collectives,
        cache=False,
        progress=False,
    )


def schedule(programs: Sequence[RandomProgram], axes: Sequence[str]) -> list[Tactic]:
    """Tactics for the programs of one module, of one or two kinds."""
    seed = programs[0].seed
    rng = np.random.default_rng([seed, 6])
    automatic, found = rng.integers(8) == 0, []
    for program in programs:
        if not automatic or rng.integers(3) == 0:
            found += manual(program, axes) if rng.integers(5) < 2 else [RandomActions(program)]
    return [*found, search(seed, axes)] if automatic else found


@dataclass
class Recorded:
    """A tactic that keeps the actions it took."""

    tactic: Tactic
    actions: list[Action] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.tactic.name

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        result = self.tactic.act(partitioning, context)
        self.actions = list(result.actions)
        return result


@dataclass(frozen=True)
class Replay:
    """Actions on one program alone; their values are positions in `values_of`. What is not legal is left out."""

    program: RandomProgram
    actions: tuple[Action, ...]
    name: str = "replay"

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        values = values_of(partitioning.program, self.program.name)
        taken: list[Action] = []
        for action in self.actions:
            if isinstance(action, Tile | Atomic):
                if action.value >= len(values):
                    continue
                action = replace(action, value=values[action.value])
            try:
                partitioning.apply(action)
            except TileError:
                continue
            taken.append(action)
        partitioning.propagate()
        return TacticResult(taken)


def by_position(actions: Sequence[Action], program: Program, name: str) -> tuple[Action, ...]:
    """The actions that concern one program, with the positions of its values in place of their numbers."""
    position = {value: i for i, value in enumerate(values_of(program, name))}
    found: list[Action] = []
    for action in actions:
        if isinstance(action, Propagate | ShareGathers | ShardLoops):
            found.append(action)
        elif action.value in position:
            found.append(replace(action, value=position[action.value]))
    return tuple(a for i, a in enumerate(found) if not (i and isinstance(a, Propagate) and found[i - 1] == a))
