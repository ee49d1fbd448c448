"""States where search goes, kept as plans in a compressed file: what short searches end with, and what they pass.

    KEPT = KeptStates(Path(__file__).with_name("states.json.xz"))
    KEPT.keep("vit", found_by({"mcts 300": (ap.MCTS(), 300, 0)}, (1.1, 2.0), step, args, mesh))
    KEPT.plans("vit")      {"mcts 300": plan, "mcts at 1.1x": plan}

A plan stays the same when the simulator or a pass changes. Searches of a program differ in optimizer, seed and budget;
what short ones end with, and states of a wished length of step, stand for those that long ones pass.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import autopart as ap


class KeptStates(NamedTuple):
    """The file: program -> search -> plan."""

    path: Path

    def read(self) -> dict[str, dict[str, str]]:
        """All plans, as text."""
        return json.loads(lzma.decompress(self.path.read_bytes())) if self.path.exists() else {}

    def plans(self, program: str) -> dict[str, ap.Plan]:
        """The plans of a program; none where none was searched."""
        return {search: ap.Plan.from_json(text) for search, text in self.read().get(program, {}).items()}

    def keep(self, program: str, plans: Mapping[str, ap.Plan]) -> None:
        """Writes the plans of a program in the place of those that are there."""
        states = self.read() | {program: {search: plan.to_json() for search, plan in plans.items()}}
        self.path.write_bytes(lzma.compress(json.dumps(states).encode(), preset=9 | lzma.PRESET_EXTREME))


@dataclass(frozen=True)
class StepNear:
    """An objective that is least where a step takes so many seconds."""

    step_s: float

    def __call__(self, cost: Any) -> float:
        return abs(math.log(cost.step_s / self.step_s))


def found_by(
    searches: Mapping[str, tuple[Any, int, int]],
    passed: Sequence[float],
    step: Callable[..., Any],
    args: Sequence[Any],
    mesh: ap.Mesh,
) -> dict[str, ap.Plan]:
    """Plans by search, (optimizer, evaluations, seed), those of equal cost once; then of states that are `passed`:
    steps over that of the best that was found. The first two arguments of `step` are donated.
    """
    found, seen = dict[str, ap.Plan](), set[tuple[float, float]]()

    def search(name: str, optimizer: Any, evaluations: int, seed: int, **objective: Any) -> float:
        """Keeps what a search ends with; the seconds of its step."""
        axes, budget = list(mesh.axis_names), ap.Budget(evaluations)
        tactic = ap.AutomaticPartition(axes, optimizer, budget, seed, cache=False, progress=False, **objective)
        lowered = ap.jit(step, mesh, [tactic], donate_argnums=(0, 1)).lower(*args)
        cost = lowered.estimate
        if cost is None:
            raise ValueError("the mesh names no device")
        if (cost.step_s, cost.peak_bytes) not in seen:
            seen.add((cost.step_s, cost.peak_bytes))
            found[name] = lowered.plan
            print(f"{name}: {cost.step_s * 1e3:.1f} ms, {cost.peak_bytes / 1e9:.2f} GB", flush=True)
        return cost.step_s

    least = min(search(name, *of) for name, of in searches.items())
    for times in passed:
        search(f"mcts at {times}x", ap.MCTS(), 60, 5, objective=StepNear(times * least))
    return found
