"""Does a known strategy introduce exactly the collectives that the PartIR paper's Table 2 counts?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.models import it32, t32
from experiments.table2.rows import ANEW, ROWS, counts
from tests.golden.check import check
from tests.models import decoder_unrolled, kv_cache_decoding
from tests.models.case import MESH

ROW = {(row.model, row.name): row for row in ROWS}


SLOW = pytest.mark.slow
"""Of rows that take five seconds or more, one of each kind is run by default."""

QUICK = ("BP", "BP+MP+Z3")
LONG = [pytest.param(schedule, marks=SLOW) for schedule in ("MP", "BP+MP", "BP+MP+Z2")]


@pytest.mark.parametrize(
    "schedule", ["BP", "BP+MP+Z3", *(pytest.param(s, marks=SLOW) for s in ("MP", "BP+MP", "BP+MP+Z2"))]
)
def test_t32_has_the_papers_collectives(schedule: str):
    row = ROW["T32", schedule]
    assert counts(row) == row.paper


@SLOW
def test_t48_has_the_collectives_of_t32_by_its_layers():
    assert counts(ROW["T32", "BP+MP+Z3"], t32.T48) == (8 * 48 + 3, 9 * 48 + 1, 4 * 48 + 1, 0)


@pytest.mark.parametrize("schedule", ["BP+MP+Z3+EMB", pytest.param("EMB", marks=SLOW)])
def test_tiling_the_embedding_of_t32_shares_gathers_and_has_the_papers_reductions(schedule: str):
    row = ROW["T32", schedule]
    all_gather, *reductions = counts(row)
    assert reductions == list(row.paper[1:])
    assert all_gather == row.paper[0] - 4 * 32


@SLOW
@pytest.mark.parametrize("row", ANEW, ids=lambda row: row.name)
def test_gathering_activations_anew_has_the_papers_collectives(row):
    assert counts(row) == row.paper


def test_multi_query_attention_exchanges_where_the_paper_does_and_in_the_first_step_too():
    row, config = ROW["IT32", "BP+MP+MQ"], replace(it32.Config(), layers=2, steps=3)
    assert counts(row, config) == (0, 2 * 2 * 3, 0, 2 * 2 * 3)


@pytest.mark.parametrize(
    ("model", "schedule"),
    [
        pytest.param("UNet", "BP", marks=SLOW),
        pytest.param("GNS", "ES", marks=SLOW),
        pytest.param("IT32", "BP", marks=SLOW),
        ("IT32", "BP+MP"),
        ("IT32", "MP"),
    ],
)
def test_other_models_have_the_papers_collectives(model: str, schedule: str):
    row = ROW[model, schedule]
    assert counts(row) == row.paper


@SLOW
@pytest.mark.parametrize("schedule", ["BP+Z2", "BP+Z3"])
def test_sharding_the_state_of_unet_scatters_every_gradient(schedule: str):
    row = ROW["UNet", schedule]
    _, all_reduce, reduce_scatter, _ = counts(row)
    assert (all_reduce, reduce_scatter) == row.paper[1:3] == (2, 501)


def test_two_layers_of_t32_run_with_the_collectives_that_its_rows_scale_to():
    """BP+MP+Z3, 259 gathers, 289 reductions and 129 scatters for 32 layers; it runs, and what runs is counted."""
    case, layers = decoder_unrolled.case(), t32.SMALL.layers
    check(
        case.step,
        MESH,
        case.schedules["BP+MP+Z3"],
        case.args,
        collectives={"all_gather": 8 * layers + 3, "all_reduce": 9 * layers + 1, "reduce_scatter": 4 * layers + 1},
        donate=(0, 1),
    )


def test_decoding_with_two_layers_of_it32_runs_with_a_reduction_for_each_half_of_a_layer():
    """BP+MP, 98304 reductions: two a layer and step, in a loop."""
    case, config = kv_cache_decoding.case(), it32.SMALL
    check(
        case.step,
        MESH,
        case.schedules["BP+MP"],
        case.args,
        collectives={"all_reduce": 2 * config.layers * config.steps},
        trips=config.steps,
    )
