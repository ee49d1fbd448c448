"""Does the progress line suit a terminal and a log?"""

from __future__ import annotations

import io

from autopart.core.table.partitioning import Partitioning
from autopart.search.budget import Budget, BudgetMeter
from autopart.search.contract import MESH, two_matrices
from autopart.search.evaluation.cost import StepSeconds
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.evaluation.jobs import Job
from autopart.search.execution.executor import Serial
from autopart.search.problem import Problem
from autopart.search.progress import ProgressLine
from autopart.search.space.decision_space import DecisionSpace
from autopart.spmd.device_local import LoweringOptions


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO) -> str:
    partitioning = Partitioning(two_matrices(), MESH)
    task = SearchTask(partitioning, DecisionSpace.of(partitioning, ("a",)), LoweringOptions(), None, StepSeconds())
    line = ProgressLine("a", stream)
    problem = Problem(task, Serial().start(task), BudgetMeter(Budget(10)), 0, line)
    problem.run([Job((), rollout=2, seed=s) for s in range(3)])
    line.close(problem)
    return stream.getvalue()


def test_a_terminal_sees_one_line_that_is_rewritten():
    text = shown(Terminal())
    assert text.startswith("\rsearch a  [")
    assert text.count("\n") == 1
    assert text.endswith("\n")


def test_a_log_sees_whole_lines_only():
    text = shown(io.StringIO())
    assert "\r" not in text
    assert text.startswith("search a  [")
    assert text.rstrip("\n") == text.strip()
    assert "best" in text
