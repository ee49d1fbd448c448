"""What XLA compiles the same problems to: its collectives, and the temporary memory of its programs and ours."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from autopart.api.reshard import reshard
from autopart.spmd.redistribution import plan
from experiments.redistribution.problems import ELEMENT_BYTES, PAPER, UNEVEN, Problem, ProblemSet, draw
from experiments.redistribution.statistics import geomean, ratios, significant
from experiments.redistribution.xla import collectives_in, compiled_by_xla, device_mesh, shardings


def measure() -> dict[str, Any]:
    """Prints and returns costs by Figure 11 and temporary memory."""
    return {family.name: _family(family) for family in (PAPER, UNEVEN)}


def compiled_by_us(problem: Problem, mesh: jax.sharding.Mesh) -> Any:
    """Our redistribution from source to target, compiled."""
    source, target = shardings(problem, mesh)
    move = jax.jit(partial(reshard, target=target, source=source))
    return move.lower(jax.ShapeDtypeStruct(problem.shape, jnp.float32, sharding=source)).compile()


def _family(family: ProblemSet) -> dict[str, Any]:
    mesh = None
    ours, theirs, fallbacks, temporary, emitted = [], [], [], [], 0
    for number, problem in enumerate(draw(family)):
        mesh = mesh or device_mesh(problem)
        steps = plan(*problem.types)
        xla, mine = compiled_by_xla(problem, mesh), compiled_by_us(problem, mesh)
        sequence = collectives_in(xla.as_text())
        ours.append(steps.cost)
        theirs.append(sequence.cost)
        emitted += collectives_in(mine.as_text()).cost == steps.cost
        if sequence.largest > problem.largest:
            fallbacks.append(number)
        held = problem.largest * ELEMENT_BYTES
        temporary.append(tuple(c.memory_analysis().temp_size_in_bytes / held for c in (xla, mine)))
    between = [(a, b) for a, b, cost in zip(*zip(*temporary, strict=True), ours, strict=True) if cost]
    inside = set(fallbacks)
    result = {
        "problems": len(ours),
        "xla_over_ours": ratios(theirs, ours),
        "xla_over_ours_where_xla_gathers_above_both": ratios(*_chosen(theirs, ours, inside)),
        "xla_over_ours_elsewhere": ratios(*_chosen(theirs, ours, set(range(len(ours))) - inside)),
        "xla_gathers_above_both": len(fallbacks),
        "compiled_as_planned": emitted,
        "temporary_over_larger_tile": {
            name: {"max": significant(max(side)), "mean": significant(sum(side) / len(side))}
            for name, side in zip(("xla", "ours"), zip(*temporary, strict=True), strict=True)
        },
        "peak_xla_over_ours": significant(geomean([(2 + a) / (2 + b) for a, b in between])),
    }
    print(
        f"{family.name}: XLA/ours geomean {result['xla_over_ours']['geomean']} (max {result['xla_over_ours']['max']}), "
        f"XLA gathers above source and target on {len(fallbacks)}, "
        f"temporary tiles {result['temporary_over_larger_tile']}, compiled as planned {emitted}"
    )
    return result


def _chosen(theirs: list[float], ours: list[float], numbers: set[int]) -> tuple[list[float], list[float]]:
    return [theirs[n] for n in sorted(numbers)], [ours[n] for n in sorted(numbers)]
