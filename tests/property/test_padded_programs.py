"""Programs nobody wrote, some of whose dims are longer inside: are the numbers those of the program as it is?

Dims of the inputs of each random program are padded to multiples that tiles ask for; in every other module a random
schedule over a mesh follows, which tiles what is longer too.
"""

from __future__ import annotations

import warnings

import numpy as np

import autopart as ap
from tests.property.batches import PROGRAMS_PER_MODULE, Batch, wrong


def pytest_generate_tests(metafunc):
    if "number" in metafunc.fixturenames:
        cases = metafunc.config.getoption("--property-cases") // 8
        metafunc.parametrize("number", range(max(1, cases // PROGRAMS_PER_MODULE)))


def padded(batch: Batch, number: int) -> ap.Pad:
    """Some dims of some inputs of each program."""
    rng = np.random.default_rng([number, 11])
    asked: dict[str, list[tuple[int, int]]] = {}
    for program in batch.programs:
        for key, array in program.inputs().items():
            pairs = [(dim, int(rng.integers(2, 9))) for dim in range(array.ndim) if rng.integers(2)]
            if pairs and 0 not in array.shape:
                asked[f"inputs/{program.name}/{key}"] = pairs
    return ap.Pad(asked)


def test_padded_dims_keep_the_numbers(number):
    batch = Batch.numbered(number)
    schedule = batch.schedule() if number % 2 else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ap.SearchWarning)
        mesh = ap.Mesh(dict(batch.mesh) if number % 2 else {"a": 1})
        lowered = ap.jit(batch.__call__, mesh, [padded(batch, number), *schedule]).lower(batch.inputs())
    differing = wrong(batch, lowered)
    assert not differing, "\n\n".join(differing)
