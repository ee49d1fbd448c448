"""The programs that searches are compared on: the zoo, real workloads, and models written with released packages.

A folder of more StableHLO workloads, laid out as `tests/data/workloads`, may be named by AUTOPART_WORKLOADS.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import autopart as ap
from autopart.core.program import Program
from experiments.automatic.cases import WORKLOADS, traced, workload
from experiments.models import gns, it32, t32, unet
from experiments.models.outside.released import MODELS

MESHES = {
    "tpu_v3": ap.Mesh({"batch": 8, "model": 4}, device="tpu_v3"),
    "h100": ap.Mesh({"data": 4, "fsdp": 4, "model": 4}, device="h100"),
}


def _built(name: str) -> Program:
    build, donated = MODELS[name]
    step, args = build()
    return ap.jit(step, MESHES["tpu_v3"], [], donate_argnums=donated).lower(*args).traced.program


def programs() -> dict[str, Callable[[], Program]]:
    """Every program by name, not yet loaded."""
    zoo: dict[str, Callable[[], Program]] = {
        "t32": lambda: traced(t32, t32.Config()),
        "unet": lambda: traced(unet, unet.Config()),
        "gns": lambda: traced(gns, gns.Config()),
        "it32": lambda: traced(it32, it32.Config(), (1,)),
    }
    folder = Path(os.environ.get("AUTOPART_WORKLOADS", WORKLOADS))
    files = sorted(path.name.removesuffix(".mlir.gz") for path in folder.glob("*.mlir.gz"))
    return zoo | {n: functools.partial(workload, n, folder) for n in files} | {
        n: functools.partial(_built, n) for n in MODELS
    }  # fmt: skip
