"""Is the schedule that a search finds, without being shown any, at least as good as those people write?"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import autopart as ap
from autopart.api.tactics.schedule import run_schedule
from autopart.base.units import seconds_text
from autopart.costmodel.hardware.devices import device
from experiments.automatic.cases import CASES, MESH, Case
from experiments.models.tactics import BP, MP, Z3

BUDGET = ap.Budget(1500)


@dataclass(frozen=True)
class Row:
    """One schedule of one case; `rank` orders by memory excess, then the objective."""

    schedule: str
    step_s: float
    peak_bytes: float
    fits: bool
    score: float
    rank: tuple[float, ...]
    evaluations: int = 0
    seconds: float = 0.0
    decisions: tuple[str, ...] = ()


def automatic(*axes: str, seeded: bool = False, budget: ap.Budget = BUDGET) -> ap.AutomaticPartition:
    """The tactic as every experiment uses it: no cache."""
    name = "Auto" + ("" if len(axes) == 2 else {"batch": "BP", "model": "MP"}[axes[0]])
    return ap.AutomaticPartition(
        axes, optimizer=ap.MCTS(seeded=seeded), budget=budget, name=name, baselines=seeded, cache=False, progress=False
    )


def row(case: Case, name: str, schedule: list[ap.Tactic]) -> Row:
    """Prices a schedule; one that searches says how long that took."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ap.SearchWarning)
        scheduled = run_schedule(case.program, MESH, schedule)
    seconds, found = time.perf_counter() - start, scheduled.estimate
    reports = [r.report for r in scheduled.reports if r.report]
    cost = cost_of(found)
    return Row(
        name, found.step_s, found.peak_bytes, found.fits, cost.score, cost.rank[:3],
        sum(r["evaluations"] for r in reports), seconds if reports else 0.0,
        tuple(d for r in reports for d in r["decisions"]),
    )  # fmt: skip


def cost_of(found: Any) -> ap.Cost:
    """An estimate as search sees it."""
    limit_bytes = device(MESH.device).hbm_bytes
    plain = ap.Cost(found.step_s, found.peak_bytes, max(0.0, found.peak_bytes / limit_bytes - 1), 0)
    return ap.Cost(plain.step_s, plain.peak_bytes, plain.excess, 0, ap.StepSeconds()(plain))


def compare(case: Case) -> dict[str, Any]:
    """All schedules of a case, written and found; prints them."""
    manual = [row(case, name, schedule) for name, schedule in case.schedules.items()]
    found = [row(case, "AllAuto unseeded", [automatic("batch", "model")])]
    found.append(row(case, "AllAuto seeded", [automatic("batch", "model", seeded=True)]))
    best = min(manual, key=lambda r: r.rank)
    print(f"\n{case.name}  {case.program.op_count:,} ops")
    for r in [*manual, *found]:
        rate = f"{r.evaluations} evaluations in {r.seconds:.0f} s" if r.evaluations else ""
        memory = f"{r.peak_bytes / 1e9:8.2f} GB {'    ' if r.fits else 'over'}"
        print(f"  {r.schedule:18} {seconds_text(r.step_s):>9} {memory}  {rate}")
    no_worse = found[0].rank[:2] <= best.rank[:2]
    result = {"case": case.name, "rows": [vars(r) for r in (*manual, *found)], "best_manual": best.schedule}
    result["unseeded_no_worse"] = no_worse
    result["seeded_no_worse"] = found[1].rank[:2] <= best.rank[:2]
    print(f"  no worse than the best manual schedule ({best.schedule}): {'yes' if no_worse else 'NO'}")
    if case.paper_gain:
        name, gain = case.paper_gain
        ours = next(r for r in manual if r.schedule == name).step_s / found[0].step_s
        result["gain"], result["paper_gain"] = ours, gain
        print(f"  gain over {name}: {ours:.2f} x (paper: {gain:.2f} x)")
    return result


def mixes() -> list[dict[str, Any]]:
    """Automatic tactics among manual ones, on T32."""
    case, both = CASES[0], {}
    both["BP+MP"] = [BP, MP]
    both["BP+MP+Z3"] = [BP, MP, Z3]
    both["BP+AutoMP"] = [BP, automatic("model", budget=ap.Budget(600))]
    both["AutoBP+MP"] = [automatic("batch", budget=ap.Budget(600)), MP]
    both["AutoMP+Z3"] = [automatic("model", budget=ap.Budget(600)), Z3]
    both["BP+AutoMP+Z3"] = [BP, automatic("model", budget=ap.Budget(600)), Z3]
    rows = []
    print("\nT32, automatic among manual tactics")
    for name, schedule in both.items():
        try:
            r = row(case, name, schedule)
        except ap.TileError as error:
            print(f"  {name:14} {error}")
            rows.append({"schedule": name, "error": str(error)})
            continue
        print(f"  {name:14} {seconds_text(r.step_s):>9} {r.peak_bytes / 1e9:8.2f} GB  {r.evaluations} evaluations")
        rows.append(vars(r))
    return rows
