"""Is the integer program's answer optimal where that can be checked, and how far from its bound is it elsewhere?

    python -m experiments.ilp                     programs small enough to enumerate, on {a:4} and {a:4,b:2}
    python -m experiments.ilp --large T32 UNet    training steps on {batch:16,model:2}: gap, seconds by part
    python -m experiments.ilp --cube T32 UNet     the same on {x:4,y:4,z:2}
    python -m experiments.ilp --bounds T32        their bounds by themselves: CPU seconds of the parts
    python -m experiments.ilp --depth 12 24 48    decoders of so many layers: CPU seconds of the parts
    python -m experiments.ilp --gaps gnn_forces   every optimizer for the same CPU seconds, against the one bound
    python -m experiments.ilp --workers UNet      how evenly two workers share cost tables and neighbourhoods
    python -m experiments.ilp --figure            the gaps that are kept, against the bounds that are: table, figure.png

Each run replaces its rows in `results.json`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import autopart as ap
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.compiled.simulator import Simulator
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.pairwise import solve
from autopart.pairwise.anytime import load_kernels
from autopart.search.budget import Budget
from autopart.search.evaluation.cost import StepSeconds
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.ilp.bound import ROUNDING
from autopart.search.ilp.decisive_moves import decisive_moves
from autopart.search.ilp.every_op import every_op
from autopart.search.ilp.held_bytes import Liveness
from autopart.search.ilp.lowered_moves import least_jobs
from autopart.search.ilp.sharding_model import Model
from autopart.search.ilp.shared_moves import share_moves
from autopart.search.search import Search, search
from autopart.search.space.decision_space import DecisionSpace
from autopart.spmd.device_local import LoweringOptions
from experiments.automatic.cases import CASES, MESH, traced
from experiments.ilp.cpu_clock import counted_in_cpu
from experiments.ilp.small import MESHES, SMALL, partitioning
from experiments.ilp.workers import shared
from experiments.models import t32

CUBE = ap.Mesh({"x": 4, "y": 4, "z": 2}, device="tpu_v3")
DEEP = "48 layers"
RESULTS = Path(__file__).with_name("results.json")
KEPT = ("evaluations", "seconds")
COMPARED = {
    "greedy": ap.Greedy,
    "beam": ap.Beam,
    "annealing": ap.Annealing,
    "mcts": ap.MCTS,
    "ilp": ap.ILP,
    "hybrid": ap.Hybrid,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="experiments.ilp")
    parser.add_argument("--large", nargs="*", choices=[c.name for c in CASES], metavar="NAME", default=None)
    parser.add_argument("--cube", nargs="*", choices=[c.name for c in CASES], metavar="NAME", default=None)
    parser.add_argument("--gaps", nargs="*", choices=[DEEP, *(c.name for c in CASES)], metavar="NAME", default=None)
    parser.add_argument("--optimizers", nargs="*", choices=COMPARED, default=list(COMPARED), help="of --gaps")
    parser.add_argument("--bounds", nargs="*", choices=[DEEP, *(c.name for c in CASES)], metavar="NAME", default=None)
    parser.add_argument("--workers", nargs="*", choices=[c.name for c in CASES], metavar="NAME", default=None)
    parser.add_argument("--figure", action="store_true")
    parser.add_argument("--depth", nargs="*", type=int, metavar="LAYERS", default=None)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search but the small ones")
    options = parser.parse_args()
    if options.figure:
        table_and_figure()
    elif options.gaps is not None:
        for name in options.gaps or [DEEP, *(c.name for c in CASES)]:
            record("gaps", [gaps(name, options.seconds, options.optimizers)])
    elif options.cube is not None:
        for name in options.cube or ["T32", "UNet", "GNS 8,192"]:
            record("cube", [large(name, options.seconds, CUBE)])
    elif options.workers is not None:
        for name in options.workers or ["UNet", "T32"]:
            record("workers", [shared(name, start_of(name))])
    elif options.depth is not None:
        for layers in options.depth or (12, 24, 48):
            record("depth", [to_the_end(str(layers), deep(layers), options.seconds)])
    elif options.bounds is not None:
        for name in options.bounds or [DEEP, *(c.name for c in CASES)]:
            record("bounds", [to_the_end(name, start_of(name).program, options.seconds)])
    elif options.large is None:
        record("small", [small(name, mesh) for name in SMALL for mesh in MESHES])
    else:
        for name in options.large or [c.name for c in CASES]:
            record("large", [large(name, options.seconds)])


def reported(
    start: Partitioning, optimizer: Any, budget: Budget, *, baselines: bool = True
) -> tuple[dict[str, Any], float, float]:
    """A search's report, its seconds, and its CPU seconds in this process."""
    wanted = Search(axes=start.mesh.axis_names, optimizer=optimizer, budget=budget, baselines=baselines, cache=False)
    began, cpu = time.monotonic(), time.process_time()
    report = search(start, wanted).report
    return report, time.monotonic() - began, time.process_time() - cpu


def small(name: str, mesh: str) -> dict[str, Any]:
    """One program enumerated, planned without baselines or refinement, and planned with them."""
    start = partitioning(name, MESHES[mesh])
    exhausted, exhausted_s, _ = reported(start, ap.Exhaustive(depth=3), Budget(20_000))
    plan, _, _ = reported(start, ap.ILP(refined=False), Budget(100), baselines=False)
    found, seconds, _ = reported(start, ap.ILP(), Budget(400))
    best = exhausted["best"]["score"]
    row: dict[str, Any] = {
        "name": name,
        "mesh": mesh,
        "exhaustive_s": best,
        "states": exhausted["evaluations"],
        "plan": plan["best"]["score"] / best,
        "ilp": found["best"]["score"] / best,
        "bound": found["lower_bound"] / best,
        "gap": found["gap"],
        "seconds": seconds,
        "exhaustive_seconds": exhausted_s,
    }
    verdict = "" if row["bound"] <= min(1.0, row["ilp"]) and row["ilp"] <= 1 + 1e-9 else "  FAILED"
    print(
        f"{name:12} {mesh:10} exhaustive {best * 1e6:8.1f} us of {row['states']:5} states   "
        f"plan alone {row['plan']:.3f}   ILP {row['ilp']:.3f}   bound {row['bound']:.3f}{verdict}",
        flush=True,
    )
    return row


def start_of(name: str, mesh: ap.Mesh = MESH) -> Partitioning:
    """A training step that nothing has been decided about."""
    program = deep(48) if name == DEEP else next(c for c in CASES if c.name == name).program
    return Partitioning(program, mesh)


def large(name: str, of_s: float, mesh: ap.Mesh = MESH) -> dict[str, Any]:
    """One training step: the answer, the bound, and how the plan compares with its program."""
    start = start_of(name, mesh)
    load_kernels()
    with counted_in_cpu():
        report, seconds, cpu_s = reported(start, ap.ILP(), Budget(None, of_s))
    best = report["best"]
    row = {
        "name": name,
        "ops": start.program.op_count,
        **{key: best[key] for key in ("step_s", "peak_bytes", "fits", "score")},
        **{key: report[key] for key in ("lower_bound", "gap", "rounds", "evaluations", "seconds_by_part", "notes")},
        "seconds": seconds,
        "cpu_s": cpu_s,
    }
    print(
        f"{name:14} step {best['step_s']:.4g} s  {'fits' if best['fits'] else 'over memory'}  "
        f"bound {report['lower_bound']:.4g}  gap {report['gap']:.1%}  {seconds:.0f} s (CPU {cpu_s:.0f} s)  "
        f"{report['seconds_by_part']}",
        flush=True,
    )
    return row


def deep(layers: int) -> Program:
    """A training step of a decoder of T32's width."""
    return traced(t32, dataclasses.replace(t32.Config(), layers=layers))


def to_the_end(name: str, program: Program, prices_s: float) -> dict[str, Any]:
    """The bound by itself, with so many CPU seconds at most for prices; nodes of the plan and of the bound, and CPU
    seconds of their parts."""
    start = Partitioning(program, MESH)
    task = SearchTask(start, DecisionSpace.of(start, MESH.axis_names), LoweringOptions(), None, StepSeconds())
    state = Simulator.of(start.program, MESH).run(lower_for_device(start))
    load_kernels()
    at = [time.process_time()]

    def passed() -> float:
        at.append(time.process_time())
        return at[-1] - at[-2]

    model = Model.of(task, grouped=True)
    jobs = model.jobs()
    model = model.priced(jobs, [job.answer(task) for job in jobs])
    row: dict[str, Any] = {"name": name, "ops": start.program.op_count, "build_s": passed()}
    planned = model.planned(state, Liveness.of_peaks(model.nodes, [state]))
    solve(planned, seconds=30.0, gap=2e-3)
    row |= {"plan_nodes": planned.nodes, "plan_s": passed()}
    asked = least_jobs(decisive_moves(model))
    while asked and time.process_time() - at[-1] < prices_s:
        model.table.learn_least(asked, [job.answer(task) for job in asked])
        asked = least_jobs(decisive_moves(model))
        if not asked:
            share_moves(model, prices_s)
            asked = least_jobs(decisive_moves(model))
    row |= {"prices_s": passed(), "prices": len(model.table.planned), "all_that_decide": not asked}
    share_moves(model, prices_s)
    least = replace(every_op(model), usage_limit=None)
    row |= {"bound_nodes": least.nodes, "bound": solve(least, seconds=60.0, only_bound=True).bound, "bound_s": passed()}
    print(row, flush=True)
    return row


def gaps(name: str, seconds: float, optimizers: list[str]) -> dict[str, Any]:
    """One training step: what each optimizer finds in so many CPU seconds after the named schedules, over the bound."""
    start = start_of(name)
    load_kernels()
    with counted_in_cpu():
        reports = {n: reported(start, COMPARED[n](), Budget(None, seconds))[0] for n in optimizers}
    found = {n: {"score": r["best"]["score"]} | {k: r[k] for k in KEPT} for n, r in reports.items()}
    row = {"name": name, "of_s": seconds, "lower_bound": max(r.get("lower_bound", 0.0) for r in reports.values())}
    print(told(row | {"optimizers": found}), flush=True)
    return row | {"optimizers": found}


def told(row: dict[str, Any]) -> str:
    """A line of the table: the bound, and each optimizer's score, gap and evaluations."""
    bound = row["lower_bound"]
    cells = [
        f"{found['score']:.6g}, {1 - bound / found['score']:.0%} ({found['evaluations']:,})"
        for found in row["optimizers"].values()
    ]
    return f"| {row['name']} | {bound:.4g} | " + " | ".join(cells) + " |"


def table_and_figure() -> None:
    """Prints the rows of `--gaps` as a table and draws them, each against the best bound that is known."""
    from experiments.ilp.figure import draw

    kept = json.loads(RESULTS.read_text())["gaps"]
    rows = [row | {"lower_bound": max(row["lower_bound"], known_bound(row["name"]))} for row in kept]
    for row in rows:
        print(told(row))
    draw(rows, RESULTS.with_name("figure.png"))


def known_bound(name: str) -> float:
    """The bound that `--bounds` found last, over all states that fit or not; 0 where it has not been run."""
    rows = json.loads(RESULTS.read_text()).get("bounds", []) if RESULTS.exists() else []
    return max((row["bound"] * (1 - ROUNDING) for row in rows if row["name"] == name), default=0.0)


def record(kind: str, rows: list[dict[str, Any]]) -> None:
    """Replaces the rows of these programs."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept = {(r["name"], r.get("mesh"), r.get("of_s")): r for r in [*known.get(kind, []), *rows]}
    RESULTS.write_text(json.dumps({**known, kind: list(kept.values())}, indent=1) + "\n")


if __name__ == "__main__":
    main()
