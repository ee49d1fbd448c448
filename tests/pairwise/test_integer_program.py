"""Do the arrays that a solver is given say what the problem says?"""

from __future__ import annotations

import numpy as np
import pytest

from autopart.pairwise.integer_program import integer_program, values_of
from autopart.pairwise.network import network, used_over_time
from autopart.pairwise.reduction import reduced
from tests.pairwise.random_problems import random_problem


def programs():
    for seed in range(30):
        state = reduced(random_problem(seed, nodes=12, most=4, edges=26, tight=0.5))
        if not state.infeasible and len(state.nodes):
            yield state.rest(), state.room


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
