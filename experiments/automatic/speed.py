"""How fast is the search: beside XLA's compile time, with depth, and with workers?"""

from __future__ import annotations

import dataclasses
import os
import platform
import time
import warnings
from typing import Any

import autopart as ap
from autopart.core.partitioning import Partitioning
from autopart.search.search import Search, search
from experiments.automatic.cases import MESH, traced
from experiments.models import t32

BUDGET = ap.Budget(600)


def searched(program: Any, executor: Any = "here", budget: ap.Budget = BUDGET) -> dict[str, Any]:
    """The report of an unseeded search, and all of its seconds: space, workers and search."""
    start = time.perf_counter()
    wanted = Search(("batch", "model"), ap.MCTS(seeded=False), budget, executor=executor, cache=False)
    report = search(Partitioning(program, MESH), wanted).report
    return {**report, "all_seconds": time.perf_counter() - start}


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
        rows.append({"layers": layers, "ops": program.op_count, "seconds": report["all_seconds"]})
        rate = report["evaluations_per_s"]
        print(
            f"  {layers:3} layers  {program.op_count:7,} ops  {report['all_seconds']:6.1f} s  {rate:5.0f} evaluations/s"
        )
    growth = rows[-1]["seconds"] / rows[0]["seconds"]
    print(f"  4 x the layers take {growth:.2f} x as long")
    return rows


def workers() -> dict[str, Any]:
    """Evaluations per second of two workers over one, on processes and on Ray."""
    warm()
    program = traced(t32, t32.Config())
    print(f"\nT32 by workers, {BUDGET.evaluations} evaluations ({machine()})")
    from autopart.search.ray_executor import Ray

    rates: dict[str, Any] = {"machine": machine()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in (("processes", ap.Processes), ("ray", Ray)):
            for count in (1, 2):
                searched(program, make(count), ap.Budget(16))
                report = searched(program, make(count))
                rates[f"{name} {count}"] = report["evaluations_per_s"]
                print(f"  {name:9} {count}  {report['evaluations_per_s']:6.1f} evaluations/s")
            rates[f"{name} ratio"] = rates[f"{name} 2"] / rates[f"{name} 1"]
            print(f"  {name:9} two over one: {rates[f'{name} ratio']:.2f} x")
    return rates


def against_xla() -> dict[str, Any]:
    """Seconds of AllAuto on T32 over XLA's seconds to compile the program it found, for 32 host devices."""
    import jax

    warm()
    config = t32.Config()
    auto = ap.AutomaticPartition(
        ["batch", "model"], ap.MCTS(seeded=False), BUDGET, cache=False, progress=False, name="AllAuto"
    )
    step = ap.jit(t32.step(config), MESH, [auto], donate_argnums=(0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ap.SearchWarning)
        lowered = step.lower(*t32.abstract_args(config))
    report = lowered.metadata.tactics[-1].report
    print(f"\nT32 AllAuto, {BUDGET.evaluations} evaluations ({machine()})")
    print(f"  search {report['seconds']:6.1f} s, {report['evaluations_per_s']:.0f} evaluations/s")
    start = time.perf_counter()
    lowered.compile().lower().compile()
    xla_s = time.perf_counter() - start
    ratio = report["seconds"] / xla_s
    print(f"  XLA:CPU compiles the found program in {xla_s:.1f} s: search / compile = {ratio:.2f}")
    return {
        "search_s": report["seconds"],
        "xla_compile_s": xla_s,
        "ratio": ratio,
        "machine": machine(),
        "jax": jax.__version__,
    }
