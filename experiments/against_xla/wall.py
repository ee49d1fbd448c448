"""Seconds of a step on 8 host devices, ours and XLA's in turn, so that a busy machine slows both alike.

Eight devices wait for each other at every collective, so on a machine of few cores the clock says more of its other
work than of the program. CPU seconds of the process, all devices together, do not count waiting: they are kept too.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.against_xla.cases import Case

ROUNDS = 15


def timed(case: Case) -> dict[str, Any]:
    """The median and the least of `ROUNDS` steps of each, the median of their quotients, by the clock and in CPU
    seconds, and the largest difference of what the two compute."""
    pair = case.pair(jax.devices())
    programs = {"ours": pair.ours.compile(), "xla": pair.xla.compile()}
    args = [_filled(kind) for kind in jax.tree.leaves(case.load().args)]
    taken: dict[str, list[float]] = {name: [] for name in programs}
    busy: dict[str, list[float]] = {name: [] for name in programs}
    results: dict[str, Any] = {}
    for number in range(ROUNDS + 1):
        for name in sorted(programs, reverse=bool(number % 2)):
            program = programs[name]
            inputs = jax.device_put(args, jax.tree.leaves(program.input_shardings[0]))
            if name == "xla":
                inputs, _ = jax.tree.unflatten(program.in_tree, inputs)
            jax.block_until_ready(inputs)
            started, cpu = time.perf_counter(), time.process_time()
            results[name] = jax.block_until_ready(program(*inputs))
            if number:
                taken[name].append(time.perf_counter() - started)
                busy[name].append(time.process_time() - cpu)
    differences = [
        float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)), initial=0))
        for a, b in zip(*map(jax.tree.leaves, (results["ours"], results["xla"])), strict=True)
    ]
    return {
        "median_s": {name: float(np.median(s)) for name, s in taken.items()},
        "least_s": {name: min(s) for name, s in taken.items()},
        "ratio": _ratio(taken),
        "cpu_s": {name: float(np.median(s)) for name, s in busy.items()},
        "cpu_ratio": _ratio(busy),
        "largest_difference": max(differences),
    }


def _ratio(seconds: dict[str, list[float]]) -> float:
    """The median of ours over XLA's, round by round."""
    return float(np.median(np.array(seconds["ours"]) / np.array(seconds["xla"])))


def _filled(kind: Any) -> Any:
    """A value of the given shape and type: small numbers, whole ones of 0 and 1."""
    random = np.random.default_rng(0)
    if jnp.issubdtype(kind.dtype, jnp.integer):
        return random.integers(0, 2, kind.shape).astype(kind.dtype)
    return (0.02 * random.random(kind.shape)).astype(kind.dtype)
