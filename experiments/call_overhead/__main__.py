"""Times calls of `ap.jit` against calls of `jax.jit` with the same shardings, in pairs.

python -m experiments.call_overhead          results.json: under a minute on an idle machine
python -m experiments.call_overhead --quick  fewer calls, nothing written
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import jax

import autopart as ap
from experiments.call_overhead.cases import CASES, MESH, Case
from experiments.kept import write

RESULTS = Path(__file__).with_name("results.json")
BAR = 1.2


def main() -> None:
    parser = argparse.ArgumentParser(prog="experiments.call_overhead")
    parser.add_argument("--quick", action="store_true")
    rounds = 5 if parser.parse_args().quick else 40
    rows = [measured(case, rounds) for case in CASES]
    print(f"{'case':12} {'leaves in':>9} {'jax.jit':>12} {'ap.jit':>12} {'ratio':>7}   bar {BAR}")
    for row in rows:
        print(f"{row['case']:12} {row['leaves']:9} {_us(row['jax_s'])} {_us(row['autopart_s'])} {row['ratio']:7.2f}")
    if rounds == 40:
        write(RESULTS, {"jax": jax.__version__, "bar": BAR, "rows": rows})


def measured(case: Case, rounds: int = 5, calls: int = 20) -> dict[str, Any]:
    """Seconds of a call by either, of the calling thread's own CPU time, and the median ratio of paired rounds."""
    partitioned = ap.jit(case.function, MESH, case.schedule, donate_argnums=case.donated)
    inputs, outputs = partitioned.lower(*case.arguments).as_jax_shardings()
    plain = jax.jit(case.function, in_shardings=inputs, out_shardings=outputs, donate_argnums=case.donated)
    states = {f: jax.device_put(case.arguments, inputs) for f in (partitioned, plain)}

    def seconds(function: Callable[..., Any]) -> float:
        arguments = states[function]
        started = time.thread_time()
        for _ in range(calls):
            arguments = case.following(arguments, function(*arguments))
        spent = time.thread_time() - started
        states[function] = jax.block_until_ready(arguments)
        return spent / calls

    seconds(partitioned), seconds(plain)
    pairs = [(seconds(plain), seconds(partitioned)) for _ in range(rounds)]
    jax_s, autopart_s = (min(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(ours / theirs for theirs, ours in pairs)
    return {"case": case.name, "leaves": case.leaves, "jax_s": jax_s, "autopart_s": autopart_s, "ratio": ratio}


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:9.1f} us"


if __name__ == "__main__":
    main()
