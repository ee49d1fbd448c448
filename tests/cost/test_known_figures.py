"""Are sizes and prices that were looked up those that would be worked out?"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from autopart.costmodel.compiled import arena, sizes
from autopart.costmodel.compiled.links.known_plans import KnownPlans
from autopart.costmodel.compiled.links.redistribution_costs import FIGURES, NO_STEPS
from autopart.costmodel.compiled.simulator import Simulator
from autopart.costmodel.lower_for_device import lower_for_device
from experiments.models.tactics import BP, MP, Z3
from tests.search.steps import decoder_partitioning


@pytest.fixture(scope="module", params=[(), (BP,), (BP, MP, Z3)], ids=["whole", "BP", "BP+MP+Z3"])
def local(request):
    return lower_for_device(decoder_partitioning(*request.param))


def totals(run):
    return {f.name: v for f in dataclasses.fields(run) if isinstance(v := getattr(run, f.name), float)}


def test_elements_are_those_of_the_local_shape(local):
    held = Simulator.of(local.program, local.mesh).run(local).arrays
    for layouts, column in ((local.native, "native_elements"), (local.settled, "settled_elements")):
        shapes = [local.local_type(v, layout).shape for v, layout in enumerate(layouts.tolist())]
        assert held.values[column].tolist() == [math.prod(shape) for shape in shapes]


def test_a_table_that_is_emptied_again_and_again_gives_the_same_figures(local, monkeypatch):
    expected = totals(Simulator.of(local.program, local.mesh).run(local))
    monkeypatch.setattr(sizes, "TABLE_ROWS", 8)
    simulator = Simulator.of(local.program, local.mesh)
    assert totals(simulator.run(local)) == expected
    assert len(simulator.known_sizes.sizes) == 8
    assert simulator.known_sizes.filled[0] <= 4


def test_what_a_simulator_has_seen_before_changes_no_figure(local):
    worn = Simulator.of(local.program, local.mesh)
    for tactics in ((BP,), (MP,), (BP, MP)):
        worn.run(lower_for_device(decoder_partitioning(*tactics)))
    assert totals(worn.run(local)) == totals(Simulator.of(local.program, local.mesh).run(local))


def test_prices_keep_their_rows_while_the_table_grows():
    known, asked = KnownPlans(), []
    types = np.repeat(np.arange(40, dtype=np.int32), 40)
    sources, targets = np.arange(1600, dtype=np.uint64) << np.uint64(5), np.arange(1600, dtype=np.uint64) % np.uint64(7)

    stretches = np.arange(1600, dtype=np.int64) % 3

    def price(i):
        asked.append(i)
        return dataclasses.replace(NO_STEPS, seconds=float(i), steps=(i,) if i % 2 else ())

    for _ in range(2):
        rows = known.rows(types, sources, targets, stretches, price)
        assert known.figures[FIGURES.index("seconds"), rows].tolist() == list(range(1600))
        assert known.moves_nothing[rows].tolist() == [i % 2 == 0 for i in range(1600)]
        assert [known.costs[row].seconds for row in rows] == list(range(1600))
    assert asked == list(range(1600))
    assert not known.figures[:, 0].any()


def test_nothing_to_move_asks_for_nothing():
    none, tiles = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    assert (
        len(KnownPlans().rows(np.zeros(0, np.int32), none, none, tiles, lambda i: pytest.fail(f"{i} was priced"))) == 0
    )


def test_arrays_of_the_run_before_change_no_figure(local, monkeypatch):
    monkeypatch.setattr(arena, "LARGE_BYTES", 1)
    kept = arena.Kept()
    simulator = Simulator.of(local.program, local.mesh, room=kept)
    for tactics in ((BP, MP, Z3), (), (BP, MP)):
        simulator.run(lower_for_device(decoder_partitioning(*tactics)))
    assert totals(simulator.run(local)) == totals(Simulator.of(local.program, local.mesh).run(local))
    assert len(kept._blocks) > 40
