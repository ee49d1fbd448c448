"""What the TPU compiler says of the cases of `cases.py`, kept in `compiler.json` by the hash of what it was given.

    seconds of compute    the cycles that it estimates, at the clock of the core
    peak bytes            arguments, temporaries, and outputs that take no argument's place

A row is written as soon as it is there; a program whose text, topology and compiler are known is not compiled again.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import autopart as ap
from autopart.costmodel import SimulatorOptions
from autopart.costmodel import estimate as price
from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.xla_compile import CLOCK_HZ
from autopart.spmd.emission.export import export
from autopart.spmd.run import jax_mesh, on_mesh
from experiments.against_xla.compiled import figures, key_of
from experiments.fitting.cases import CASES, Case

KEPT = Path(__file__).with_name("compiler.json")

BARS = {"microbatches": (0.35, 1.05), "recomputation": (1.1, 1.03), "seven": (None, 1.05)}
"""Claim -> peak and compute over the reference's, at most; of the 7 B model the step with our seconds for the links."""

CLAIMED = ("8 microbatches, sharded", "blocks", "found")
"""The ways that the bars are for."""

REFERENCES = {"microbatches": "1 microbatch", "recomputation": "by hand", "seven": "by hand, FSDP"}
"""Claim -> the way that the others of a program are compared with."""


def kept() -> dict[str, Any]:
    """Case name -> ours and the compiler's figures."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def compile_all(names: list[str]) -> None:
    """Compiles the cases whose name contains one of `names`, all without any; what is known is only priced anew."""
    for case in CASES:
        if not names or any(name in case.name for name in names):
            row = compile_case(case)
            _keep({**kept(), case.name: row})
            print(case.name, json.dumps(row), flush=True)


def _keep(rows: dict[str, Any]) -> None:
    """Writes a row a line."""
    lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def report() -> str:
    """A Markdown table of what is kept, each row over its reference's; `**` where a bar is missed.

    Our figures of a step that is too large as it is scheduled are those with `SimulatorOptions(rematerialise=True)`.
    """
    rows, lines = kept(), ["| program | way | peak GB | ours | compute ms | ours | peak | compute |", "|---" * 8 + "|"]
    for case in CASES:
        row = rows.get(case.name)
        if row is None or "error" in row["compiler"]:
            continue
        ours, theirs = row["ours"], row["compiler"]
        peak_bytes, compute_s = ours.get("rematerialised", (ours["peak_bytes"], ours["compute_s"]))
        reference = rows.get(f"{case.program}, {REFERENCES.get(case.claim)}, {case.on[0]}")
        over = _over(case, row, reference) if reference and reference is not row else ["", ""]
        figures = [theirs["peak_bytes"] / 1e9, peak_bytes / 1e9]
        seconds = [theirs["compute_s"] * 1e3, compute_s * 1e3]
        cells = [*(f"{gb:.2f}" for gb in figures), *(f"{ms:.1f}" for ms in seconds), *over]
        lines.append(f"| {case.program}, {case.on[0]} | {case.way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _over(case: Case, row: dict[str, Any], reference: dict[str, Any]) -> list[str]:
    """Peak and seconds over the reference's, as text."""

    def seconds(of: dict[str, Any]) -> float:
        links_s = of["ours"]["collective_s"] if case.claim == "seven" else 0.0
        return of["compiler"]["compute_s"] + links_s

    peak = row["compiler"]["peak_bytes"] / reference["compiler"]["peak_bytes"]
    ratios = zip((peak, seconds(row) / seconds(reference)), BARS[case.claim], strict=True)
    claimed = case.way in CLAIMED
    return [f"**{r:.3f}**" if claimed and bar is not None and r > bar else f"{r:.3f}" for r, bar in ratios]


def compile_case(case: Case) -> dict[str, Any]:
    """Our figures of a case and the compiler's."""
    low, known = case.lower(), kept().get(case.name, {})
    devices = topology_devices(case.on[0])
    emitted = on_mesh(low.program, export(low.program), jax_mesh(case.mesh, devices)).lower()
    key = key_of(emitted, case.on[0])
    if known.get("key") == key and "error" not in known.get("compiler", {}):
        theirs = known["compiler"]
    else:
        began = time.perf_counter()
        theirs = figures(emitted, case.mesh, CLOCK_HZ[devices[0].device_kind.lower()], case.name)
        theirs["seconds"] = round(time.perf_counter() - began, 1)
        theirs.pop("collectives", None)
    return {"claim": case.claim, "key": key, "ours": _ours(low), "compiler": theirs}


def _ours(low: ap.Lowered) -> dict[str, Any]:
    """The simulator's figures, and the collectives of the program."""
    estimate = low.estimate
    assert estimate is not None
    chosen = low.metadata.tactics[0].report.get("program")
    again = price(low.program, options=SimulatorOptions(rematerialise=True))
    return {
        "peak_bytes": estimate.peak_bytes,
        "compute_s": estimate.compute_s,
        "collective_s": estimate.collective_s,
        "fits": estimate.fits,
        **({"program": chosen} if chosen else {}),
        **({} if estimate.fits else {"rematerialised": [again.peak_bytes, again.compute_s]}),
    }
