"""Compares the simulator with XLA's GPU compiler, and our programs with its partitioner's.

    python -m experiments.gpu_accuracy                       with what is kept: what was compiled as it is emitted now
    python -m experiments.gpu_accuracy --compile [--case X]  compiles what is not kept (extra gpu-compiler)
    python -m experiments.gpu_accuracy --texts DIR           leaves the optimised texts there, and prices them anew
    python -m experiments.gpu_accuracy.live "gpt FSDP 4x2"   what lives at the peak, ours and XLA's
    python -m experiments.gpu_accuracy.cases gpt             searches again for the states of a program

Writes `results.json` and the tables of README.md.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from experiments.kept import write

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.gpu_accuracy")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--case", nargs="*", default=[""], help="cases whose name contains one of these")
    parser.add_argument("--cohort", choices=("seen", "later", "all"), default="all")
    parser.add_argument("--texts", type=Path)
    asked = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

    import autopart as ap
    from autopart.costmodel.hardware.devices import device
    from experiments.gpu_accuracy import cases, compare, compiled
    from experiments.simulator_accuracy.__main__ import written

    compiled.TEXTS = asked.texts
    cohorts = {"seen": cases.SEEN, "later": cases.LATER, "all": (*cases.SEEN, *cases.LATER)}
    rows: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else {}

    def whole(row: dict[str, Any]) -> dict[str, Any]:
        """With what the compiler made of it, which `compiled.json` has."""
        return row | {side: compiled.KEPT.read()[key] for side, key in row["keys"].items()}

    for case in cases.cases(cohorts[asked.cohort]):
        if not any(word in case.name for word in asked.case):
            continue
        try:
            low = case.lower()
        except ap.PartitionError as error:
            print(f"{case.name}: no plan, {error}".splitlines()[0], flush=True)
            continue
        row = {
            "name": case.name, "program": case.program, "on": case.on, "seen": case.program in cases.SEEN,
            "hbm_bytes": device(case.device).hbm_bytes, "estimate": compare.estimate_of(low),
        }  # fmt: skip
        before = rows.get(case.name, {})
        if asked.compile or asked.texts:
            pair = compiled.sides(case, low, case.schedule in cases.WRITTEN)
            row["keys"] = {side: compiled.account(lowered, case) for side, lowered in pair.items()}
        elif "keys" in before:
            row["keys"] = before["keys"]
        else:
            continue
        rows[case.name] = row
        print(compare.table([whole(row)]).splitlines()[-1], flush=True)
        write(RESULTS, {"versions": compiled.KEPT.versions(), "rows": rows}, lines=True)
    every = [whole(row) for row in rows.values()]
    found = {
        cohort: compare.summary([row for row in every if row["seen"] == (cohort == "seen")])
        for cohort in ("seen", "later")
        if any(row["seen"] == (cohort == "seen") for row in every)
    }
    write(RESULTS, {"versions": compiled.KEPT.versions(), "summary": found, "rows": rows}, lines=True)
    tables = {f"{cohort} figures": compare.said(of) for cohort, of in found.items()}
    page = HERE / "README.md"
    page.write_text(written(page.read_text(), rows=compare.table(every), **tables))
    print(*(f"{name}\n{text}\n" for name, text in tables.items()), sep="\n")


if __name__ == "__main__":
    main()
