"""How fast is the search: beside XLA's compile time, with depth, and with workers?"""

from __future__ import annotations

import dataclasses
import os
import platform
import time
import warnings
from typing import Any

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.evaluation.jobs import Job
from autopart.search.search import Search, search
from autopart.search.space.decision_space import DecisionSpace
from experiments.automatic.cases import CASES, MESH, T32_SCHEDULES, traced
from experiments.automatic.quality import row
from experiments.models import t32

BUDGET = ap.Budget(400)
"""Enough for T32: what is found is better than every manual schedule, which `against_xla` checks."""


def searched(program: Any, executor: Any = "serial", budget: ap.Budget = BUDGET) -> dict[str, Any]:
    """The report of an unseeded search, and all of its seconds: of the clock, and of this process's CPU."""
    start, cpu = time.perf_counter(), time.process_time()
    wanted = Search(("batch", "model"), ap.MCTS(seeded=False), budget, executor=executor, baselines=False, cache=False)
    report = search(Partitioning(program, MESH), wanted).report
    return {**report, "all_seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}


def machine() -> str:
    """The machine in words."""
    return f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}, load {os.getloadavg()[0]:.1f}"


def warm() -> None:
    """Compiles the kernels, so that they are not timed."""
    searched(traced(t32, dataclasses.replace(t32.Config(), layers=1)), budget=ap.Budget(20))


def depth() -> list[dict[str, Any]]:
    """Seconds of the same budget on 12, 24 and 48 layers."""
    warm()
    print(f"\nT32 by depth, {BUDGET.evaluations} evaluations ({machine()})")
    rows = []
    for layers in (12, 24, 48):
        program = traced(t32, dataclasses.replace(t32.Config(), layers=layers))
        report = searched(program)
        seconds = report["cpu_seconds"]
        rows.append({"layers": layers, "ops": program.op_count, "cpu_s": seconds, "wall_s": report["all_seconds"]})
        print(
            f"  {layers:3} layers  {program.op_count:7,} ops  {seconds:6.1f} s of CPU  {report['evaluations']} states"
        )
    growth = rows[-1]["cpu_s"] / rows[0]["cpu_s"]
    print(f"  4 x the layers take {growth:.2f} x as long")
    return rows


def workers() -> dict[str, Any]:
    """Evaluations per second of two workers over one, on processes and on Ray: a batch of jobs, and a whole search."""
    from autopart.search.execution.ray import Ray

    warm()
    program = traced(t32, t32.Config())
    print(f"\nT32 by workers ({machine()})")
    rates: dict[str, Any] = {"machine": machine()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in (("processes", ap.Processes), ("ray", Ray)):
            batch = [throughput(program, make(count)) for count in (1, 2)]
            whole = [searched(program, make(count), ap.Budget())["evaluations_per_s"] for count in (1, 2)]
            rates[name] = {"batch_per_s": batch, "search_per_s": whole}
            for what, (one, two) in (("batch", batch), ("search", whole)):
                print(f"  {name:9} {what:6} {one:6.1f} and {two:6.1f} evaluations/s: {two / one:.2f} x")
    return rates


def throughput(program: Any, executor: Any, jobs: int = 150) -> float:
    """States per second of a batch of rollouts, after as many that fill the workers' caches of plans."""
    partitioning = Partitioning(program, MESH)
    space = DecisionSpace.of(partitioning, MESH.axis_names)
    session = executor.start(SearchTask(partitioning, space, ap.LoweringOptions(), None, ap.StepSeconds()))
    try:
        list(session.run([Job((), rollout=3, seed=seed) for seed in range(jobs)], float("inf")))
        start = time.perf_counter()
        found = session.run([Job((), rollout=3, seed=seed) for seed in range(jobs, 2 * jobs)], float("inf"))
        states = sum(len(result) for _, result in found)
        return states / (time.perf_counter() - start)
    finally:
        session.close()


def against_xla() -> dict[str, Any]:
    """Seconds of AllAuto on T32 over XLA's seconds to compile the program it found, for 32 host devices.

    By the clock, and by CPU seconds, which other processes change less: those of the same search with its decision
    space, and of all of XLA's threads.
    """
    import jax

    warm()
    config = t32.Config()
    auto = ap.AutomaticPartition(
        ["batch", "model"], ap.MCTS(seeded=False), BUDGET, baselines=False, cache=False, progress=False, name="AllAuto"
    )
    step = ap.jit(t32.step(config), MESH, [auto], donate_argnums=(0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ap.SearchWarning)
        lowered = step.lower(*t32.abstract_args(config))
    report = lowered.metadata.tactics[-1].report
    print(f"\nT32 AllAuto, {BUDGET.evaluations} evaluations ({machine()})")
    print(f"  search {report['seconds']:6.1f} s, {report['evaluations_per_s']:.0f} evaluations/s")
    manual = {name: row(CASES[0], name, schedule) for name, schedule in T32_SCHEDULES.items()}
    best = min(manual.values(), key=lambda r: r.rank)
    found = report["best"]
    print(f"  found {found['step_s']:.2f} s {found['peak_bytes'] / 1e9:.2f} GB, objective {found['score']:.2f}")
    print(f"  {best.schedule} {best.step_s:.2f} s {best.peak_bytes / 1e9:.2f} GB, objective {best.score:.2f}")
    search_cpu_s = searched(traced(t32, config))["cpu_seconds"]
    start, cpu = time.perf_counter(), time.process_time()
    lowered.compile()
    xla_s, xla_cpu_s = time.perf_counter() - start, time.process_time() - cpu
    ratio, cpu_ratio = report["seconds"] / xla_s, search_cpu_s / xla_cpu_s
    print(f"  XLA:CPU compiles the found program in {xla_s:.1f} s: search / compile = {ratio:.2f}")
    print(f"  by CPU {search_cpu_s:.1f} s and {xla_cpu_s:.1f} s: {cpu_ratio:.2f}")
    return {
        "found": found,
        "best_manual": vars(best),
        "search_s": report["seconds"],
        "xla_compile_s": xla_s,
        "ratio": ratio,
        "search_cpu_s": search_cpu_s,
        "xla_cpu_s": xla_cpu_s,
        "cpu_ratio": cpu_ratio,
        "machine": machine(),
        "jax": jax.__version__,
    }
