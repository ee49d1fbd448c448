"""Programs whose evaluations are long: BigBird of 1.7 million ops, and a search by two processes.

    python -m experiments.search_speed.long                both
    python -m experiments.search_speed.long --only large   import, decision space, evaluations, a search of 200
    python -m experiments.search_speed.long --only workers a default search, of 1,000, in this process and by two
    python -m experiments.search_speed.long --only unet    that of a diffusion model's UNet, SDXL's

The large program has 24 equal layers, most of whose states are costed by a program with fewer of them. The one for two
processes has two layers of eight heads, so that every state is costed whole. What jax needs to trace and lower is
reported apart.

Seconds are the clock's, of this process's CPU, and of its workers' CPU. The clock's ratio counts on a quiet machine
alone. That of CPU seconds, of this process and of the mean worker, counts on any, but knows no waiting: it is the most
that the clock could show.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

import autopart as ap
from autopart.api.tracing.trace import Options, trace
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.search.evaluation.evaluator import Evaluator, SearchTask
from autopart.search.search import Search, search
from autopart.search.space.decision_space import DecisionSpace
from autopart.spmd.device_local import LoweringOptions
from experiments import kept
from experiments.automatic.cases import workload
from experiments.models import bigbird
from experiments.search_speed.measure import forget, stage_seconds, state_seconds, walks

RESULTS = Path(__file__).with_name("long.json")
MESH = ap.Mesh({"batch": 8, "model": 4}, device="tpu_v3")
LARGE = bigbird.Config(blocks=50)
WHOLE = bigbird.Config(layers=2, heads=8)
EVALUATIONS, STATES = 200, 6
DEFAULT_EVALUATIONS = 1000

Made = TypeVar("Made")


def timed(work: Callable[[], Made]) -> tuple[Made, dict[str, float]]:
    """What `work` makes, with seconds by the clock, of this process's CPU, and of processes that it has ended."""
    wall, cpu, ended = time.perf_counter(), time.process_time(), sum(os.times()[2:4])
    made = work()
    return made, {
        "wall_s": round(time.perf_counter() - wall, 2),
        "cpu_s": round(time.process_time() - cpu, 2),
        "workers_cpu_s": round(sum(os.times()[2:4]) - ended, 2),
    }


def traced(config: bigbird.Config) -> tuple[Program, dict[str, Any]]:
    """The program of a training step, and the seconds of jax and of the import, of which passes take a part."""
    step, args = bigbird.step(config), bigbird.abstract_args(config)
    _, jax_s = timed(lambda: jax.jit(step, keep_unused=True).trace(*args).lower(lowering_platforms=("tpu",)))
    found, import_s = timed(lambda: trace(step, Options(donate_argnums=(0, 1)), "tpu", MESH, args, {}))
    return found.program, {"jax": jax_s, "import": import_s}


def searched(program: Program, executor: Any, evaluations: int = EVALUATIONS) -> tuple[Any, dict[str, float]]:
    """A search from nothing."""
    wanted = Search(axes=MESH.axis_names, budget=ap.Budget(evaluations), cache=False, executor=executor)
    return timed(lambda: search(Partitioning(program, MESH), wanted))


def evaluated(program: Program, seconds: dict[str, Any]) -> dict[str, float]:
    """CPU seconds of an evaluation, as a search does it and with the whole program; adds to `seconds` those before."""
    partitioning = Partitioning(program, MESH)
    space, seconds["space"] = timed(lambda: DecisionSpace.of(partitioning, MESH.axis_names))
    task = SearchTask(partitioning, space, LoweringOptions(), None, ap.StepSeconds())
    evaluator, seconds["evaluator"] = timed(lambda: Evaluator(task))
    states, whole = list(walks(evaluator, STATES)), Evaluator(task)
    stage_seconds(whole, ())
    whole_s = [float(stage_seconds(whole, decisions)[0].sum()) for decisions in states]
    forget(evaluator)
    fewer_s = [state_seconds(evaluator, decisions) for decisions in states]
    found = {
        "evaluation_s": round(float(np.mean(fewer_s)), 3),
        "whole_evaluation_s": round(float(np.mean(whole_s)), 3),
    }
    print(f"space {seconds['space']}, evaluator {seconds['evaluator']}, {found}", flush=True)
    return found


def large() -> dict[str, Any]:
    """Import, decision space, evaluations and a search of the large program."""
    warmed, _ = traced(bigbird.SMALL)
    searched(warmed, "serial")
    program, seconds = traced(LARGE)
    print(f"{program.op_count:,} ops; jax {seconds['jax']}, import {seconds['import']}", flush=True)
    evaluation = evaluated(program, seconds)
    found, seconds["search"] = searched(program, "serial")
    report = found.report
    print(f"search: {seconds['search']}, {report['evaluations']} evaluations in {report['seconds']:.1f} s", flush=True)
    return {
        "ops": program.op_count, "seconds": seconds, **evaluation, "evaluations": report["evaluations"],
        "evaluations_s": round(report["seconds"], 2), "start_up_s": round(report["start_up_s"], 2),
        "step_s": [report["start"]["step_s"], report["best"]["step_s"]],
        "peak_rss_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2),
    }  # fmt: skip


def workers() -> dict[str, Any]:
    """BigBird of two layers."""
    return shared(traced(WHOLE)[0], DEFAULT_EVALUATIONS)


def unet() -> dict[str, Any]:
    """SDXL's UNet."""
    return shared(workload("sd_unet_train"), EVALUATIONS)


def shared(program: Program, evaluations: int) -> dict[str, Any]:
    """The same search in this process, which has loaded the kernels, and by two others."""
    searched(traced(bigbird.SMALL)[0], "serial")
    ways = {"serial": "serial", "processes": ap.Processes(2)}
    rows, answers = {}, []
    for name, executor in ways.items():
        found, seconds = searched(program, executor, evaluations)
        report = found.report
        answers.append((found.actions, report["best"], report["history"]))
        rows[name] = {
            **seconds, "start_up_s": round(report["start_up_s"], 2), "evaluations_s": round(report["seconds"], 2),
        }  # fmt: skip
        print(f"{program.op_count:,} ops, {name}: {rows[name]}", flush=True)
    alone, two = rows["serial"], rows["processes"]
    ratio = alone["wall_s"] / two["wall_s"]
    cpu_ratio = alone["cpu_s"] / (two["cpu_s"] + two["workers_cpu_s"] / 2)
    same = answers[0] == answers[1]
    print(f"two processes are {ratio:.2f} times as fast, {cpu_ratio:.2f} by CPU; the same answer: {same}", flush=True)
    ratios = {"ratio": round(ratio, 2), "cpu_ratio": round(cpu_ratio, 2)}
    return {"ops": program.op_count, "evaluations": evaluations, **rows, **ratios, "same_answer": same}


PARTS = {"large": large, "workers": workers, "unet": unet}


def main() -> None:
    parser = argparse.ArgumentParser(prog="experiments.search_speed.long")
    parser.add_argument("--only", choices=PARTS)
    only = parser.parse_args().only
    found = {name: part() for name, part in PARTS.items() if only in (None, name)}
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept.write(RESULTS, before | found)


if __name__ == "__main__":
    main()
