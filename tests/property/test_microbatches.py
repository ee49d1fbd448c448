"""Programs nobody wrote, in loops over microbatches: are the numbers those of the whole program?

Some inputs of each random program are cut into microbatches; the programs of a module share their loops. A random
schedule over a mesh follows in every other module. Random programs need what a batch leaves all the time, so they may
have as many loops as it takes.
"""

from __future__ import annotations

import warnings

import numpy as np

import autopart as ap
from tests.property.batches import PROGRAMS_PER_MODULE, Batch, wrong

ANY_NUMBER = 1000


def pytest_generate_tests(metafunc):
    if "number" in metafunc.fixturenames:
        cases = metafunc.config.getoption("--property-cases") // 4
        metafunc.parametrize("number", range(max(1, cases // PROGRAMS_PER_MODULE)))


def microbatches(batch: Batch, number: int) -> ap.Microbatch:
    """Each input of each program is cut with a chance of one in two, on its first dim that the steps divide."""
    rng = np.random.default_rng([number, 7])
    names = [f"inputs/{p.name}/{key}" for p in batch.programs for key in p.inputs() if rng.integers(2)]
    return ap.Microbatch(dict.fromkeys(names, ap.FIRST_DIVISIBLE_DIM), steps=int(rng.integers(2, 5)), loops=ANY_NUMBER)


def test_loops_over_microbatches_keep_the_numbers(number):
    batch = Batch.numbered(number)
    schedule = batch.schedule() if number % 2 else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ap.SearchWarning)
        mesh = ap.Mesh(dict(batch.mesh) if number % 2 else {"a": 1})
        lowered = ap.jit(batch.__call__, mesh, [microbatches(batch, number), *schedule]).lower(batch.inputs())
    differing = wrong(batch, lowered)
    assert not differing, "\n\n".join(differing)
