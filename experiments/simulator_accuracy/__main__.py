"""Compares the simulator with the TPU compiler.

    python -m experiments.simulator_accuracy                    with the compiler's figures that are kept
    python -m experiments.simulator_accuracy --compile [NAME]   compiles first: pip install libtpu, half a minute a pair

Writes results.json, a row a pair, and the tables of README.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from autopart.costmodel import estimate
from autopart.costmodel.hardware.devices import device
from experiments.simulator_accuracy.decode_pairs import DecodePair
from experiments.simulator_accuracy.headline import headline
from experiments.simulator_accuracy.outside_pairs import OutsidePair, all_pairs
from experiments.simulator_accuracy.pairs import Pair
from experiments.simulator_accuracy.referee import KEPT, compile_all, text_key

HERE = Path(__file__).parent
MARK = "<!-- {} -->"


def compare(pairs: Iterable[Pair | DecodePair | OutsidePair]) -> list[dict[str, Any]]:
    """A row per compiled pair: our figures and the compiler's, whose seconds are cycles and ours for the links."""
    kept, rows = json.loads(KEPT.read_text())["pairs"], []
    for pair in pairs:
        if pair.name not in kept:
            continue
        theirs, local = kept[pair.name], pair.lower().program
        ours = estimate(local)
        rows.append(
            {
                "pair": pair.name,
                "model": pair.model,
                "peak_bytes": ours.peak_bytes,
                "compiler_peak_bytes": theirs["peak_bytes"],
                "hbm_bytes": device(ours.device).hbm_bytes,
                "compute_s": ours.compute_s,
                "compiler_compute_s": theirs["compute_s"],
                "collective_s": ours.collective_s,
                "step_s": ours.serial_s,
                "compiler_step_s": theirs["compute_s"] + ours.collective_s,
                "rematerialised": theirs["rematerialised"],
                "as_emitted": theirs["text"] == text_key(local),
            }
        )
    return rows


def headline_table(rows: list[dict[str, Any]]) -> str:
    """The headline as Markdown."""
    found = headline(rows)
    return "\n".join(
        [
            "| figure | |",
            "|---|---|",
            f"| regret, mean of {found['programs_with_states']} programs | {found['regret_mean']:.2%} |",
            f"| regret, most | {found['regret_most']:.1%} |",
            f"| states in the compiler's order, of {found['pairs_of_states']} pairs | {found['ordered']:.1%} |",
            f"| fits or does not fit, as the compiler says | {found['fits']:.1%} |",
            f"| compute within 0.8 to 1.25, of {found['pairs']} pairs | {found['compute_within']:.1%} |",
            f"| mean of the absolute logarithm, compute | {found['compute_off']:.3f} |",
            f"| the same, memory | {found['memory_off']:.3f} |",
        ]
    )


def row_table(rows: list[dict[str, Any]]) -> str:
    """A line per pair as Markdown."""
    lines = [
        "| program, schedule, topology | peak GB | compiler | ratio | compute ms | compiler | ratio | links ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['pair']} | {r['peak_bytes'] / 1e9:.2f} | {r['compiler_peak_bytes'] / 1e9:.2f} "
        f"| {r['peak_bytes'] / r['compiler_peak_bytes']:.2f} | {r['compute_s'] * 1e3:.1f} "
        f"| {r['compiler_compute_s'] * 1e3:.1f} | {r['compute_s'] / r['compiler_compute_s']:.2f} "
        f"| {r['collective_s'] * 1e3:.1f} |"
        for r in rows
    ]
    return "\n".join(lines)


def written(page: str, **tables: str) -> str:
    """The page with each table between its marks."""
    for name, table in tables.items():
        opened, closed = MARK.format(name), MARK.format("/" + name)
        before, _, rest = page.partition(opened)
        page = f"{before}{opened}\n\n{table}\n\n{closed}{rest.partition(closed)[2]}"
    return page


def main() -> None:
    if "--compile" in sys.argv:
        compile_all(sys.argv[sys.argv.index("--compile") + 1 :])
    kept, rows = json.loads(KEPT.read_text()), compare(all_pairs())
    report = {"date": kept["date"], "versions": kept["versions"], "headline": headline(rows), "rows": rows}
    (HERE / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    page = HERE / "README.md"
    page.write_text(written(page.read_text(), headline=headline_table(rows), rows=row_table(rows)))
    print(headline_table(rows))
    print(f"compiled as they are emitted now: {sum(r['as_emitted'] for r in rows)} of {len(rows)}")


if __name__ == "__main__":
    main()
