"""What each stage takes of one program: CPU seconds and peak bytes, stage by stage.

    python -m experiments.growth.stages chain 30000       a line of JSON

A process measures one program, after a small one of the same family has gone through all stages, so that kernels are
loaded and types are known. Peak memory is the kernel's high-water mark of resident bytes, reset before each stage.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import jax

import autopart as ap
from autopart.api.jitted.lowered import Lowered
from autopart.api.tactics.schedule import run_schedule
from autopart.api.tracing.trace import Options, trace
from autopart.core.importer import read_module
from autopart.core.passes import IMPORT_PASSES, Recomputation, run_passes
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.compiled.simulator import Simulator
from autopart.search.space.decision_space import DecisionSpace
from experiments.growth.families import FAMILIES, Case

MESH = ap.Mesh({"data": 4, "model": 2}, device="tpu_v3")
SMALL = 600
"""Ops of the program that goes first."""


class Meter:
    """CPU seconds and peak bytes by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peak_bytes: dict[str, int] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measures what runs inside."""
        Path("/proc/self/clear_refs").write_text("5")
        began = time.process_time()
        yield
        self.seconds[name] = time.process_time() - began
        self.peak_bytes[name] = _resident_peak()


def _resident_peak() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def measure(case: Case, wanted: Callable[[str], bool] = lambda stage: True) -> dict[str, Any]:
    """Ops of the program, and what each stage took of it; the stages that are not wanted are left out."""
    meter = Meter()
    stage = meter.stage
    with stage("jax's trace and lowering"):
        lowered = jax.jit(case.fun, donate_argnums=case.donated, keep_unused=True).trace(*case.args).lower()
        module = lowered.compiler_ir("stablehlo")
    with stage("import"):
        program = read_module(module)
    read = program.op_count
    with stage("passes"):
        program, reports = run_passes(program, IMPORT_PASSES)
    traced = trace(case.fun, Options(donate_argnums=case.donated), "tpu", MESH, case.args, {})
    program = traced.program
    schedule = [ap.ManualPartition(dict(case.tiled), "data")]
    partitioning = Partitioning(program, MESH)
    with stage("propagate"):
        for name, value in zip(program.argument_names, program.arguments, strict=True):
            if name in case.tiled:
                partitioning.tile(value, case.tiled[name], "data")
        partitioning.propagate(["data"])
    with stage("lower"):
        scheduled = run_schedule(program, MESH, schedule)
        local = scheduled.device_local
    result = Lowered(traced, scheduled, MESH)
    with stage("estimate"):
        Simulator.of(program, MESH).run(local)
    rest: dict[str, Callable[[], Any]] = {
        "decision space": lambda: DecisionSpace.of(Partitioning(program, MESH), MESH.axis_names),
        "named schedules": lambda: ap.named_schedules(result),
        "export": lambda: result.exported,
        "plan": lambda: result.plan,
        "explain": lambda: result.explain("x"),
        "report": lambda: _report(result),
        "recompute": lambda: run_passes(program, [Recomputation()]),
    }
    for name, run in rest.items():
        if wanted(name):
            with stage(name):
                run()
    return {
        "read": read,
        "ops": program.op_count,
        "passes": {f"{n} {r.name}": r.seconds for n, r in enumerate(reports)},
        "seconds": meter.seconds,
        "peak_bytes": meter.peak_bytes,
    }


def _report(result: Lowered) -> None:
    with tempfile.TemporaryDirectory() as folder:
        result.report(Path(folder) / "report.html")


def main() -> None:
    name, ops, *only = sys.argv[1:]
    measure(FAMILIES[name](SMALL))
    print(json.dumps(measure(FAMILIES[name](int(ops)), lambda stage: not only or stage in only)))


if __name__ == "__main__":
    main()
