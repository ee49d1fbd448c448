"""States where search goes: what short searches found in programs from outside, and states that they passed on the way.

    python -m experiments.simulator_accuracy.states             searches; writes `states.json`
    python -m experiments.simulator_accuracy.states vit mixer   in some of the programs

A state is kept as the rows of its actions, so that a pair stays the same when the simulator changes. Rows have numbers
of values, so they are good for one program alone: its number of ops is kept too, and a state of another program raises.
Searches of a program differ in optimizer, seed and budget; what short ones end with, and states of a wished length of
step, stand for those that long ones pass.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp

import autopart as ap
from autopart.core.actions import Action, action_of, row_of
from experiments.models.outside.training import Training

KEPT = Path(__file__).with_name("states.json")

SEARCHES = {
    "mcts 300": (ap.MCTS(), 300, 0),
    "annealing 200": (ap.Annealing(), 200, 1),
    "annealing 60": (ap.Annealing(), 60, 2),
    "mcts unseeded 60": (ap.MCTS(seeded=False), 60, 3),
    "random 60": (ap.RandomSearch(), 60, 4),
}
"""Optimizer, evaluations and seed of each search; the first two are long enough to be called found."""

PASSED = (1.1, 1.25, 1.5, 2.0)
"""Steps of states that a search passes, over the step of what it found."""

OTHER_SEARCHES = {"mcts 200": (ap.MCTS(), 200, 0)}
"""The one search of each program of `OTHER_KINDS`."""


class OtherProgramError(ValueError):
    """A state was kept for a program that is another one now."""


@dataclass(frozen=True)
class Kept:
    """A tactic that takes actions that were written down for a program of so many ops."""

    name: str
    rows: tuple[Any, ...]
    ops: int

    def act(self, partitioning: Any, context: Any) -> ap.TacticResult:
        if partitioning.program.op_count != self.ops:
            found = partitioning.program.op_count
            raise OtherProgramError(f"{self.name}: kept for a program of {self.ops} ops, not of {found}; search again")
        actions: list[Action] = [action_of(row) for row in self.rows]
        partitioning.apply_all(actions)
        return ap.TacticResult(actions)


@dataclass
class Noting:
    """A tactic that does what another one does, and keeps the rows of its actions."""

    tactic: ap.Tactic
    rows: tuple[Any, ...] = ()
    ops: int = 0
    name: str = "found"

    def act(self, partitioning: Any, context: Any) -> ap.TacticResult:
        result, self.ops = self.tactic.act(partitioning, context), partitioning.program.op_count
        self.rows = tuple(row_of(action) for action in result.actions)
        return result


def outside(model: str) -> Training:
    """The training step of a model of `experiments/models/outside`, "vit", or "vit bf16" for one computed in that."""
    name, _, narrow = model.partition(" ")
    build = importlib.import_module(f"experiments.models.outside.{name}").training
    return build(dtype=jnp.bfloat16) if narrow else build()


@dataclass(frozen=True)
class StepNear:
    """An objective that is least where a step takes so many seconds."""

    step_s: float

    def __call__(self, cost: Any) -> float:
        return abs(math.log(cost.step_s / self.step_s))


def found_by(
    searches: dict[str, tuple[Any, int, int]], passed: Sequence[float], model: str, program: Training, mesh: ap.Mesh
) -> dict[str, Any]:
    """The program's ops, and rows of actions by search, those of equal cost once; then of states that are `passed`."""
    found, ops, seen = {}, 0, set()

    def search(name: str, optimizer: Any, evaluations: int, seed: int, **objective: Any) -> float:
        """Keeps what a search ends with; the seconds of its step."""
        nonlocal ops
        axes, budget = list(mesh.axis_names), ap.Budget(evaluations)
        tactic = Noting(ap.AutomaticPartition(axes, optimizer, budget, seed, cache=False, progress=False, **objective))
        cost = ap.jit(program.step, mesh, [tactic], donate_argnums=(0, 1)).lower(*program.args).estimate
        ops = tactic.ops
        if (cost.step_s, cost.peak_bytes) not in seen:
            seen.add((cost.step_s, cost.peak_bytes))
            found[name] = tactic.rows
            print(f"{model} {name}: {cost.step_s * 1e3:.1f} ms, {cost.peak_bytes / 1e9:.2f} GB", flush=True)
        return cost.step_s

    least = min(search(name, *of) for name, of in searches.items())
    for times in passed:
        search(f"mcts at {times}x", ap.MCTS(), 60, 5, objective=StepNear(times * least))
    return {"ops": ops, "states": found}


def kept_states(model: str) -> list[Kept]:
    """The states of a program that are on file."""
    kept = json.loads(KEPT.read_text()).get(model, {"ops": 0, "states": {}})
    return [Kept(name, tuple(rows), kept["ops"]) for name, rows in kept["states"].items()]


def main() -> None:
    from experiments.simulator_accuracy.outside_pairs import MODELS, OTHER_KINDS

    kept, asked = json.loads(KEPT.read_text()) if KEPT.exists() else {}, sys.argv[1:]
    for searches, passed, models in ((SEARCHES, PASSED, MODELS), (OTHER_SEARCHES, (), OTHER_KINDS)):
        for model, (_, mesh) in models.items():
            if not asked or model in asked:
                kept[model] = found_by(searches, passed, model, outside(model), mesh)
                KEPT.write_text(json.dumps(kept) + "\n")


if __name__ == "__main__":
    main()
