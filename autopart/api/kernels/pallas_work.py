"""Flop of a Pallas call: what it says itself, or those of its body, once for each step of the grid.

    cost_estimate=pl.CostEstimate(flops=...)     as it says
    grid (4, 8, 16), a body with one dot_general of 128 x 64 x 128      512 * 2 * 128 * 64 * 128

Steps that a body leaves out at run time, such as blocks above a causal mask's diagonal, are counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxprs_in_params

from autopart.core.ops.traits import Work


def work_of_grid(params: Mapping[str, Any]) -> Work | None:
    """The work of a whole call; None where it does not say, and its grid is known at run time only."""
    stated, grid = params["cost_estimate"], params["grid_mapping"].grid
    each, is_static = _work(params["jaxpr"]), all(isinstance(steps, int) for steps in grid)
    if stated is None and not is_static:
        return None
    if stated is None:
        steps = math.prod(grid)
        return Work(each.matrix_flop * steps, each.vector_flop * steps)
    vector = float(stated.transcendentals or 0)
    return Work(float(stated.flops), vector) if each.matrix_flop else Work(0.0, float(stated.flops) + vector)


def _work(jaxpr: Any) -> Work:
    matrix = vector = 0.0
    for equation in jaxpr.eqns:
        inner = [_work(getattr(j, "jaxpr", j)) for j in jaxprs_in_params(equation.params)]
        if inner:
            most = max(inner, key=sum)
            times = float(equation.params.get("length", 1))
            matrix, vector = matrix + times * most.matrix_flop, vector + times * most.vector_flop
        elif equation.primitive.name == "dot_general":
            summed = equation.params["dimension_numbers"][0][0]
            rows = math.prod(equation.invars[0].aval.shape[d] for d in summed)
            matrix += 2.0 * rows * math.prod(equation.outvars[0].aval.shape)
        else:
            vector += max((_computed(v.aval) for v in equation.outvars), default=0.0)
    return Work(matrix, vector)


def _computed(aval: Any) -> float:
    """Elements of an array of floats; a reference has none, and what only moves elements is counted with the rest."""
    is_float = hasattr(aval, "shape") and jax.numpy.issubdtype(getattr(aval, "dtype", np.int32), np.inexact)
    return float(math.prod(aval.shape)) if is_float else 0.0
