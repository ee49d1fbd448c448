"""Our figures over XLA's, per case and as geometric means; a table, and a plot.

collective seconds     from both texts, by the simulator's formulas; XLA's 0 and ours 0 are equal
loses by               classes of op in which ours takes at least 1 % of the step more
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autopart.costmodel.xla.hlo_collectives import Collective, seconds
from experiments.against_xla.cases import CASES, Case
from experiments.against_xla.compiled import KEPT

FIGURE = Path(__file__).with_name("figure.png")
BARS = {"compute": (1.02, 0.97), "memory": (1.05, None), "collective_s": (1.0, 0.8), "compile": (None, 1.0)}
"""The most on any pair, and the most as geometric mean."""


def rows(results: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per compiled case; those of which a program was refused say why."""
    programs = KEPT.read()
    found = [_row(CASES[name], pair, programs) for name, pair in results["compiled"].items() if name in CASES]
    return [row for row in found if row]


def _row(case: Case, pair: dict[str, Any], programs: dict[str, Any]) -> dict[str, Any]:
    if not all(pair[side] in programs for side in ("ours", "xla")):
        return {}
    sides = {side: programs[pair[side]] for side in ("ours", "xla")}
    refused = {side: found["error"] for side, found in sides.items() if "error" in found}
    if refused:
        return {"case": case.name, "refused": refused}
    links = {side: by_kind(case, found) for side, found in sides.items()}
    ours, xla = sides["ours"], sides["xla"]
    total = {side: sum(s for _, _, s in kinds.values()) for side, kinds in links.items()}
    more = [(ours["classes"].get(k, 0.0) - xla["classes"].get(k, 0.0), k) for k in {*ours["classes"], *xla["classes"]}]
    loses = {kind: round(s, 6) for s, kind in sorted(more, reverse=True) if s > 0.01 * xla["compute_s"]}
    return {
        "case": case.name,
        "compute_s": {side: found["compute_s"] for side, found in sides.items()},
        "compute": ours["compute_s"] / xla["compute_s"],
        "peak_bytes": {side: found["peak_bytes"] for side, found in sides.items()},
        "memory": ours["peak_bytes"] / xla["peak_bytes"],
        "collectives": links,
        "collective_seconds": total,
        "collective_s": total["ours"] / total["xla"] if total["xla"] else 1.0 if not total["ours"] else math.inf,
        "step": (ours["compute_s"] + total["ours"]) / (xla["compute_s"] + total["xla"]),
        "compile_cpu_s": pair.get("compile_cpu_s"),
        "compile": pair["compile_cpu_s"]["ours"] / pair["compile_cpu_s"]["xla"] if "compile_cpu_s" in pair else None,
        "loses_by": loses,
    }  # fmt: skip


def by_kind(case: Case, found: dict[str, Any]) -> dict[str, tuple[int, float, float]]:
    """Kind -> how many collectives run, bytes on a device before them, seconds of the links."""
    kinds: dict[str, tuple[int, float, float]] = {}
    for kind, axes, in_bytes, count in found["collectives"]:
        one: Collective = (kind, tuple((name, size) for name, size in axes), in_bytes)
        known = kinds.get(kind, (0, 0.0, 0.0))
        kinds[kind] = (known[0] + count, known[1] + count * in_bytes, known[2] + count * seconds(one, case.mesh))
    return kinds


def summarised(results: dict[str, Any]) -> dict[str, Any]:
    """The results with their rows and, per figure, the geometric mean, the most, and the cases above the bar."""
    compared = [row for row in rows(results) if "refused" not in row]
    summary: dict[str, Any] = {"pairs": len(compared)}
    for figure, (most, mean) in BARS.items():
        ratios = {row["case"]: row[figure] for row in compared if row[figure] is not None}
        above = {name: round(r, 3) for name, r in ratios.items() if most is not None and r > most}
        summary[figure] = {
            "geomean": geomean([max(r, 1e-3) for r in ratios.values()]), "most": max(ratios.values(), default=0),
            "bar": {"most": most, "geomean": mean}, "above": above,
        }  # fmt: skip
    for figure, key in (("wall", "ratio"), ("cpu", "cpu_ratio")):
        walls = [wall[key] for wall in results["wall"].values()]
        summary[figure] = {"pairs": len(walls), "geomean": geomean(walls), "bar": {"most": None, "geomean": 1.0}}
    return {**results, "versions": KEPT.versions(), "summary": summary, "rows": rows(results)}


def geomean(ratios: list[float]) -> float:
    """The geometric mean; 1 of none."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0


def line(results: dict[str, Any], case: Case) -> str:
    """A row of the table."""
    found = next((row for row in rows(results) if row["case"] == case.name), None)
    return _text(found) if found else f"| {case.name} | not compiled |"


def table(results: dict[str, Any]) -> str:
    """Everything, for the README."""
    columns = [f"{what}, ours | XLA | ratio" for what in ("compute ms", "links ms", "memory GB")]
    head = f"| program, schedule, topology | {' | '.join(columns)} | compile | loses by, ms |"
    return "\n".join([head, "|" + "---|" * 12, *map(_text, rows(results)), "", str(summarised(results)["summary"])])


def walls(results: dict[str, Any]) -> str:
    """Seconds on host devices, for the README."""
    columns = "ms, ours | XLA | ratio | CPU ms, ours | XLA | ratio | largest difference"
    lines = [f"| program, schedule | {columns} |", "|" + "---|" * 8]
    for name, wall in results["wall"].items():
        by_clock, by_cpu = (
            " | ".join(f"{wall[key][side] * 1e3:.1f}" for side in ("ours", "xla")) + f" | {wall[ratio]:.2f}"
            for key, ratio in (("median_s", "ratio"), ("cpu_s", "cpu_ratio"))
        )
        lines.append(f"| {name} | {by_clock} | {by_cpu} | {wall['largest_difference']:.1g} |")
    return "\n".join(lines)


def _text(row: dict[str, Any]) -> str:
    if "refused" in row:
        return f"| {row['case']} | refused: {row['refused']} |"
    columns: list[tuple[str, float, Callable[[dict[str, Any]], float]]] = [
        ("compute_s", 1e3, lambda r: r["compute"]),
        ("collective_seconds", 1e3, lambda r: r["collective_s"]),
        ("peak_bytes", 1e-9, lambda r: r["memory"]),
    ]
    cells = [f"{row[k]['ours'] * m:.2f} | {row[k]['xla'] * m:.2f} | {ratio(row):.2f}" for k, m, ratio in columns]
    loses = ", ".join(f"{kind} {s * 1e3:.1f}" for kind, s in row["loses_by"].items())
    compiling = "" if row["compile"] is None else f"{row['compile']:.2f}"
    return f"| {row['case']} | {' | '.join(cells)} | {compiling} | {loses} |"


def plot(results: dict[str, Any]) -> None:
    """Ratios per case, a panel per figure, if any is compiled; needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    compared = [row for row in rows(results) if "refused" not in row]
    if not compared:
        return
    panels = ("compute", "collective_s", "memory", "compile")
    figure, axes = pyplot.subplots(1, len(panels), figsize=(14, 2 + 0.18 * len(compared)), sharey=True)
    for axis, panel in zip(axes, panels, strict=True):
        ratios = [min(row[panel] or 0.0, 3.0) for row in compared]
        axis.barh([row["case"] for row in compared], ratios, color=["tab:red" if r > 1 else "tab:blue" for r in ratios])
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_xlabel(f"{panel}, ours over XLA's")
    axes[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=90)
    pyplot.close(figure)
