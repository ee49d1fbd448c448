"""The table of results in the experiment's README, from what is kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from experiments.results import table
from experiments.strangers.rows import DEVICES, Kept

BEGIN, END = "<!-- results -->", "<!-- end of results -->"
HEAD = ("model", "device", "ops", "jax: trace", "lower", "import", "`[]`", "batch", "search", "how it ended")


def write_page(path: Path, kept: Kept) -> None:
    """Puts the table between the two marks of a page."""
    before, _, rest = path.read_text().partition(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{results(kept)}\n\n{END}{rest.partition(END)[2]}")


def results(kept: Kept) -> str:
    """How many rows ended how, and a line for each row."""
    lines = [_line(name, device, kept.rows[name].get(device)) for name in kept.rows for device in DEVICES]
    ended = Counter(line[-1].partition(":")[0] for line in lines)
    counts = ", ".join(f"{count} {how}" for how, count in ended.most_common())
    return f"{len(kept.rows)} models on {len(DEVICES)} meshes: {counts}.\n\n{table(HEAD, lines)}"


def _line(name: str, device: str, row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return [name, device, *[""] * (len(HEAD) - 3), "not run yet"]
    stages = row.get("stages", {})

    def cell(stage: str, figure: str = "cpu_s") -> str:
        value = stages.get(stage, {}).get(figure)
        return "" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"

    told = row.get("text", "").replace("|", "\\|")
    ended = row["ended"] + (f": {told[:200]}" if told else "")
    jax_s = [cell("jax", "trace_cpu_s"), cell("jax", "lower_cpu_s")]
    return [name, device, cell("import", "ops"), *jax_s, *map(cell, ("import", "none", "batch", "search")), ended]
