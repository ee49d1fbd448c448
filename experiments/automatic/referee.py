"""The TPU compiler as referee: memory of the found schedule against BP+MP+Z3's, on a T32 of few layers."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import autopart as ap
from autopart.api.tactics.schedule import run_schedule
from autopart.costmodel.xla.xla_compile import XlaCompile
from experiments.automatic.cases import MESH, traced
from experiments.automatic.quality import automatic
from experiments.models import t32
from experiments.models.tactics import BP, MP, Z3

TOPOLOGY = "v3:4x4"


def judged(layers: int) -> dict[str, Any]:
    """Peak bytes by the compiler and by the simulator, of both schedules."""
    program = traced(t32, dataclasses.replace(t32.Config(), layers=layers))
    print(f"\nT32 with {layers} layers, compiled for {TOPOLOGY}")
    result: dict[str, Any] = {"layers": layers, "topology": TOPOLOGY}
    for name, schedule in (("BP+MP+Z3", [BP, MP, Z3]), ("AllAuto", [automatic("batch", "model")])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ap.SearchWarning)
            scheduled = run_schedule(program, MESH, schedule)
        compiled = XlaCompile(TOPOLOGY)(scheduled.device_local, MESH)
        result[name] = {
            "simulator_peak_bytes": scheduled.estimate.peak_bytes, "compiler_peak_bytes": compiled.peak_bytes,
            "simulator_step_s": scheduled.estimate.step_s, "compiler_step_s": compiled.step_s,
        }  # fmt: skip
        peaks = f"{compiled.peak_bytes / 1e9:.2f} GB (simulator {scheduled.estimate.peak_bytes / 1e9:.2f})"
        print(f"  {name:10} {peaks}  {compiled.step_s * 1e3:.0f} ms (simulator {scheduled.estimate.step_s * 1e3:.0f})")
    ratio = result["AllAuto"]["compiler_peak_bytes"] / result["BP+MP+Z3"]["compiler_peak_bytes"]
    result["peak_ratio"] = ratio
    print(f"  AllAuto over BP+MP+Z3: {ratio:.2f} x the memory")
    return result
