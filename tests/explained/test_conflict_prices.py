"""Does a conflict come with what each way out of it costs, and is that what the program then costs?"""

from __future__ import annotations

import functools

import pytest

import autopart as ap
from autopart.api.explained import resolutions
from autopart.core.table.conflicts import conflicts
from tests.explained.programs import array

MESH = ap.Mesh({"model": 4}, device="tpu_v3")
BOTH = ap.ManualPartition({"x": 0, "w": 1}, axis="model", name="Both")
ROWS = ap.ManualPartition({"x": 0}, axis="model", name="Rows")
ARGS = array(256, 512), array(512, 1024)


def product(x, w):
    return x @ w


@functools.cache
def conflicting() -> ap.Lowered:
    return ap.jit(product, MESH, [BOTH]).lower(*ARGS)


def test_each_way_out_is_priced_as_the_program_that_takes_it():
    [conflict] = conflicting().conflicts
    by_mapping = {way.mapping: way for way in conflict.ways}
    assert set(by_mapping) == {"(0, _) -> tile 0", "(_, 1) -> tile 1"}
    kept = ap.ManualPartition({"w": 1}, axis="model", name="Stored")
    rows_first = ap.jit(product, MESH, [ROWS, kept]).lower(*ARGS)
    assert by_mapping["(0, _) -> tile 0"].step_s == rows_first.estimate.step_s
    assert by_mapping["(0, _) -> tile 0"].peak_bytes == rows_first.estimate.peak_bytes
    assert conflict.step_s == conflicting().estimate.step_s


def test_metadata_has_them_and_says_so_in_its_text():
    metadata = conflicting().metadata
    assert metadata.conflicts == conflicting().conflicts
    text = str(metadata)
    assert "1 conflicts:" in text
    assert "  (0, _) -> tile 0  " in text
    assert ap.Metadata.from_json(metadata.to_json()) == metadata


def test_what_metadata_does_not_price_it_says_it_does_not():
    bounded = resolutions.priced_conflicts(conflicting().scheduled, most_ops=0)
    assert [way.tried for way in bounded[0].ways] == [False, False]
    assert "not priced here: Lowered.conflicts does" in str(bounded[0])


def test_equal_conflicts_are_one_and_settled_together():
    def layers(x, ws):
        for w in ws:
            x = x @ w
        return x

    tactic = ap.ManualPartition({"x": 0, "ws": 1}, axis="model")
    low = ap.jit(layers, MESH, [tactic]).lower(array(256, 256), [array(256, 256)] * 4)
    assert sum(conflict.count for conflict in low.conflicts) == len(low.metadata.tactics[-1].conflicts)
    assert len(low.conflicts) < len(low.metadata.tactics[-1].conflicts)


def test_without_a_device_ways_are_listed_without_a_price():
    low = ap.jit(product, ap.Mesh({"model": 4}), [BOTH]).lower(*ARGS)
    [conflict] = low.conflicts
    assert [way.step_s for way in conflict.ways] == [None, None]
    assert "(_, 1) -> tile 1" in str(low.metadata)


def test_a_mapping_that_does_not_fit_resolves_nothing():
    partitioning = conflicting().scheduled.partitioning.copy()
    op = conflicts(partitioning)[0].op
    before = partitioning.fingerprint
    assert not partitioning.resolve(op, "model", 2)
    assert partitioning.fingerprint == before
    assert partitioning.resolve(op, "model", 0)
    assert not partitioning.resolve(op, "model", 1)


def test_a_program_without_conflicts_has_none():
    low = ap.jit(product, MESH, [ROWS]).lower(*ARGS)
    assert low.conflicts == low.metadata.conflicts == ()
    assert "conflicts:" not in str(low.metadata)


def test_strict_mode_still_refuses():
    with pytest.raises(ap.BlockedError, match="conflict"):
        ap.jit(product, MESH, [BOTH], strict=True).lower(*ARGS)
