"""Is the answer the optimum where that is known, is the bound never above it, and does the solver keep its promises?"""

from __future__ import annotations

import gc
import importlib.util
import math
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from autopart.pairwise import PairwiseError, PairwiseProblem, read_problem, solve
from autopart.pairwise import exact as exact_module
from autopart.pairwise.ascent import Ascent
from autopart.pairwise.exact import solve_exactly
from autopart.pairwise.local_search import LocalSearch
from autopart.pairwise.network import cost_of, network, used_over_time
from autopart.pairwise.reduction import reduced
from tests.pairwise.random_problems import layered_problem, optimum, random_problem
from tests.prompt import every


def dense(seed: int, tight: float = 0.5, nodes: int = 9) -> PairwiseProblem:
    """One that reductions leave something of."""
    return random_problem(seed, nodes=nodes, most=3, edges=2 * nodes, forbidden=0.05, tight=tight)


@pytest.mark.parametrize("seed", range(12))
def test_answer_is_the_optimum_that_enumeration_finds(seed):
    problem = dense(seed)
    true, answer = optimum(problem), solve(problem, 20)
    assert answer.status == ("optimal" if math.isfinite(true) else "infeasible")
    assert answer.cost == pytest.approx(true)
    if answer.choice is not None:
        assert problem.fits(answer.choice)
        assert problem.cost_of(answer.choice) == answer.cost


@pytest.mark.parametrize("seed", range(20, 24))
def test_answer_without_a_limit_is_the_optimum_that_enumeration_finds(seed):
    problem = random_problem(seed, nodes=8, most=3, edges=24, forbidden=0.0, tight=None)
    assert solve(problem, 20).cost == pytest.approx(optimum(problem))


@pytest.mark.slow
@pytest.mark.parametrize(("letter", "optimal", "seconds"), [("B", 532_843, 60), ("G", 217_039, 120)])
def test_contest_instance_is_proved_optimal(letter, optimal, seconds):
    path = Path(__file__).parents[2] / "experiments" / "iopddl" / "data" / f"asplos-2025-iopddl-{letter}.json.gz"
    answer = solve(read_problem(path), seconds)
    assert (answer.status, answer.cost) == ("optimal", optimal)


@pytest.mark.slow
@pytest.mark.parametrize("tight", [0.02, 0.1, 0.3])
def test_large_problem_has_an_answer_near_its_bound(tight):
    problem = layered_problem(0, layers=400, tight=tight)
    answer = solve(problem, 60)
    assert problem.fits(answer.choice)
    assert answer.gap < 0.02


@pytest.mark.parametrize("seed", every(3, range(25)))
@pytest.mark.parametrize("tight", [0.1, 0.5, 0.9])
def test_bound_is_never_above_the_optimum(seed, tight):
    problem = dense(seed, tight)
    state = reduced(problem)
    if state.infeasible or not len(state.nodes):
        return
    ascent = Ascent(network(state.rest(), state.room))
    ascent.climb(60)
    assert ascent.bound + state.offset <= optimum(problem) + 1e-6


@pytest.mark.parametrize("seed", range(10))
def test_local_search_gives_choices_that_fit_and_cost_what_it_says(seed):
    problem = dense(seed, 0.7, nodes=12)
    state = reduced(problem)
    if state.infeasible or not len(state.nodes):
        return
    net = network(state.rest(), state.room)
    ascent, local = Ascent(net), LocalSearch(net, seed)
    found = local.repair(ascent.climb(20), ascent.best_price)
    if found is None:
        return
    assert local.offer(found)
    before = local.cost
    local.improve(ascent.best_price)
    assert local.cost <= before
    choice = state.restored(local.best)
    assert problem.fits(choice)
    assert problem.cost_of(choice) == pytest.approx(local.cost + state.offset)


def test_time_zero_returns_the_start():
    problem = dense(1)
    start = solve(problem, 20).choice
    answer = solve(problem, seconds=0, start=start)
    assert answer.choice.tolist() == start.tolist()
    assert answer.status == "feasible"
    assert answer.bound <= answer.cost


def test_time_zero_without_a_start_is_unknown():
    answer = solve(dense(0), seconds=0)
    assert (answer.status, answer.choice, answer.cost) == ("unknown", None, math.inf)


def test_answer_is_never_worse_than_the_start():
    problem = dense(3)
    best = solve(problem, 20)
    assert solve(problem, 0.001, start=best.choice).cost <= best.cost


def test_start_that_does_not_fit_is_said_and_not_returned():
    problem = PairwiseProblem.of([[0, 5]], [[9, 1]], [[0, 1]], usage_limit=3)
    answer = solve(problem, seconds=0, start=[0])
    assert answer.choice is None
    assert "uses 9 of 3" in answer.notes[0]


def test_limit_that_nothing_meets_is_infeasible_with_the_least_usage():
    problem = PairwiseProblem.of([[0, 5], [1, 2]], [[9, 6], [7, 5]], [[0, 2], [1, 3]], usage_limit=10)
    answer = solve(problem, 5)
    assert answer.status == "infeasible"
    assert answer.least_usage == 11


def test_equal_seeds_give_equal_answers():
    problem = random_problem(4, nodes=40, most=5, edges=90, forbidden=0.05, tight=0.5)
    first, second = (solve(problem, 30, seed=4) for _ in range(2))
    assert first.choice.tolist() == second.choice.tolist()
    assert [(i.cost, i.bound) for i in first.incumbents] == [(i.cost, i.bound) for i in second.incumbents]


def test_progress_hears_costs_that_fall_and_bounds_that_rise():
    heard = []
    answer = solve(dense(3), 20, progress=heard.append)
    costs, bounds = [i.cost for i in heard], [i.bound for i in heard]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    assert heard[-1].gap == answer.gap == 0


def test_interrupt_returns_the_incumbent_and_the_bound():
    problem = random_problem(7, nodes=60, most=6, edges=150, forbidden=0.0, tight=0.4)

    def press(incumbent):
        if math.isfinite(incumbent.cost):
            raise KeyboardInterrupt

    answer = solve(problem, 30, progress=press)
    assert problem.fits(answer.choice)
    assert "stopped by Ctrl-C" in answer.notes
    assert answer.bound <= answer.cost
    assert answer.seconds < 30


def rest_of(seed: int):
    for offset in range(100):
        problem = random_problem(seed + offset, nodes=14, most=4, edges=30, forbidden=0.0, tight=0.4)
        state = reduced(problem)
        if not state.infeasible and len(state.nodes):
            return network(state.rest(), state.room)
    raise AssertionError("no problem is left of any seed")


@pytest.mark.parametrize("pulp_has_a_solver", [True, False])
def test_every_solver_gives_the_same_optimum(tmp_path, monkeypatch, pulp_has_a_solver):
    net = rest_of(0)
    by_highs = solve_exactly(net, np.arange(len(net.room)), 30)
    if not pulp_has_a_solver:
        nothing = f"import pulp, runpy; pulp.listSolvers = lambda **_: []; runpy.run_path({str(exact_module.WORKER)!r},"
        (tmp_path / "worker.py").write_text(f"{nothing} run_name='__main__')")
        monkeypatch.setattr(exact_module, "WORKER", tmp_path / "worker.py")
    monkeypatch.setattr(exact_module.importlib.util, "find_spec", lambda name: None)
    instead = solve_exactly(net, np.arange(len(net.room)), 30)
    assert by_highs.done
    assert instead.done
    assert cost_of(net, by_highs.choice) == cost_of(net, instead.choice)
    assert instead.bound == pytest.approx(cost_of(net, instead.choice), rel=1e-6)
    assert not by_highs.notes
    assert len(instead.notes) == 1
    assert "HiGHS is not installed" in instead.notes[0]


def test_what_libraries_print_is_not_taken_for_what_highs_found(tmp_path, monkeypatch):
    chatty = tmp_path / "highspy"
    chatty.mkdir()
    real = Path(importlib.util.find_spec("highspy").origin).parent
    chatty.joinpath("__init__.py").write_text(
        f"import os, sys\nos.write(1, b'Running HiGHS\\n')\nprint('{{}} and more')\n__path__ = [{str(real)!r}]\n"
        f"exec(open({str(real / '__init__.py')!r}).read())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    net = rest_of(0)
    answer = solve_exactly(net, np.arange(len(net.room)), 30)
    assert answer.done
    assert not answer.notes


def test_times_at_which_an_answer_is_over_are_added_until_it_fits():
    net = rest_of(0)
    every, none = (solve_exactly(net, np.arange(count), 30) for count in (len(net.room), 0))
    assert every.done
    assert none.done
    assert not none.notes
    assert cost_of(net, none.choice) == cost_of(net, every.choice) == pytest.approx(none.bound)
    assert not (used_over_time(net, none.choice) > net.room).any()


def _ends_highspy_by(crash: str) -> str:
    """A worker that is `crash` where highspy is asked, and the real one where others are."""
    real = f"import runpy; runpy.run_path({str(exact_module.WORKER)!r}, run_name='__main__')"
    return f"import sys\nif sys.argv[1] == 'highspy':\n    {crash}\nelse:\n    {real}\n"


@pytest.mark.parametrize(
    ("crash", "says"),
    [("import os; os.abort()", "was ended by signal 6"), ("raise SystemExit(3)", "ended with status 3")],
)
def test_crash_of_highs_is_said_and_another_answers(tmp_path, monkeypatch, crash, says):
    worker = tmp_path / "worker.py"
    worker.write_text(_ends_highspy_by(crash))
    monkeypatch.setattr(exact_module, "WORKER", worker)
    net = rest_of(0)
    answer = solve_exactly(net, np.arange(len(net.room)), 30)
    assert says in answer.notes[0]
    assert answer.done
    assert answer.choice is not None


def test_highs_that_ends_before_it_has_read_the_problem_leaves_no_pipe_open(tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text("raise SystemExit(3)")
    monkeypatch.setattr(exact_module, "WORKER", worker)
    state = reduced(random_problem(0, nodes=1500, most=4, edges=6000, forbidden=0.0, tight=None))
    net = network(state.rest(), state.room)
    assert net.cost.nbytes + net.edge_cost.nbytes > 2**16  # more than a pipe holds
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        notes = solve_exactly(net, np.arange(0), 1).notes
        gc.collect()
    assert "ended with status 3" in notes[0]
    assert not [w for w in caught if issubclass(w.category, ResourceWarning)]


def test_without_any_solver_choices_and_bounds_come_all_the_same(tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text("raise SystemExit(3)")
    monkeypatch.setattr(exact_module, "WORKER", worker)
    problem = random_problem(7, nodes=40, most=5, edges=90, forbidden=0.0, tight=0.4)
    answer = solve(problem, 3)
    assert problem.fits(answer.choice)
    assert -math.inf < answer.bound <= answer.cost
    assert answer.notes == (
        "HiGHS ended with status 3: PuLP's solver or SciPy's instead",
        "what came instead ended with status 3",
    )


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_ends_solver_and_process_without_a_trace():
    code = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell in the background has it ignored
        "from autopart.pairwise import solve\n"
        "from tests.pairwise.random_problems import random_problem\n"
        "heard = lambda incumbent: print('heard', flush=True)\n"
        "problem = random_problem(11, nodes=400, most=9, edges=1600, forbidden=0.0, tight=0.3)\n"
        "print(solve(problem, 100, progress=heard))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True
    ) as process:
        while "heard" not in process.stdout.readline():
            pass
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        said, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "stopped by Ctrl-C" in said
    assert "bound" in said
    assert not errors


def test_killed_highs_is_said_and_another_answers(tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text(_ends_highspy_by("import time; time.sleep(600)"))
    monkeypatch.setattr(exact_module, "WORKER", worker)
    processes = []
    real = subprocess.Popen

    def started(*args, **kwargs):
        process = real(*args, **kwargs)
        if args[0][-1] == "highspy":
            processes.append(process)
            threading.Timer(0.5, lambda: os.kill(process.pid, signal.SIGKILL)).start()
        return process

    monkeypatch.setattr(exact_module.subprocess, "Popen", started)
    net = rest_of(0)
    answer = solve_exactly(net, np.arange(len(net.room)), 30)
    assert len(processes) == 1
    assert "was ended by signal 9" in answer.notes[0]
    assert answer.done


def test_highs_that_goes_on_after_its_time_is_ended_and_said_and_nothing_follows(tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text("import sys, time; sys.stdin.buffer.read(); time.sleep(600)")
    monkeypatch.setattr(exact_module, "WORKER", worker)
    monkeypatch.setattr(exact_module, "GRACE_S", 0.1)
    net = rest_of(0)
    began = time.monotonic()
    answer = solve_exactly(net, np.arange(len(net.room)), 0.2)
    assert time.monotonic() - began < 10
    assert answer.notes == ["HiGHS went on 0.1 s after its time limit, and was ended"]
    assert not answer.done


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"seconds": -1}, "seconds is -1"),
        ({"seconds": 10**400}, "seconds is 1000"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"progress": 3}, "progress is 3"),
        ({"start": [0]}, "choice has shape"),
        ({"start": [99] * 9}, r"choice\[0\] is 99"),
    ],
)
def test_nonsense_is_refused(arguments, says):
    with pytest.raises(PairwiseError, match=says):
        solve(dense(0), **{"seconds": 1, **arguments})


def test_problem_without_nodes_is_solved():
    answer = solve(PairwiseProblem.of([]), 1)
    assert (answer.cost, answer.status) == (0.0, "optimal")


def test_costs_in_millionths_are_solved_like_costs_in_millions():
    whole = dense(4)
    small = PairwiseProblem(
        whole.strategy_start, whole.cost * 1e-8 + 1e-9 / 3, whole.usage, whole.live,
        whole.edge_nodes, whole.edge_start, whole.edge_cost * 1e-8, whole.usage_limit,
    )  # fmt: skip
    answer = solve(small, 20)
    assert answer.status == "optimal"
    assert answer.cost == pytest.approx(optimum(small), rel=1e-9)
    assert np.isfinite(answer.bound)
