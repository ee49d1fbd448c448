"""Runs HiGHS in a process of its own: a model on standard input, on standard output a line of JSON for what it finds.

    {"bound": 518000.0}
    {"cost": 540066.0, "bound": 519113.5, "ones": [3, 17, ...]}
    {"status": "optimal", "cost": 532843.0, "bound": 532843.0, "ones": [...]}

The caller starts this file by its path (`exact.py`), so nothing of autopart is imported, and HiGHS may crash, be
killed or run out of memory alone. The one argument says who solves. `highspy` starts from a choice and reports what
it finds on the way. Of the others, which report their last answer, it is the first solver that PuLP finds (CBC comes
with PuLP 3), else the HiGHS inside SciPy. What libraries write to standard output (HiGHS 1.16 its version, though
told to be silent) is thrown away: `say` alone writes to the caller.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
import warnings
from typing import IO, Any

import numpy as np


def main() -> None:
    """Reads the model, solves it, reports. Ctrl-C in a terminal reaches this process too: its caller ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    caller = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with np.load(io.BytesIO(sys.stdin.buffer.read())) as arrays:
        model = {name: arrays[name] for name in arrays.files}
    {"highspy": by_highspy, "others": by_others}[sys.argv[1]](model, caller)


def by_highspy(model: dict[str, np.ndarray], caller: IO[str]) -> None:
    """Solves by the HiGHS of the extra `ilp`."""
    import highspy

    solver = highspy.Highs()
    solver.silent()
    binaries = int(model["binaries"])
    for name, value in (
        ("time_limit", float(model["seconds"])),
        ("threads", int(model["threads"])),
        ("random_seed", int(model["seed"]) % 2**31),
        ("mip_rel_gap", 0.0),
        ("mip_abs_gap", float(model["gap"])),
    ):
        solver.setOptionValue(name, value)
    solver.passModel(as_highs(highspy, model, binaries))
    if len(model["begin"]):
        start = highspy.HighsSolution()
        start.col_value = model["begin"].tolist()
        solver.setSolution(start)
    solver.cbMipImprovingSolution.subscribe(lambda event: say_found(caller, event, binaries))
    solver.cbMipLogging.subscribe(lambda event: say(caller, bound=event.data_out.mip_dual_bound))
    solver.run()
    status = solver.getModelStatus()
    names = {highspy.HighsModelStatus.kOptimal: "optimal", highspy.HighsModelStatus.kInfeasible: "infeasible"}
    info = solver.getInfo()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    ones = np.flatnonzero(np.array(solver.getSolution().col_value[:binaries]) > 0.5).tolist() if found else []
    ended, cost = names.get(status, "stopped"), info.objective_function_value
    say(caller, status=ended, cost=cost, bound=info.mip_dual_bound, ones=ones)


def by_others(model: dict[str, Any], caller: IO[str]) -> None:
    """Solves by a solver of PuLP's, else by SciPy's."""
    began = time.monotonic()
    warnings.simplefilter("ignore", DeprecationWarning)  # PuLP 3.3 says of CBC that PuLP 4 comes without it
    import pulp

    found = [name for name in pulp.listSolvers(onlyAvailable=True) if name != "HiGHS"]  # that one is highspy
    if not found:
        by_scipy(model, caller)
        return
    binaries = int(model["binaries"])
    problem, variables = as_pulp(pulp, model, binaries)
    seconds = max(1.0, float(model["seconds"]) - (time.monotonic() - began))
    status = problem.solve(pulp.getSolver(found[0], msg=False, timeLimit=seconds, gapRel=0.0))
    optimal = problem.sol_status == pulp.LpSolutionOptimal
    known = optimal or problem.sol_status == pulp.LpSolutionIntegerFeasible
    ones = [j for j, v in enumerate(variables[:binaries]) if known and (v.varValue or 0.0) > 0.5]
    ended = "infeasible" if status == pulp.LpStatusInfeasible else "optimal" if optimal else "stopped"
    say(caller, status=ended, ones=ones, bound=problem.objective.value() if optimal else None)


def as_pulp(pulp: Any, model: dict[str, Any], binaries: int) -> tuple[Any, list[Any]]:
    """The arrays as PuLP wants them, and its variables in the order of the columns."""
    problem = pulp.LpProblem("pairwise", pulp.LpMinimize)
    sorts = [pulp.LpBinary if j < binaries else pulp.LpContinuous for j in range(len(model["cost"]))]
    variables = [problem.add_variable(f"x{j}", 0, 1, sort) for j, sort in enumerate(sorts)]
    problem += pulp.LpAffineExpression(dict(zip(variables, model["cost"].tolist(), strict=True)))
    rows: list[dict[Any, float]] = [{} for _ in model["lower"]]
    for j, variable in enumerate(variables):
        for at in range(model["start"][j], model["start"][j + 1]):
            rows[model["row"][at]][variable] = float(model["value"][at])
    for terms, low, high in zip(rows, model["lower"].tolist(), model["upper"].tolist(), strict=True):
        row = pulp.LpAffineExpression(terms)
        problem += row == high if low == high else row <= high
    return problem, variables


def by_scipy(model: dict[str, Any], caller: IO[str]) -> None:
    """Solves by the HiGHS that comes with SciPy."""
    from scipy.optimize import LinearConstraint, milp
    from scipy.sparse import csc_array

    columns, binaries = len(model["cost"]), int(model["binaries"])
    matrix = csc_array((model["value"], model["row"], model["start"]), shape=(len(model["lower"]), columns))
    answer = milp(
        model["cost"],
        integrality=np.arange(columns) < binaries,
        bounds=(0, 1),
        constraints=LinearConstraint(matrix, model["lower"], model["upper"]),
        options={"time_limit": float(model["seconds"]), "mip_rel_gap": 0.0},
    )
    ones = [] if answer.x is None else np.flatnonzero(answer.x[:binaries] > 0.5).tolist()
    ended = {0: "optimal", 2: "infeasible"}.get(answer.status, "stopped")
    say(caller, status=ended, cost=answer.fun, bound=answer.mip_dual_bound, ones=ones)


def as_highs(highspy: Any, model: dict[str, np.ndarray], binaries: int) -> Any:
    """The arrays as HiGHS wants them."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(model["cost"]), len(model["lower"])
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = model["cost"], np.zeros(lp.num_col_), np.ones(lp.num_col_)
    lp.row_lower_, lp.row_upper_ = model["lower"], model["upper"]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = model["start"], model["row"], model["value"]
    integer, free = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    lp.integrality_ = [integer] * binaries + [free] * (lp.num_col_ - binaries)
    return lp


def say_found(caller: IO[str], event: Any, binaries: int) -> None:
    """Reports an incumbent."""
    data = event.data_out
    ones = np.flatnonzero(np.array(data.mip_solution[:binaries]) > 0.5).tolist()
    say(caller, cost=data.objective_function_value, bound=data.mip_dual_bound, ones=ones)


def say(caller: IO[str], **news: Any) -> None:
    """One line to the caller."""
    print(json.dumps(news), file=caller, flush=True)


if __name__ == "__main__":
    main()
