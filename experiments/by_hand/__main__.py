"""Searches each program, beside what people write.

python -m experiments.by_hand             all: results.json, and the tables of README.md here and at the root
python -m experiments.by_hand UNet        those whose name contains this; nothing is written
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGES = HERE / "README.md", HERE.parents[1] / "README.md"


def row(case: Any) -> dict[str, Any]:
    """The best of what people write, what a search finds, and the CPU seconds of the search with all before it."""
    import autopart as ap

    by_hand = []
    for schedule in case.by_hand:
        try:
            estimate = case.lower([ap.Parallelism(schedule)]).estimate
        except ap.TileError:  # the batch is smaller than the mesh
            continue
        by_hand.append((not estimate.fits, estimate.step_s, estimate.peak_bytes, schedule))
    lacks, step_s, peak_bytes, schedule = min(by_hand)
    cpu = time.process_time()
    search = ap.AutomaticPartition(list(case.mesh.axis_names), budget=ap.Budget(400), cache=False, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ap.SearchWarning)
        found = case.lower([search])
    estimate = found.estimate
    return {
        "name": case.name, "ops": found.traced.program.op_count,
        "by_hand": {"schedule": schedule, "step_s": step_s, "peak_gb": round(peak_bytes / 1e9, 1), "fits": not lacks},
        "found": {"step_s": estimate.step_s, "peak_gb": round(estimate.peak_bytes / 1e9, 1), "fits": estimate.fits,
                  "named": found.metadata.tactics[0].report["named"]},
        "cpu_s": round(time.process_time() - cpu, 1),
    }  # fmt: skip


def side(of: Mapping[str, Any]) -> str:
    """Milliseconds and gigabytes."""
    peak = f"{of['peak_gb']:.{int(of['peak_gb'] < 10)}f}"
    return f"{of['step_s'] * 1e3:,.0f} ms, {peak} GB" + ("" if of["fits"] else ", does not fit")


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """A row a program."""
    lines = ["| model, devices | best by hand | | found | in CPU s |", "|---|---|---|---|---|"]
    for of in rows:
        hand = of["by_hand"]
        cells = of["name"], hand["schedule"], side(hand), side(of["found"]), f"{of['cpu_s']:.0f}"
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(words: Sequence[str]) -> None:
    """Searches the programs whose name contains a word, or all of them, which are then kept."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from experiments.by_hand.cases import cases
    from experiments.kept import write
    from experiments.simulator_accuracy.__main__ import written

    rows: list[dict[str, Any]] = []
    for case in cases():
        if not words or any(word in case.name for word in words):
            rows.append(row(case))
            print(table(rows[-1:]).splitlines()[-1], rows[-1]["found"]["named"], rows[-1]["ops"], flush=True)
    if not words:
        write(RESULTS, {"rows": rows})
        for page in PAGES:
            page.write_text(written(page.read_text(), found=table(rows)))


if __name__ == "__main__":
    main(sys.argv[1:])
