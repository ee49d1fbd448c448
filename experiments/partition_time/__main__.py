"""Times partitioning of the T32 training step against XLA's compilation of the result, in one run.

    python -m experiments.partition_time                  T32 with 32 blocks on {batch:16, model:2}
    python -m experiments.partition_time --layers 4       a smaller one
    python -m experiments.partition_time --no-compile     without XLA, which takes minutes

Partitioning is all that `ap.jit` does between the StableHLO module that JAX lowered and the device-local StableHLO
module that XLA is given: import, tactics with a report after each, lowering, export.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=32".strip()

import autopart as ap
from autopart.api.jitted.lowered import Lowered
from autopart.api.tactics.schedule import run_schedule
from autopart.api.tracing.trace import Options, Traced, trace
from autopart.core.importer import import_module
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from experiments.kept import write
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
    _, first = partition(trace_step(t32.Config(layers=1)))
    print(f"first use in this process, one block (loads the cached kernels): {sum(first.values()):.2f} s")
    traced = trace_step(t32.Config(layers=options.layers))
    lowered, seconds = partition(traced)
    partition_s = sum(seconds.values())
    program = lowered.traced.program
    print(f"T32 with {options.layers} blocks on {MESH}, schedule BP+MP+Z3: {program.op_count:,} ops")
    for stage, stage_s in seconds.items():
        print(f"  {stage:32} {stage_s:8.2f} s")
    print(f"  {'partitioning in all':32} {partition_s:8.2f} s")
    propagate_s = propagation_s(program)
    print(f"  {'one propagation over the program':32} {propagate_s * 1e3:8.2f} ms")
    if options.no_compile:
        return
    compile_s, _ = timed(lambda: lowered.compile())
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
        write(RESULTS, figures)


def trace_step(config: t32.Config) -> Traced:
    """The step as jax lowered it, imported once; its module is what partitioning starts from."""
    return trace(t32.step(config), Options(donate_argnums=(0, 1)), "cpu", MESH, t32.abstract_args(config), {})


def partition(traced: Traced) -> tuple[Lowered, dict[str, float]]:
    """The partitioned program and the seconds of each stage."""
    whole = traced.program
    names = {"argument_names": whole.argument_names, "output_names": whole.output_names}
    import_s, program = timed(
        lambda: import_module(whole.source.module, ties=whole.ties, donated=whole.donated, **names)
    )
    schedule_s, scheduled = timed(lambda: run_schedule(program, MESH, SCHEDULE))
    lowered = Lowered(replace(traced, program=program), scheduled, MESH)
    export_s, _ = timed(lambda: lowered.exported)
    return lowered, {"import": import_s, "three tactics and lowering": schedule_s, "export": export_s}


def propagation_s(program: Program, repeats: int = 9) -> float:
    """Median seconds of one propagation of the tiled batch over the whole program."""
    partitioning = Partitioning(program, MESH)
    named = zip(program.argument_names, program.arguments, strict=True)
    inputs = [value for name, value in named if name.startswith("batch/")]
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
