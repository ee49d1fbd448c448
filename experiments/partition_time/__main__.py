"""Times partitioning of the T32 training step against XLA's compilation of the result, in one run.

    python -m experiments.partition_time                  T32 with 32 blocks on {batch:16, model:2}
    python -m experiments.partition_time --layers 4       a smaller one
    python -m experiments.partition_time --no-compile     without XLA, which takes minutes

Partitioning is everything from the StableHLO file that JAX lowered to the device-local StableHLO that XLA is given.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=32".strip()

import jax

import autopart as ap
from autopart.core.partitioning import Partitioning
from experiments.models import t32
from experiments.models.tactics import BP, MP, Z3

MESH = ap.Mesh({"batch": 16, "model": 2})
SCHEDULE = [BP, MP, Z3]
RESULTS = Path(__file__).with_name("results.json")
BAR = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(prog="experiments.partition_time")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _, _, first = partition(lower(t32.Config(layers=1), Path(folder) / "one_block.mlir"))
        print(f"first use in this process, one block (loads the cached kernels): {sum(first.values()):.2f} s")
        module = lower(t32.Config(layers=options.layers), Path(folder) / "t32.mlir")
        loaded, lowered, seconds = partition(module)
    partition_s = sum(seconds.values())
    print(f"T32 with {options.layers} blocks on {MESH}, schedule BP+MP+Z3: {loaded.traced.program.op_count:,} ops")
    for stage, stage_s in seconds.items():
        print(f"  {stage:32} {stage_s:8.2f} s")
    print(f"  {'partitioning in all':32} {partition_s:8.2f} s")
    propagate_s = propagation_s(loaded)
    print(f"  {'one propagation over the program':32} {propagate_s * 1e3:8.2f} ms")
    if options.no_compile:
        return
    compile_s, _ = timed(lambda: lowered.compile().lower().compile())
    print(f"  {'XLA compiles the result':32} {compile_s:8.2f} s")
    print(f"partitioning / compilation: {partition_s / compile_s:.1%} (bar: {BAR:.0%})")
    if options.layers == 32:
        figures = {
            "seconds": seconds,
            "partition_s": partition_s,
            "propagation_s": propagate_s,
            "compile_s": compile_s,
            "ratio": partition_s / compile_s,
            "bar": BAR,
        }
        RESULTS.write_text(json.dumps(figures, indent=1) + "\n")


def lower(config: t32.Config, path: Path) -> tuple[Path, list[str]]:
    """The step as a StableHLO file, and the names of its arguments."""
    args = t32.abstract_args(config)
    path.write_text(jax.jit(t32.step(config), donate_argnums=(0, 1), keep_unused=True).lower(*args).as_text())
    names = [
        "/".join([name, *map(_part, keys)])
        for name, arg in zip(("params", "opt_state", "batch"), args, strict=True)
        for keys, _ in jax.tree_util.tree_leaves_with_path(arg)
    ]
    return path, names


def _part(key: Any) -> str:
    return str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", key))))


def partition(module: tuple[Path, list[str]]) -> tuple[Any, Any, dict[str, float]]:
    """The loaded program, the partitioned one, and the seconds of each stage."""
    path, names = module
    load_s, loaded = timed(lambda: ap.load(path, argument_names=names))
    schedule_s, lowered = timed(lambda: ap.jit(loaded, MESH, SCHEDULE).lower())
    export_s, _ = timed(lambda: lowered.exported)
    return (
        loaded,
        lowered,
        {"parse and import": load_s, "three tactics and lowering": schedule_s, "export to StableHLO": export_s},
    )


def propagation_s(loaded: Any, repeats: int = 9) -> float:
    """Median seconds of one propagation of the tiled batch over the whole program."""
    partitioning = Partitioning(loaded.traced.program, MESH)
    names = loaded.traced.program.argument_names
    inputs = [loaded.traced.program.arguments[i] for i, name in enumerate(names) if name.startswith("batch/")]
    start, found = partitioning.mark(), []
    for _ in range(repeats):
        for value in inputs:
            partitioning.tile(value, 0, "batch")
        found.append(timed(lambda: partitioning.propagate(["batch"]))[0])
        partitioning.undo(start)
    return statistics.median(found)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that `work` took, and what it returned."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    main()
