"""Solvers of the integer program: HiGHS by arrays, HiGHS or CBC by PuLP's model.

    "highs"     arrays go straight into HiGHS, through SciPy
    "pulp"      the model is written in PuLP and solved by HiGHS where it is installed, else by CBC, which PuLP brings

Both get the same variables and constraints. A solver that is missing, or ends without an answer, is named in the notes
of what the other one finds.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownParameterType=false
# (SciPy and PuLP carry no types)
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autopart.search.ilp.integer_program import IntegerProgram

SOLVERS = ("highs", "pulp")
"""By the names that `ap.ILP(solver=...)` takes."""

LEAST_S = 0.01
"""Below this HiGHS takes no limit in seconds for one."""


@dataclass(frozen=True, eq=False)
class Solved:
    """What a solver says of an integer program.

    x        float64[variables], or None where none was found
    bound    nothing costs less; -inf where nothing is known
    notes    solvers that gave no answer, and why
    """

    x: np.ndarray | None
    bound: float
    notes: tuple[str, ...] = ()


def solve_program(program: IntegerProgram, solver: str, seconds: float, *, relaxed: bool = False) -> Solved:
    """The best solution found in about so many seconds; `relaxed`: of the linear relaxation, whose value is the bound.

    The first of `SOLVERS` that answers does, beginning with `solver`.
    """
    notes: list[str] = []
    for name in (solver, *(s for s in SOLVERS if s != solver)):
        try:
            found = _BY_NAME[name](program, max(LEAST_S, seconds), relaxed)
        except Exception as error:
            notes.append(f"solver {name} failed: {error!r:.200}")
            continue
        if found.x is not None or math.isfinite(found.bound):
            return Solved(found.x, found.bound, tuple(notes))
        notes.append(f"solver {name} found nothing in {seconds:.3g} s")
    return Solved(None, -math.inf, tuple(notes))


def _highs(program: IntegerProgram, seconds: float, relaxed: bool) -> Solved:
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    shape = (len(program.lower), len(program.objective))
    matrix = csr_array((program.value, (program.row, program.column)), shape=shape)
    limit = min(seconds, 1e6)
    result = milp(
        program.objective,
        integrality=np.zeros(shape[1]) if relaxed else program.integer.astype(float),
        bounds=Bounds(0.0, program.most),
        constraints=LinearConstraint(matrix, program.lower, program.upper),
        options={"time_limit": limit, "mip_rel_gap": 1e-9},
    )
    if result.status == 2:
        raise ValueError(f"HiGHS says: {result.message}")
    bound = result.mip_dual_bound if not relaxed else result.fun if result.status == 0 else None
    return Solved(result.x, -math.inf if bound is None or math.isnan(bound) else float(bound) * program.unit)


def _pulp(program: IntegerProgram, seconds: float, relaxed: bool) -> Solved:
    import pulp

    model, variables = pulp_model(program, relaxed)
    available = pulp.listSolvers(onlyAvailable=True)
    name = next(s for s in ("HiGHS", "PULP_CBC_CMD") if s in available)
    model.solve(pulp.getSolver(name, msg=False, timeLimit=seconds, gapRel=1e-9))
    values = [v.value() for v in variables]
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible) or None in values:
        return Solved(None, -math.inf)
    x = np.array(values, np.float64)
    is_optimal = model.sol_status == pulp.LpSolutionOptimal
    return Solved(x, float(program.objective @ x) * program.unit if is_optimal else -math.inf)


def pulp_model(program: IntegerProgram, relaxed: bool = False):
    """(PuLP's model, its variables in the order of the program's): the same as the arrays say."""
    import pulp

    model = pulp.LpProblem("sharding", pulp.LpMinimize)
    variables = [
        pulp.LpVariable(
            f"x{i}", 0, None if math.isinf(most) else most, pulp.LpInteger if whole and not relaxed else pulp.LpContinuous
        )
        for i, (most, whole) in enumerate(zip(program.most.tolist(), program.integer.tolist(), strict=True))
    ]
    model += pulp.LpAffineExpression(zip(variables, program.objective.tolist(), strict=True))
    order = np.argsort(program.row, kind="stable")
    cuts = np.searchsorted(program.row[order], np.arange(len(program.lower) + 1))
    for r, (lower, upper) in enumerate(zip(program.lower.tolist(), program.upper.tolist(), strict=True)):
        own = order[cuts[r] : cuts[r + 1]]
        terms = pulp.LpAffineExpression([(variables[c], v) for c, v in zip(program.column[own].tolist(), program.value[own].tolist(), strict=True)])
        model += terms == lower if lower == upper else terms <= upper
    return model, variables


_BY_NAME = {"highs": _highs, "pulp": _pulp}
