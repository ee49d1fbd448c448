"""One tree's figures for one program, as a line of JSON: the same states whatever the tree, so that two compare.

    python experiments/search_speed/measure.py t32x12 60

The states are those of random walks from the start, six decisions long, in an order of chance: as in a search, few of
them come right after the one that they grow from. Each is costed `REPEATS` times by evaluators that have seen none of
them, and the least time counts: others on the machine make it longer. Plans of redistributions are known beforehand,
since a search makes them once. Each state is costed as a search does it, and with the whole program, stage by stage.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import autopart as ap
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.search.evaluation.evaluator import Evaluator, SearchTask
from autopart.search.space.decision_space import DecisionSpace
from autopart.spmd.device_local import LoweringOptions
from experiments.automatic.cases import traced
from experiments.models import t32
from experiments.search_quality.programs import MESHES, programs

STAGES = ("propagate", "lower", "simulate", "options")
WALK, REPEATS = 6, 5


def program_of(name: str) -> Program:
    """`t32x12` is T32 with 12 layers; other names are those of `experiments.search_quality.programs`."""
    if name.startswith("t32x"):
        return traced(t32, t32.Config(layers=int(name[4:])))
    return programs()[name]()


def walks(evaluator: Evaluator, states: int) -> Iterator[tuple[Any, ...]]:
    """Sequences of decisions, each one longer than the one before, six to a walk."""
    for seed in range(-(-states // WALK)):
        random, decisions = np.random.default_rng(seed), ()
        for _ in range(WALK):
            options = evaluator._state(decisions).options
            if not options:
                break
            decisions = (*decisions, options[int(random.integers(len(options)))].decision)
            yield decisions


def stage_seconds(evaluator: Evaluator, decisions: tuple[Any, ...]) -> tuple[np.ndarray, str]:
    """(CPU seconds of each stage of costing a state with the whole program, its cost and options in words)."""
    clock, at = time.process_time, [time.process_time()]
    actions = _go_to(evaluator)(decisions)
    at.append(clock())
    local = lower_for_device(evaluator.partitioning, LoweringOptions(), evaluator._statics)
    key = evaluator.partitioning.fingerprint ^ local.fingerprint
    at.append(clock())
    cost = evaluator._price(local, actions)
    at.append(clock())
    options = evaluator.space.options(evaluator.partitioning)
    at.append(clock())
    return np.diff(at), repr((key, cost, options))


def _go_to(evaluator: Evaluator) -> Any:
    """What moves an evaluator's partitioning to a state; versions before repeated layers did it themselves."""
    return evaluator._walk.go_to if hasattr(evaluator, "_walk") else evaluator._go_to


def state_seconds(evaluator: Evaluator, decisions: tuple[Any, ...]) -> float:
    """CPU seconds of costing a state as a search does."""
    begin = time.process_time()
    evaluator._state(decisions)
    return time.process_time() - begin


def forget(evaluator: Evaluator) -> None:
    """Has an evaluator cost every state anew; versions before did not know what runs alike."""
    for known in ("_known", "_reached", "_ran"):
        getattr(evaluator, known, {}).clear()


def main() -> None:
    name, states = sys.argv[1], int(sys.argv[2])
    begin = time.process_time()
    program, mesh = program_of(name), MESHES["tpu_v3"]
    import_s = time.process_time() - begin
    DecisionSpace.of(Partitioning(program, mesh), mesh.axis_names)
    begin = time.process_time()
    partitioning = Partitioning(program, mesh)
    space = DecisionSpace.of(partitioning, mesh.axis_names)
    space_s = time.process_time() - begin
    evaluator = Evaluator(SearchTask(partitioning, space, LoweringOptions(), None, ap.StepSeconds()))
    every, words = list(walks(evaluator, states)), hashlib.sha256()
    seconds, whole = np.full((len(every), len(STAGES)), np.inf), Evaluator(evaluator._task)
    taken = np.full(len(every), np.inf)
    for _ in range(REPEATS):
        forget(evaluator)
        for state in np.random.default_rng(0).permutation(len(every)).tolist():
            found, said = stage_seconds(whole, every[state])
            seconds[state] = np.minimum(seconds[state], found)
            taken[state] = min(taken[state], state_seconds(evaluator, every[state]))
            words.update(said.encode())
    figures = {
        "program": name, "ops": program.op_count, "states": len(every), "import_s": import_s, "space_s": space_s,
        "stages_ms": dict(zip(STAGES, (1e3 * seconds.mean(axis=0)).round(3).tolist(), strict=True)),
        "whole_ms": 1e3 * float(seconds.mean(axis=0).sum()), "evaluation_ms": 1e3 * float(taken.mean()),
        "digest": words.hexdigest()[:16],
    }  # fmt: skip
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
