"""The compute side against measured steps on one real device: a T32 block and a UNet block, forward and backward.

    python -m experiments.simulator_accuracy.on_device h100       on a machine with that device
    python -m experiments.simulator_accuracy.on_device cpu_host   anywhere: shows that it runs, at toy sizes

Prints a row per program, and writes on_device_NAME.json with the device's own name, the date and versions.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import autopart as ap
from autopart.costmodel import estimate
from experiments.models import t32, unet


def programs(toy: bool) -> dict[str, tuple[Callable, tuple]]:
    """Name to (step, example arguments): one layer of T32 at several batches, the UNet with one block a level."""
    block = replace(t32.SMALL if toy else t32.Config(), layers=1, vocabulary=64 if toy else 1024)
    small = replace(unet.Config(), blocks=1, batch=8 if toy else 256, channels=16 if toy else 80)
    batches = (8,) if toy else (1, 2, 4)
    found: dict[str, tuple[Callable, tuple]] = {}
    for batch in batches:
        config = replace(block, batch=batch)
        found[f"T32 block, batch {batch}"] = (t32.step(config), t32.example_args(config))
    found["UNet, a block a level"] = (unet.step(small), unet.example_args(small))
    return found


def measured_s(step: Callable, arguments: tuple, repeats: int = 10) -> float:
    """Median seconds of a step after two to warm up."""
    run = jax.jit(step)
    times = []
    for _ in range(repeats + 2):
        started = time.perf_counter()
        jax.block_until_ready(run(*arguments))
        times.append(time.perf_counter() - started)
    return float(np.median(times[2:]))


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu_host"
    rows: list[dict[str, Any]] = []
    for name, (step, arguments) in programs(toy=device == "cpu_host").items():
        abstract = jax.eval_shape(lambda *a: a, *arguments)
        found = estimate(ap.jit(step, ap.Mesh({"x": 1}, device=device)).lower(*abstract).program)
        rows.append({"program": name, "estimated_s": found.step_s, "measured_s": measured_s(step, arguments)})
        ratio = rows[-1]["estimated_s"] / rows[-1]["measured_s"]
        print(f"{name:<28}{found.step_s * 1e3:10.3f} ms{rows[-1]['measured_s'] * 1e3:10.3f} ms{ratio:8.2f}", flush=True)
    report = {
        "device": jax.devices()[0].device_kind,
        "date": datetime.date.today().isoformat(),
        "jax": version("jax"),
        "rows": rows,
    }
    Path(__file__).with_name(f"on_device_{device}.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
