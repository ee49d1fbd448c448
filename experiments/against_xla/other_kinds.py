"""Programs from outside under data parallelism over both axes: ours, and what `jax.jit` makes with the same shardings.

    python -m experiments.against_xla.other_kinds              with what is kept
    python -m experiments.against_xla.other_kinds --compile    compiles XLA's where none is kept: pip install libtpu

Ours are those of `simulator_accuracy/compiler.json`, XLA's are kept in `other_kinds.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.xla_compile import CLOCK_HZ
from autopart.spmd.run import jax_mesh
from experiments.against_xla.cases import of_xla
from experiments.against_xla.compiled import figures
from experiments.kept import write
from experiments.simulator_accuracy.outside_pairs import OTHER_KINDS, outside_pairs
from experiments.simulator_accuracy.referee import KEPT as OURS
from experiments.simulator_accuracy.states import outside

KEPT = Path(__file__).with_suffix(".json")
BAR = 1.02
"""Compute over XLA's, at most."""


def compile_missing(kept: dict[str, Any]) -> None:
    """Compiles XLA's program of each pair that has none; adds it to `kept` and to the file."""
    for pair in outside_pairs():
        if pair.model in OTHER_KINDS and not pair.search and pair.name not in kept:
            devices, program = topology_devices(pair.on[0]), outside(pair.model)
            theirs = of_xla(pair.lower(), program.step, program.args, jax_mesh(pair.on[1], devices), (0, 1))
            account = figures(theirs, pair.on[1], CLOCK_HZ[devices[0].device_kind.lower()], pair.name)
            kept[pair.name] = {name: account[name] for name in ("compute_s", "peak_bytes")}
            write(KEPT, kept)
            print(pair.name, kept[pair.name], flush=True)


def main() -> None:
    kept = json.loads(KEPT.read_text())
    if "--compile" in sys.argv:
        compile_missing(kept)
    ours = json.loads(OURS.read_text())["pairs"]
    ratios = {
        name: [ours[name][figure] / theirs[figure] for figure in ("compute_s", "peak_bytes")]
        for name, theirs in kept.items()
        if name in ours
    }
    for name, (compute, memory) in sorted(ratios.items(), key=lambda row: -row[1][0]):
        print(f"{compute:.3f} of the compute, {memory:.2f} of the memory  {name}")
    means = np.exp(np.log(list(ratios.values())).mean(axis=0))
    above = sum(compute > BAR for compute, _ in ratios.values())
    print(f"{len(ratios)} programs: {means[0]:.3f} and {means[1]:.3f} as geometric means, {above} above {BAR}")


if __name__ == "__main__":
    main()
