"""The TPU compiler's account of what is found, beside the manual schedules that `simulator_accuracy` has compiled.

UNet on v3:4x4      BP 51.0 ms, BP+MP 29.5 ms, ...      found 28.9 ms: its cycles, and our seconds for the links

Only what is found is compiled. A program is that of `simulator_accuracy.pairs`, cut down as there.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import autopart as ap
from autopart.costmodel import Estimate, estimate
from autopart.costmodel.xla.xla_compile import XlaCompile
from experiments.automatic.quality import automatic
from experiments.simulator_accuracy.pairs import PAIRS, V3, Pair
from experiments.simulator_accuracy.referee import KEPT

EVALUATIONS = 400
MODELS = ("GNS", "IT32", "T32", "UNet")


def judged(model: str) -> dict[str, Any]:
    """Steps and peaks of every schedule: the compiler's with our links, and the simulator's; best manual over found."""
    kept = json.loads(KEPT.read_text())["pairs"]
    written = [p for p in PAIRS if p.model == model and p.on == V3 and p.name in kept]
    whole = max(written, key=lambda p: len(p.schedule))
    search = automatic("batch", "model", seeded=True, budget=ap.Budget(EVALUATIONS))
    rows = {p.name: _kept_row(p, kept[p.name]) for p in written if p.config == whole.config}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ap.SearchWarning)
        low = replace(whole, schedule=(search,)).lower()
    rows["found"] = _row(estimate(low.program), XlaCompile(V3[0])(low.program, V3[1]))
    best = min((name for name in rows if name != "found"), key=lambda name: rows[name]["compiler_step_s"])
    ratio = rows["found"]["compiler_step_s"] / rows[best]["compiler_step_s"]
    print(f"{model}: found over {best}: {ratio:.2f} of the step by the compiler", rows["found"], flush=True)
    return {"model": model, "best": best, "ratio": ratio, "rows": rows}


def _kept_row(pair: Pair, theirs: dict[str, Any]) -> dict[str, float]:
    ours = estimate(pair.lower().program)
    step_s = theirs["compute_s"] + ours.collective_s
    return _row(ours, replace(ours, step_s=step_s, peak_bytes=float(theirs["peak_bytes"]), simulation=None))


def _row(ours: Estimate, theirs: Estimate) -> dict[str, float]:
    return {
        "step_s": ours.serial_s, "compiler_step_s": theirs.step_s,
        "peak_bytes": ours.peak_bytes, "compiler_peak_bytes": theirs.peak_bytes,
    }  # fmt: skip
