"""Are reductions in loops followed from what is new to where they are followed from the start each time?

Once it is known that a carry is not pending, `pass_reductions` looks at what reads that alone.
"""

from __future__ import annotations

import numpy as np
import pytest

import autopart as ap
from autopart.spmd.device_local import LoweringContext
from autopart.spmd.sums import pending
from autopart.spmd.sums.pending import ANY_CODE, pass_reductions
from autopart.spmd.sums.pending_prices import Given, Ways
from tests.search.state_walks import states_of_walks

MESH = ap.Mesh({"a": 4, "b": 2}, device="tpu_v3")
MODELS = ["lstm_haiku", "kv_cache_decoding", pytest.param("decoder_scan_flax", marks=pytest.mark.slow)]


def from_the_start(given: Given, ways: Ways, passing: np.ndarray) -> int:
    """As `pass_reductions`, every op in every round; returns how many rounds there were beyond the first."""
    passing[:], ways.assumed[:], ways.taken[:], ways.stays[:], ways.loop[:] = 0, 0, -1, False, -1
    ways.again[:], rounds = False, 0
    for axis in range(given.nests.state.mapping.shape[1]):
        ways.code[:, axis], ways.no_fork[:] = 0, False
        if pending._begins(given, axis):
            rounds += follow(given, ways, axis)
            while pending._choose(given, ways, axis, passing):
                passing &= np.uint8(0xFF ^ 1 << axis)
                rounds += follow(given, ways, axis)
    return rounds


def follow(given: Given, ways: Ways, axis: int) -> int:
    """As `pending._follow`; returns the rounds beyond the first."""
    held, rounds = given.sharded_loops & (given.nests.state.mapping[:, axis] >= 0), 0
    carries = given.passages.carries
    ways.assumed[carries] = np.where(held[carries], 0, ANY_CODE)
    pending._spread(given, ways, axis, len(carries) > 0, True)
    while len(carries) and pending._revise(given, ways, axis):
        pending._spread(given, ways, axis, True, True)
        rounds += 1
    return rounds


@pytest.mark.parametrize("model", MODELS)
def test_reductions_end_where_they_do_if_every_op_is_looked_at_in_every_round(model):
    rounds = 0
    for state in states_of_walks(model, MESH, 4, 5):
        program, statics = state.program, LoweringContext.of(state.program)
        given = Given(
            state.nests, statics.passages, program.value_shape, statics.is_output, statics.stored, False,
            state.sharded_loops,
        )  # fmt: skip
        sizes = program.op_count, program.value_count, len(MESH.axis_names)
        ways, every = Ways.empty(*sizes), Ways.empty(*sizes)
        passing, wanted = np.empty(sizes[0], np.uint8), np.empty(sizes[0], np.uint8)
        pass_reductions(given, ways, passing)
        rounds += from_the_start(given, every, wanted)
        assert (passing == wanted).all()
        assert (ways.code == every.code).all()
    assert rounds > 0
