"""See the README. Prints rows and keeps them.

python -m experiments.fitting [mesh ...]               the 7 B model by the simulator, in results.json
python -m experiments.fitting limits [case ...]        beside trying everything, at several limits of memory
python -m experiments.fitting compiler                 what the TPU compiler said, from compiler.json
python -m experiments.fitting compile [case ...]       has it compile cases whose names hold a word; needs libtpu
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import autopart as ap
from experiments.fitting import limits
from experiments.fitting.compiler import compile_all, report
from experiments.fitting.model import Config, abstract_args, step

MESHES = {
    "8 x A100-40GB": ap.Mesh({"data": 4, "model": 2}, device="a100_40gb"),
    "v5e 4x4": ap.Mesh({"data": 4, "model": 4}, device="tpu_v5e"),
}
STEPS = (1, 2, 4, 8)
CONFIG = Config()
RESULTS = Path(__file__).with_name("results.json")
FIRST = ap.FIRST_DIVISIBLE_DIM


def written(mesh: ap.Mesh) -> Iterator[tuple[str, list[Any]]]:
    """Schedules that people write, for each number of microbatches: FSDP over all devices, Megatron with FSDP."""
    state = {"params": FIRST, "opt_state": FIRST}
    data = [ap.ManualPartition({"tokens": 0}, axis=axis) for axis in mesh.axis_names]
    megatron = ap.ManualPartition({"params": {"*/qkv": 3, "*/gate": 2, "*/up": 2}}, axis="model")
    fsdp = [ap.ManualPartition(state, axis=axis) for axis in mesh.axis_names]
    for k in STEPS:
        accumulated = [] if k == 1 else [ap.Microbatch({"tokens": 0}, k)]
        yield f"FSDP, {k} microbatches", [*accumulated, *data, *fsdp]
        yield f"Megatron + FSDP, {k} microbatches", [*accumulated, data[0], megatron, fsdp[0]]


def figures(lowered: ap.Lowered) -> dict[str, Any]:
    """Seconds, bytes, and whether it fits, as the simulator says."""
    estimate = lowered.estimate
    assert estimate is not None
    return {"step_s": estimate.step_s, "peak_gb": estimate.peak_bytes / 1e9, "fits": estimate.fits}


def measured(mesh: ap.Mesh) -> dict[str, Any]:
    """The best by hand, what a search over programs finds, and the seconds that it took."""
    args = abstract_args(CONFIG)
    hand = {}
    for name, schedule in written(mesh):
        hand[name] = figures(ap.jit(step(checkpoint=True), mesh, schedule, donate_argnums=(0, 1)).lower(*args))
    plain = {"axes": list(mesh.axis_names), "cache": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ap.SearchWarning)
        whole = ap.AutomaticPartition(**plain, budget=ap.Budget(100))
        alone = figures(ap.jit(step(), mesh, [whole], donate_argnums=(0, 1)).lower(*args))
    search = ap.AutomaticPartition(**plain, budget=ap.Budget(200), microbatch=STEPS, recompute=True)
    began, cpu = time.perf_counter(), time.process_time()
    lowered = ap.jit(step(), mesh, [search], donate_argnums=(0, 1)).lower(*args)
    took = {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
    report = lowered.metadata.tactics[0].report
    best = min((row for row in hand.values() if row["fits"]), key=lambda row: row["step_s"], default=None)
    found = {**figures(lowered), **took, "program": report["program"], "decisions": report["decisions"]}
    ratio = found["step_s"] / best["step_s"] if best else None
    return {"by hand": hand, "one program": alone, "found": found, "over best by hand": ratio}


def main(names: list[str]) -> None:
    """Measures the meshes of these names, all without any; or asks the compiler."""
    if names[:1] == ["limits"]:
        limits.main(names[1:])
        return
    if names[:1] == ["compile"]:
        compile_all(names[1:])
    if names[:1] in (["compile"], ["compiler"]):
        print(report())
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names or MESHES:
        row = results[name] = measured(MESHES[name])
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(name)
        for what, told in itertools.chain(row["by hand"].items(), [(k, row[k]) for k in ("one program", "found")]):
            print(f"  {what:40} {told['step_s']:7.3f} s {told['peak_gb']:7.1f} GB {'' if told['fits'] else 'over'}")
        print(f"  {row['found']['program']}, in {row['found']['seconds']:.0f} s ({row['found']['cpu_s']:.0f} s of CPU)")
        print(f"  over the best by hand: {row['over best by hand']}")


if __name__ == "__main__":
    main(sys.argv[1:])
