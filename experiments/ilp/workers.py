"""How evenly do workers share the two kinds of questions that integer programs ask, and are their answers equal?

    cost tables       a question per type of value that moves: the prices between its labels
    neighbourhoods    a question per part of the best state that is chosen anew

A question is answered in a worker with its CPU seconds, so other load on the machine does not count:

    speed-up = CPU seconds of all questions / those of the worker that had most to do
"""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from autopart.search.budget import Budget
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.evaluation.jobs import Question
from autopart.search.execution.ray import Ray
from autopart.search.ilp.neighbourhood import model_of
from autopart.search.ilp.planning import Planner
from autopart.search.problem import Problem
from autopart.search.search import Search, search
from experiments.ilp.cpu_clock import cpu_s

EXECUTORS = {"serial": "serial", "2 processes": ap.Processes(2), "Ray, 2 workers": Ray(2)}


@dataclass(frozen=True)
class Timed:
    """A question whose answer comes with the worker's number and the CPU seconds that it took."""

    question: Question[Any]

    def answer(self, task: SearchTask) -> tuple[Any, int, float]:
        """See `Question`."""
        began = cpu_s()
        found = self.question.answer(task)
        return found, os.getpid(), cpu_s() - began


@dataclass(frozen=True)
class Asks:
    """An optimizer that asks both kinds of questions and notes who answered them when."""

    width: int = 24

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`."""
        planner = Planner(problem, grouped=True, seconds=10.0)
        tables = model_of(problem.task, grouped=True).jobs()
        parts = planner.neighbourhood_jobs(self.width, np.random.default_rng(0))
        problem.ask([Timed(job) for job in parts[:2]])  # workers make their models once
        problem.notes["shared"] = {"cost tables": _asked(problem, tables), "neighbourhoods": _asked(problem, parts)}


def _asked(problem: Problem, questions: list[Any]) -> dict[str, Any]:
    began, seconds = time.monotonic(), defaultdict[int, float](float)
    answers: list[Any] = []
    for found, worker, took_s in problem.ask([Timed(question) for question in questions]):
        answers.append(found)
        seconds[worker] += took_s
    return {
        "questions": len(questions),
        "wall_s": time.monotonic() - began,
        "cpu_s": sorted(seconds.values(), reverse=True),
        "speed_up": sum(seconds.values()) / max(seconds.values()),
        "digest": hashlib.sha256(pickle.dumps([pickle.dumps(answer) for answer in answers])).hexdigest()[:16],
    }


def shared(name: str, start: Partitioning) -> dict[str, Any]:
    """One program: what each executor's workers had to do, and whether all answers are equal."""
    rows: dict[str, Any] = {}
    for executor, how in EXECUTORS.items():
        asked = Search(start.mesh.axis_names, Asks(), Budget(100), executor=how, baselines=False, cache=False)
        rows[executor] = search(start, asked).report["shared"]
        for kind, row in rows[executor].items():
            print(f"{name:10} {executor:16} {kind:15} {row}", flush=True)
    kinds = rows["serial"]
    equal = {kind: len({row[kind]["digest"] for row in rows.values()}) == 1 for kind in kinds}
    print(name, "equal answers:", equal, flush=True)
    return {"name": name, "equal": equal, "executors": rows}
