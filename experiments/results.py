"""The papers' tables and figures beside ours, from what each experiment keeps: writes `RESULTS.md` beside this file.

    python -m experiments.results

Nothing is run here. Each experiment writes its own `results.json` with the command that its README names; this page
puts them side by side and says what does not reproduce. A part of which nothing is kept is left out, and named.
"""

from __future__ import annotations

import datetime
import json
import platform
import textwrap
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE / "RESULTS.md"
PACKAGES = ("jax", "numpy", "numba", "optax", "ray", "scipy", "highspy")

PAPER_TABLE_3 = {
    ("T32", "BP"): 4803.34,
    ("T32", "BP+MP"): 4856.25,
    ("T32", "BP+MP+Z2"): 4856.25,
    ("T32", "BP+MP+Z3"): 4960.32,
    ("T32", "MP"): 10837.42,
    ("UNet", "BP"): 25.80,
    ("UNet", "BP+Z2"): 25.80,
    ("UNet", "BP+Z3"): 37.73,
    ("UNet", "AllAuto"): 15.74,
    ("GNS", "ES"): 294.13,
    ("GNS", "AllAuto"): 118.12,
}
"""Estimated milliseconds of Table 3, for the schedules that both have."""

PAPER_SHORT = {"AG": "all_gather", "AR": "all_reduce", "RS": "reduce_scatter", "A2A": "all_to_all"}


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def prose(*parts: str) -> str:
    """A paragraph, filled, and the empty line after it."""
    return textwrap.fill(" ".join(parts), 118, break_on_hyphens=False) + "\n\n"


def table_1(kept: dict[str, Any]) -> str:
    """Ours beside XLA's own partitioner."""
    summary = kept["summary"]
    names = {"compute": "compute cycles", "memory": "peak memory", "collective_s": "collective seconds"}
    rows = [
        [text, f"{summary[key]['geomean']:.3f}", f"{summary[key]['most']:.3f}"]
        for key, text in names.items()
        if summary["pairs"]
    ]
    rows.append(
        ["seconds on 8 host devices", f"{summary['wall']['geomean']:.3f}", f"{summary['wall']['pairs']} programs"]
    )
    return prose(
        "The paper trains T32 and T48 on TPUs and GPUs, where PartIR and GSPMD are within 2 % of each other.",
        "Without that hardware, the same question is put to the TPU compiler: ours over the program of XLA's",
        f"partitioner with equal shardings, {summary['pairs']} programs compiled. MFU is not measured.",
    ) + table(["ours over XLA's", "geometric mean", "most"], rows)


def table_2(kept: dict[str, Any]) -> str:
    """Collectives by schedule."""
    rows = []
    for row in kept["rows"]:
        cells = [
            str(row["ours"][kind]) + (f" ({row['paper'][kind]})" if row["ours"][kind] != row["paper"][kind] else "")
            for kind in PAPER_SHORT.values()
        ]
        rows.append([row["model"], row["schedule"], *cells])
    equal = sum(row["ours"] == row["paper"] for row in kept["rows"])
    return prose(
        f"{equal} of {len(rows)} rows are equal; where a count differs, the paper's stands in parentheses. The",
        "paper does not describe its models to the parameter, so rows of UNet and GNS can differ by a layer's",
        "tensors; the README of `table2` goes through each.",
    ) + table(["model", "schedule", *PAPER_SHORT], rows)


def table_3(kept: dict[str, Any]) -> str:
    """Estimates by schedule, written and found."""
    rows = []
    for case in kept["quality"]:
        model = case["case"].split()[0]
        for row in case["rows"]:
            schedule = row["schedule"]
            theirs = PAPER_TABLE_3.get((model, schedule.split()[0] if schedule.startswith("AllAuto") else schedule))
            cells = [f"{row['step_s'] * 1e3:,.1f}", f"{row['peak_bytes'] / 1e9:.2f}"]
            rows.append([case["case"], schedule, *cells, "" if theirs is None else f"{theirs:,.1f}"])
    return prose(
        "Estimates for tpu_v3 on {batch:16, model:2}, ours and the paper's. Models and devices' figures are not the",
        "same, so compare the order and the ratios within a model. `unseeded` saw no written schedule.",
    ) + table(["model", "schedule", "step, ms", "peak, GB", "paper, ms"], rows)


def figure_7(kept: dict[str, Any]) -> str:
    """Tactics in turn beside a single tactic."""
    rows: list[list[Any]] = []
    for row in kept["rows"]:
        for how in ("incremental", "single"):
            f = row[how]
            cells = [f"{f['step_s'] * 1e3:.1f}", f"{f['peak_bytes'] / 1e9:.2f}", f["conflicts"]]
            rows.append([row["schedule"], {"incremental": "in turn", "single": "single tactic"}[how], *cells])
    return prose(
        "UNet on {batch:8, model:2} of tpu_v3, by estimate: the tactics of a schedule in turn, and their decisions as",
        "a single tactic. In the paper, on TPUs, single tactics exceed the memory; its GSPMD rows need the hardware.",
    ) + table(["schedule", "", "step, ms", "peak, GB", "conflicts left"], rows)


def figure_8(kept: dict[str, Any]) -> str:
    """Partitioning beside compiling."""
    return prose(
        f"Partitioning T32 takes {kept['partition_s']:.2f} s, {kept['ratio']:.1%} of XLA's CPU compile of the result;",
        "in the paper at most 14 % of the overall compilation.",
    ).strip()


def figure_9(kept: dict[str, Any]) -> str:
    """The simulator beside the TPU compiler."""
    figures = kept["headline"]
    shown = {
        "regret of what the estimate likes best, mean": f"{figures['regret_mean']:.2%}",
        "most": f"{figures['regret_most']:.1%}",
        "pairs of states in the compiler's order": f"{figures['ordered']:.1%}",
        "fits, or does not, as the compiler says": f"{figures['fits']:.1%}",
        "compute within 0.8 to 1.25": f"{figures['compute_within']:.1%}",
    }
    return prose(
        "The paper measures on 32 TPU v3 cores. Here the compiler's own account stands in: memory as it assigns it,",
        "and the cycles it estimates, with our seconds for the links. Its cycles are an estimate too, so absolute",
        "seconds do not reproduce; ranks and memory do.",
    ) + table(
        ["over " + str(figures["pairs"]) + " pairs of a program and a state", ""], [list(row) for row in shown.items()]
    )


def figure_11(kept: dict[str, Any]) -> str:
    """Seconds of a search."""
    searched = kept["xla"]
    rows = [[row["layers"], f"{row['ops']:,}", f"{row['wall_s']:.1f}"] for row in kept["depth"]]
    return prose(
        f"A default search of T32 takes {searched['search_s']:.1f} s, {searched['ratio']:.2f} of XLA's compile; the",
        "paper's takes up to 1,250 s.",
    ) + table(["layers of T32", "ops", "seconds"], rows)


def figure_14(kept: dict[str, Any]) -> str:
    """Redistribution beside XLA's."""
    run = kept["time"]["xla_over_ours_least_s"]
    rows = [
        [mesh, part["problems"], f"{part['xla_over_ours']['geomean']:.2f}", f"{part['xla_over_ours']['max']:.1f}",
         part["xla_over_ours"]["ours_dearer"], f"{part['temporary_over_larger_tile']['ours']['max']:.1f}",
         f"{part['temporary_over_larger_tile']['xla']['max']:.1f}"]
        for mesh, part in kept["xla"].items()
    ]  # fmt: skip
    return prose(
        f"Seconds on 8 simulated devices, XLA's over ours: {run['geomean']:.2f} in the geometric mean,",
        f"{run['max']:.1f} at most (the paper on 8 TPUs: 1.22 and 5.7). Elements moved, by the paper's Figure 11:",
    ) + table(["mesh", "problems", "XLA's over ours", "most", "ours dearer", "memory, ours", "memory, XLA's"], rows)


def certificate(kept: dict[str, Any]) -> str:
    """What the integer program proves."""
    small, parts = kept["small"], list[str]()
    equal = sum(row["ilp"] <= 1 + 1e-9 for row in small)
    proved = sum(row["gap"] <= 0.05 for row in small)
    parts.append(
        prose(
            f"Of {len(small)} small programs that exhaustive search enumerates, the answer is no worse in {equal}, and",
            f"the bound is within 5 % of it in {proved}. The bound is about all states, not those of one search alone.",
        )
    )
    rows = [
        [
            r["name"],
            f"{r['ops']:,}",
            f"{r['score']:.4g}",
            f"{r['lower_bound']:.4g}",
            f"{r['gap']:.0%}",
            f"{r['cpu_s']:.0f}",
        ]
        for r in [*kept["large"], *({**r, "name": f"{r['name']} on {{x:4,y:4,z:2}}"} for r in kept.get("cube", []))]
    ]
    parts.append(table(["training step", "ops", "score", "lower bound", "gap", "CPU seconds"], rows))
    names = list(kept["gaps"][0]["optimizers"]) if kept.get("gaps") else []
    rows = [
        [
            g["name"],
            f"{g['of_s']:.0f}",
            *(f"{g['optimizers'][n]['score']:.4g}" for n in names),
            f"{g['lower_bound']:.4g}",
        ]
        for g in kept.get("gaps", [])
    ]
    if rows:
        text = "\n\nScores after equal CPU seconds, and the highest bound of these searches:\n\n"
        parts.append(text + table(["", "seconds", *names, "lower bound"], rows))
    timed = ("build_s", "plan_s", "prices_s", "bound_s")
    for kind, title in (("bounds", "Bounds without deadlines"), ("depth", "Decoders by layers")):
        head = ["", "ops", "bound", *(f"{part.removesuffix('_s')}, CPU s" for part in timed)]
        rows = [
            [r["name"], f"{r['ops']:,}", f"{r['bound']:.4g} s", *(f"{r[part]:.1f}" for part in timed)]
            for r in kept.get(kind, [])
        ]
        if rows:
            parts.append(f"\n\n{title}:\n\n" + table(head, rows))
    rows = [
        [r["name"], how, kind, asked["questions"], f"{sum(asked['cpu_s']):.2f}", f"{asked['speed_up']:.2f}"]
        for r in kept.get("workers", [])
        for how, kinds in r["executors"].items()
        for kind, asked in kinds.items()
    ]
    if rows:
        head = ["", "workers", "questions", "how many", "CPU s in all", "over the busiest worker's"]
        parts.append("\n\nHow evenly workers share what integer programs ask:\n\n" + table(head, rows))
    return "".join(parts)


def contest(kept: list[dict[str, Any]]) -> str:
    """The pairwise solver beside the contest's winner and XLA's solver."""

    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    rows = [
        [
            r["instance"][-1],
            f"{r['nodes']:,}",
            "none" if r["cost"] is None else f"{r['cost']:.5g}",
            f"{r['bound']:.5g}",
            "" if r["gap"] is None else f"{r['gap']:.1%}",
            share(r["over_winner"]),
            share(r["over_xla"]),
            share(r["bound"] / r["published_bound"]),
            f"{r['wall_s']:.0f}",
            f"{r['cpu_s']:.0f}",
        ]
        for r in kept
    ]
    head = [
        "",
        "nodes",
        "cost",
        "bound",
        "gap",
        "over winner's",
        "over XLA's",
        "bound over published",
        "wall s",
        "CPU s",
    ]
    return prose(
        "Instances of the ASPLOS 2025 contest on intra-operator parallelism, in the seconds of each row, by one",
        "process; the winner's solver runs eight. A cell is empty where XLA's solver has no entry.",
    ) + table(head, rows)


SECTIONS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "Table 1: PartIR and GSPMD": ("against_xla", table_1),
    "Table 2: collectives": ("table2", table_2),
    "Table 3 and Figure 6: manual and automatic schedules": ("automatic", table_3),
    "Figure 7: tactics in turn": ("incremental", figure_7),
    "Figure 8: partitioning time": ("partition_time", figure_8),
    "Figures 9 and 10: the simulator": ("simulator_accuracy", figure_9),
    "Figure 11: search time": ("automatic", figure_11),
    "Redistribution, Figures 11 and 14": ("redistribution", figure_14),
    "How far from optimal": ("ilp", certificate),
    "Contest instances": ("iopddl", contest),
}
"""Heading -> the experiment whose kept figures it shows, and how."""

NOT_REPRODUCED = """## What does not reproduce

- **Figure 6** is wall time on a TPU mesh. No such mesh is at hand: the estimates above and the TPU compiler's account
  in `simulator_accuracy` stand in.
- **Figure 7** is wall time too, and has rows of GSPMD: what is shown above is by estimate, and of PartIR alone.
- **Table 1's** MFU needs the hardware.
"""


def page() -> str:
    """The whole page."""
    about = prose(
        "Written by `python -m experiments.results` from what each experiment kept when it last ran; the README of",
        f"each says how long it takes and what is expected. Versions: {versions()}. Machine: {platform.machine()},",
        f"Python {platform.python_version()}; devices are simulated, and TPU programs are compiled ahead of time",
        "without a TPU.",
    )
    parts = [HEAD, about.rstrip() + "\n"]
    missing: list[str] = []
    for heading, (experiment, show) in SECTIONS.items():
        path = HERE / experiment / "results.json"
        if not path.exists():
            missing.append(heading)
            continue
        kept = json.loads(path.read_text())
        when = kept.get("date") if isinstance(kept, dict) else None
        command = f"`python -m experiments.{experiment}`" + (f", {when}" if when else "")
        parts.append(f"## {heading}\n\n{show(kept)}\n\nFrom {command}.\n")
    if missing:
        parts.append("Nothing is kept for: " + ", ".join(missing) + ".\n")
    return "\n".join([*parts, NOT_REPRODUCED])


HEAD = "# Results: the papers' tables and figures beside ours\n"


def versions() -> str:
    """Of the packages that figures depend on."""
    found: list[str] = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page())
    print(f"{PAGE.relative_to(HERE.parent)}, {datetime.date.today().isoformat()}")


if __name__ == "__main__":
    main()
