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
from autopart.costmodel.xla_compile import CLOCK_HZ, topology_devices
from autopart.spmd.export import export
from autopart.spmd.run import jax_mesh, on_mesh
from experiments.against_xla.compiled import figures, key_of
from experiments.fitting.cases import CASES, Case

KEPT = Path(__file__).with_name("compiler.json")


def kept() -> dict[str, Any]:
    """Case name -> ours and the compiler's figures."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def compile_all(names: list[str]) -> None:
    """Compiles the cases whose name contains one of `names`, all without any; what is known is only priced anew."""
    for case in CASES:
        if not names or any(name in case.name for name in names):
            row = compile_case(case)
            KEPT.write_text(json.dumps({**kept(), case.name: row}, indent=1) + "\n")
            print(case.name, json.dumps(row), flush=True)


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
    return {"claim": case.claim, "key": key, "ours": _ours(low), "compiler": theirs}


def _ours(low: ap.Lowered) -> dict[str, Any]:
    """The simulator's figures, and the collectives of the program."""
    estimate = low.estimate
    assert estimate is not None
    chosen = low.metadata.tactics[0].report.get("program")
    return {
        "peak_bytes": estimate.peak_bytes,
        "compute_s": estimate.compute_s,
        "collective_s": estimate.collective_s,
        "fits": estimate.fits,
        **({"program": chosen} if chosen else {}),
    }
