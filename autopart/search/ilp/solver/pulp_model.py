"""The integer program as a PuLP model, which CBC solves: it comes with PuLP, so it is there where HiGHS is not.

The model has the variables, rows and numbers of the arrays in `integer_program`, no others.
"""

from __future__ import annotations

import time
import warnings
from typing import NamedTuple

import numpy as np
import pulp

from autopart.search.ilp.solver.integer_program import IntegerProgram
from autopart.search.ilp.solver.pairwise_problem import Floats


class Solved(NamedTuple):
    """Values of the binaries; whether they are optimal; or that there are none."""

    values: Floats
    optimal: bool
    infeasible: bool


def pulp_model(program: IntegerProgram) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    """The model, and its variables in the order of the program's columns."""
    model = pulp.LpProblem("pairwise", pulp.LpMinimize)
    variables = [
        model.add_variable(f"x{j}", 0, 1, pulp.LpBinary if j < program.binaries else pulp.LpContinuous)
        for j in range(len(program.cost))
    ]
    model += pulp.LpAffineExpression(zip(variables, program.cost.tolist(), strict=True))
    rows: list[list[tuple[pulp.LpVariable, float]]] = [[] for _ in program.lower]
    for j, variable in enumerate(variables):
        for at in range(program.start[j], program.start[j + 1]):
            rows[program.row[at]].append((variable, float(program.value[at])))
    for terms, low, high in zip(rows, program.lower, program.upper, strict=True):
        row = pulp.LpAffineExpression(terms)
        model += row == float(high) if low == high else row <= float(high)
    return model, variables


def solve_by_cbc(program: IntegerProgram, seconds: float) -> Solved | None:
    """What CBC finds in so many seconds, the model's making among them; None if that is nothing, or it cannot run."""
    deadline = time.monotonic() + seconds
    model, variables = pulp_model(program)
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        return None
    with warnings.catch_warnings():  # PuLP 4 will ship CBC apart, under another name
        warnings.simplefilter("ignore", DeprecationWarning)
        solver = pulp.PULP_CBC_CMD(msg=False, timeLimit=max(1.0, seconds), gapRel=0.0)
    if not solver.available():
        return None
    try:
        status = model.solve(solver)
    except pulp.PulpSolverError:
        return None
    if status == pulp.LpStatusInfeasible:
        return Solved(np.zeros(0), False, True)
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return None
    values = np.array([variable.varValue or 0.0 for variable in variables[: program.binaries]])
    return Solved(values, model.sol_status == pulp.LpSolutionOptimal, False)
