"""Seconds of the first estimate and the first search on a machine that has compiled no kernel, and on one that has.

    python -m experiments.search_speed.cold

A process with an empty folder for kernels estimates a step of T32 with two layers, then searches with 60 evaluations;
another does the same with what the first has compiled. Imports count for neither.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("cold.json")
STEPS = ("estimate", "search")


def timed(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds by the clock, and of CPU, of this process and of those that compile beside it."""
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    work()
    return {"wall_s": round(time.perf_counter() - wall, 2), "cpu_s": round(sum(os.times()[:4]) - cpu, 2)}


def measure() -> None:
    """Prints the seconds of this process as JSON."""
    import autopart as ap
    from experiments.models import t32

    config = t32.Config(layers=2, model_dim=1024, heads=16, batch=32, sequence=512)
    mesh = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
    auto = ap.AutomaticPartition(["batch", "model"], budget=ap.Budget(60), cache=False, progress=False)

    def run(schedule: list[Any]) -> None:
        step = ap.jit(t32.step(config), mesh, schedule, donate_argnums=(0, 1))
        _ = step.lower(*t32.abstract_args(config)).estimate

    print(json.dumps({step: timed(lambda s=s: run(s)) for step, s in zip(STEPS, ([], [auto]), strict=True)}))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for kernels in ("compiled", "loaded"):
            run = subprocess.run(
                [sys.executable, "-c", "from experiments.search_speed.cold import measure; measure()"],
                env=os.environ | {"NUMBA_CACHE_DIR": folder, "JAX_PLATFORMS": "cpu"},
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            found[kernels] = json.loads(run.stdout.splitlines()[-1])
            seconds = "  ".join(
                f"{step} {s['wall_s']:6.2f} s ({s['cpu_s']:.2f} CPU)" for step, s in found[kernels].items()
            )
            print(f"kernels {kernels:9} {seconds}", flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
