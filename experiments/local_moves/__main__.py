"""Local copies of redistribution steps, by the cost model and by the TPU compiler.

python -m experiments.local_moves            pip install libtpu; minutes: results.json, table.md, figure.png
python -m experiments.local_moves table      from results.json alone: what the cost model says now

What results.json has is not compiled again; remove it to start anew.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from autopart.core.mesh import Mesh
from autopart.costmodel import RedistributionSeconds, mesh_links
from autopart.costmodel.compiled.links.redistribution_costs import plan_cost
from experiments.local_moves.cases import DEVICE, DTYPES, MESH, Case, cases

RESULTS = Path(__file__).with_name("results.json")
TABLE = Path(__file__).with_name("table.md")
FIGURE = Path(__file__).with_name("figure.png")
CLOCK_HZ = 1.5e9
"""Of v5e, as in `autopart.costmodel.xla.xla_compile`."""

SMALL_CYCLES = 20_000
"""Below this, differences of matmuls in and out of VMEM are as large as copies."""


def main(names: list[str]) -> None:
    if set(names) - {"table"}:
        raise SystemExit(f"no part is called {sorted(set(names) - {'table'})}; known: table")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not names:
        from experiments.local_moves.compiled import measure

        for case in cases():
            if case.name not in results:
                results[case.name] = measure(case)
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    rows = [row(case, results[case.name]) for case in cases() if case.name in results]
    TABLE.write_text(table(rows))
    figure(rows)
    print(TABLE.read_text())
    for line in summary(rows):
        print(line)


def row(case: Case, found: dict[str, float]) -> dict[str, Any]:
    """What we say and what the compiler says of one case; milliseconds and MB."""
    mesh = Mesh(MESH, device=DEVICE)
    ours = plan_cost(case.plan, DTYPES[case.dtype], mesh_links(mesh))
    price = RedistributionSeconds(mesh)
    return {
        "case": case,
        "links_ms": 1e3 * ours.seconds,
        "ours_ms": 1e3 * ours.copy_s,
        "copy_ms": 1e3 * max(0.0, found["copy_cycles"]) / CLOCK_HZ,
        "reshape_ms": 1e3 * found["reshape_cycles"] / CLOCK_HZ,
        "ours_mb": ours.extra_bytes / 1e6,
        "temporary_mb": found["temporary_bytes"] / 1e6,
        "total_s": sum(price.emitted_cost(step, DTYPES[case.dtype]) for step in case.steps),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown; the form that is chosen is marked."""
    lines = [
        "| step | form | links ms | copies ms, ours | copies ms, compiler | of these reshapes | between MB, ours |",
        "|---|---|---|---|---|---|---|",
    ]
    chosen = {min(group, key=lambda r: (r["total_s"], len(r["case"].steps)))["case"].name for group in _groups(rows)}
    for group in _groups(rows):
        for r in group:
            case = r["case"]
            form = "; ".join(f"{s.text()}{' (stacked)' if s.stacked else ''}" for s in case.steps)
            mark = "**" if case.name in chosen else ""
            compiler = f"{r['copy_ms'] + r['reshape_ms']:.2f} | {r['reshape_ms']:.2f}"
            lines.append(
                f"| {case.dtype} `{case.planned.source} -> {case.planned.target}` | {mark}{form}{mark} "
                f"| {r['links_ms']:.2f} | {r['ours_ms']:.2f} | {compiler} | {r['ours_mb']:.0f} |"
            )
    return "\n".join(lines) + "\n"


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """How near we are, and whether the form that we choose is the compiler's best."""
    both = [(r["ours_ms"], r["copy_ms"] + r["reshape_ms"]) for r in rows]
    least = 1e3 * SMALL_CYCLES / CLOCK_HZ
    logs = [math.log(a / b) for a, b in both if min(a, b) > least]
    none = sum(a <= least and b <= least for a, b in both)
    lost = []
    for group in _groups(rows):
        total = {id(r): r["links_ms"] + r["copy_ms"] + r["reshape_ms"] for r in group}
        ours = min(group, key=lambda r: (r["total_s"], len(r["case"].steps)))
        lost.append(total[id(ours)] / min(total.values()))
    return [
        f"{len(rows)} forms: {none} without copies by both, {len(rows) - none - len(logs)} by one only",
        f"ours over the compiler's, {len(logs)} with copies: geomean {math.exp(sum(logs) / len(logs)):.2f}, "
        f"{math.exp(min(logs)):.2f} to {math.exp(max(logs)):.2f}",
        f"chosen form over the best one, links and the compiler's copies, {len(lost)} steps: "
        f"mean {sum(lost) / len(lost):.3f}, most {max(lost):.2f}; best in {sum(x < 1.0001 for x in lost)}",
    ]


def figure(rows: list[dict[str, Any]]) -> None:
    """Our milliseconds of copies against the compiler's."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    kinds = sorted({(r["case"].planned.kind, r["case"].dtype) for r in rows})
    _, axes = pyplot.subplots(figsize=(5, 5))
    for kind, dtype in kinds:
        mine = [r for r in rows if (r["case"].planned.kind, r["case"].dtype) == (kind, dtype)]
        theirs, ours = [r["copy_ms"] + r["reshape_ms"] for r in mine], [r["ours_ms"] for r in mine]
        axes.plot(theirs, ours, "o" if dtype == "f32" else "x", label=f"{kind}, {dtype}", alpha=0.7)
    end = max(max(r["ours_ms"], r["copy_ms"] + r["reshape_ms"]) for r in rows)
    axes.plot([0, end], [0, end], color="grey", linewidth=0.8)
    axes.set(xlabel="copies by the TPU compiler, ms", ylabel="copies by the cost model, ms")
    axes.legend(fontsize=8)
    pyplot.tight_layout()
    pyplot.savefig(FIGURE, dpi=120)


def _groups(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for r in rows:
        case = r["case"]
        key = (case.dtype, str(case.planned.source), str(case.planned.target))
        groups.setdefault(key, []).append(r)
    return list(groups.values())


if __name__ == "__main__":
    main(sys.argv[1:])
