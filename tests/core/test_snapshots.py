"""Does a partitioning go back to what it was, from wherever it is?"""

from __future__ import annotations

import numpy as np

from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decision_space import DecisionSpace
from tests.search.steps import decoder_partitioning


def arrays(partitioning: Partitioning):
    """What the state says, without what undone entries left behind."""
    state = partitioning.state
    decided, acted = state.mapping >= 0, state.action != 0
    stamps = np.where(decided, state.op_stamp, -1), np.where(acted, state.value_stamp, -1)
    return [a.tolist() for a in (state.mapping, state.action, *stamps, state.length, state.fingerprint)]


def walk(partitioning, space, seed):
    """(mark, snapshot, arrays) after each of some decisions of chance."""
    random, steps = np.random.default_rng(seed), []
    for _ in range(5):
        options = space.options(partitioning)
        steps.append((partitioning.mark(), partitioning.snapshot(), arrays(partitioning)))
        space.apply(partitioning, options[int(random.integers(len(options)))].decision)
    return steps


def test_restore_goes_to_every_state_on_the_way_from_every_other():
    partitioning = decoder_partitioning()
    space = DecisionSpace.of(partitioning, ("batch", "model"))
    start = partitioning.mark()
    steps = []
    for seed in range(3):
        partitioning.undo(start)
        steps += walk(partitioning, space, seed)
    for place in np.random.default_rng(0).permutation(len(steps)).tolist():
        _, snapshot, then = steps[place]
        partitioning.restore(snapshot)
        assert arrays(partitioning) == then


def test_marks_are_good_again_after_restore():
    partitioning = decoder_partitioning()
    space = DecisionSpace.of(partitioning, ("batch", "model"))
    steps = walk(partitioning, space, seed=1)
    partitioning.undo(steps[0][0])
    partitioning.restore(steps[-1][1])
    for mark, _, then in reversed(steps):
        partitioning.undo(mark)
        assert arrays(partitioning) == then


def test_a_snapshot_does_not_change_with_the_partitioning():
    partitioning = decoder_partitioning()
    space = DecisionSpace.of(partitioning, ("batch", "model"))
    snapshot, then = partitioning.snapshot(), arrays(partitioning)
    walk(partitioning, space, seed=2)
    partitioning.restore(snapshot)
    walk(partitioning, space, seed=3)
    partitioning.restore(snapshot)
    assert arrays(partitioning) == then


def test_shared_gathers_are_part_of_a_snapshot():
    partitioning = decoder_partitioning()
    before = partitioning.snapshot()
    partitioning.share_gathers(64)
    after, fingerprint = partitioning.snapshot(), partitioning.fingerprint
    partitioning.restore(before)
    assert partitioning.share_within == 0
    partitioning.restore(after)
    assert partitioning.share_within == 64
    assert partitioning.fingerprint == fingerprint
