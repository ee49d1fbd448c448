"""What XLA's GPU compiler makes of a program: its account, kept in `compiled.json` by the hash of what it was given.

A program whose text, topology and compiler are known is never compiled again. Where its optimised text is at hand
(`TEXTS`), seconds are worked out anew: they are our rooflines and links.
"""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Any

import jax

import autopart as ap
from autopart.core.doors.xla_options import for_devices
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.hardware.gpu_targets import AMPLE_BYTES
from autopart.costmodel.xla.gpu_kernels import runs
from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.two_streams import replay
from autopart.costmodel.xla.xla_compile import allocated_bytes
from autopart.spmd.run import jax_mesh, on_mesh
from experiments.against_xla.cases import of_xla
from experiments.compiled_programs import CompiledPrograms
from experiments.gpu_accuracy.cases import Case, program

KEPT = CompiledPrograms(Path(__file__).with_name("compiled.json"), ("jax", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12"))

TEXTS: Path | None = None
"""Where optimised texts are left, by key; None: nowhere."""


def sides(case: Case, low: ap.Lowered, with_xla: bool) -> dict[str, jax.stages.Lowered]:
    """Our program, and XLA's partitioner's of the same step with equal shardings, for GPUs with ample memory."""
    mesh = jax_mesh(case.mesh, topology_devices(case.topology, memory=AMPLE_BYTES))
    found = {"ours": on_mesh(low.program, low.exported, mesh).lower()}
    if with_xla:
        of = program(case.program)
        found["xla"] = of_xla(low, of.step, of.args, mesh, (0, 1))
    return found


def account(lowered: jax.stages.Lowered, case: Case) -> str:
    """The key in `KEPT` of a program, which is compiled if it is not there."""
    key = KEPT.key(lowered, case.topology)
    known = KEPT.read().get(key)
    path = TEXTS / f"{key}.hlo.gz" if TEXTS else None
    if known and (path is None or path.exists()):
        if path:
            KEPT.add(key, {**known, **figures(OptimisedHlo(gzip.decompress(path.read_bytes()).decode()), case)})
        return key
    jax.clear_caches()
    devices, started = topology_devices(case.topology), time.perf_counter()
    compiled = lowered.compile(compiler_options=for_devices(devices))
    text, stats = compiled.as_text() or "", compiled.memory_analysis()
    if path:
        path.write_bytes(gzip.compress(text.encode()))
    memory = {
        "peak_bytes": allocated_bytes(compiled),
        "heap_peak_bytes": getattr(stats, "peak_memory_in_bytes", 0),
        "argument_bytes": stats.argument_size_in_bytes,
        "compile_s": round(time.perf_counter() - started, 1),
    }
    KEPT.add(key, {**memory, **figures(OptimisedHlo(text), case)})
    return key


def figures(module: OptimisedHlo, case: Case) -> dict[str, Any]:
    """Seconds of a compiled program, and its collectives after combining: kind, axes, bytes before, times."""
    found = replay(module, case.mesh, device(case.device))
    return {
        "compute_s": found.compute_s,
        "link_s": found.link_s,
        "step_s": found.step_s,
        "kernels": sum(times for i, times in module.ran() if runs(i)),
        "collectives": [[*row, times] for row, times in found.collectives.items()],
    }
