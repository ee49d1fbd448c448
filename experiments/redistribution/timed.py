"""Seconds per redistribution on 8 simulated devices, XLA's program and ours in turn."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from autopart.spmd.redistribution import plan
from experiments.redistribution.compiled import compiled_by_us
from experiments.redistribution.problems import ELEMENT_BYTES, TIMED, draw
from experiments.redistribution.statistics import geomean, significant
from experiments.redistribution.xla import collectives_in, compiled_by_xla, device_mesh, shardings

REPETITIONS = 7


def measure() -> dict[str, Any]:
    """Prints and returns, per problem, the least and the median of the repetitions."""
    rows = []
    for problem in draw(TIMED):
        steps = plan(*problem.types)
        if not steps.cost:
            continue
        mesh = device_mesh(problem)
        source, _ = shardings(problem, mesh)
        xla = compiled_by_xla(problem, mesh)
        programs = {"xla": xla, "ours": compiled_by_us(problem, mesh)}
        x = jax.device_put(np.arange(np.prod(problem.shape), dtype=np.float32).reshape(problem.shape), source)
        seconds = _in_turn(programs, x)
        held = problem.largest * ELEMENT_BYTES
        rows.append(
            {
                "shape": problem.shape,
                "source": str(steps.source),
                "target": str(steps.target),
                "bytes": problem.bytes,
                "cost": {"xla": collectives_in(xla.as_text()).cost, "ours": steps.cost},
                "min_s": {name: significant(min(s)) for name, s in seconds.items()},
                "median_s": {name: significant(float(np.median(s))) for name, s in seconds.items()},
                "temporary_tiles": {
                    name: significant(p.memory_analysis().temp_size_in_bytes / held) for name, p in programs.items()
                },
            }
        )
    result = {"problems": rows, "repetitions": REPETITIONS}
    for name in ("min_s", "median_s"):
        quotients = [row[name]["xla"] / row[name]["ours"] for row in rows]
        result[f"xla_over_ours_{name}"] = {
            "geomean": significant(geomean(quotients)),
            "max": significant(max(quotients)),
            "min": significant(min(quotients)),
            "faster_by_a_tenth": sum(q > 1.1 for q in quotients),
            "slower_by_a_tenth": sum(q < 0.9 for q in quotients),
        }
    print(f"run time, {len(rows)} problems: XLA/ours {result['xla_over_ours_least_s']} (least of {REPETITIONS})")
    return result


def _in_turn(programs: dict[str, Any], x: jax.Array) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for repetition in range(REPETITIONS + 1):
        for name, program in programs.items():
            start = time.perf_counter()
            y = jax.block_until_ready(program(x))
            if repetition:
                seconds[name].append(time.perf_counter() - start)
            del y
    return seconds
