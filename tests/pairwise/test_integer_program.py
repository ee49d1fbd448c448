"""Do both routes to a solver say the same: arrays for HiGHS, and the PuLP model for CBC?"""

from __future__ import annotations

import numpy as np
import pytest

from autopart.search.ilp.solver.integer_program import integer_program, values_of
from autopart.search.ilp.solver.network import network, used_over_time
from autopart.search.ilp.solver.pulp_model import pulp_model
from autopart.search.ilp.solver.reduction import reduced
from tests.pairwise.random_problems import random_problem


def programs():
    for seed in range(30):
        state = reduced(random_problem(seed, nodes=12, most=4, edges=26, tight=0.5))
        if not state.infeasible and len(state.nodes):
            yield state.rest(), state.room


@pytest.mark.parametrize("number", range(5))
def test_pulp_model_has_the_rows_and_numbers_of_the_arrays(number):
    rest, room = list(programs())[number]
    program = integer_program(network(rest, room), np.arange(len(room)))
    model, variables = pulp_model(program)
    matrix = np.zeros((len(program.lower), len(program.cost)))
    columns = np.repeat(np.arange(len(program.cost)), np.diff(program.start))
    matrix[program.row, columns] = program.value
    assert [v.cat for v in variables] == [
        "Integer" if j < program.binaries else "Continuous" for j in range(len(variables))
    ]
    assert [model.objective.get(v, 0) for v in variables] == program.cost.tolist()
    rows = model.constraints()
    assert len(rows) == len(matrix)
    for row, wanted, low, high in zip(rows, matrix, program.lower, program.upper, strict=True):
        assert [row.get(v, 0) for v in variables] == wanted.tolist()
        assert -row.constant == high
        assert row.sense == (0 if low == high else -1)


@pytest.mark.parametrize("number", range(5))
def test_choice_is_feasible_in_the_program_as_in_the_problem_and_costs_the_same(number):
    rest, room = list(programs())[number]
    net = network(rest, room)
    program = integer_program(net, np.arange(len(room)))
    columns = np.repeat(np.arange(len(program.cost)), np.diff(program.start))
    rng = np.random.default_rng(number)
    for _ in range(20):
        choice = rng.integers(0, rest.strategies)
        if not np.isfinite(rest.cost_of(choice)):
            continue
        x = values_of(net, choice)
        sums = np.zeros(len(program.lower))
        np.add.at(sums, program.row, program.value * x[columns])
        fits = ((sums >= program.lower - 1e-9) & (sums <= program.upper + 1e-9)).all()
        assert fits == (not (used_over_time(net, choice) > room).any())
        assert program.cost @ x == pytest.approx(rest.cost_of(choice))
