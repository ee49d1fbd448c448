"""Does a known strategy introduce exactly the collectives that the PartIR paper's Table 2 counts?"""

from __future__ import annotations

import pytest

from experiments.table2.rows import ROWS, counts

ROW = {(row.model, row.name): row for row in ROWS}


@pytest.mark.parametrize("schedule", ["BP", "BP+MP", "BP+MP+Z2", "BP+MP+Z3", "MP"])
def test_t32_has_the_papers_collectives(schedule: str):
    row = ROW["T32", schedule]
    assert counts(row) == row.paper


@pytest.mark.parametrize("schedule", ["BP+MP+Z3+EMB", "EMB"])
def test_tiling_the_embedding_of_t32_shares_gathers_and_has_the_papers_reductions(schedule: str):
    row = ROW["T32", schedule]
    all_gather, *reductions = counts(row)
    assert reductions == list(row.paper[1:])
    assert all_gather == row.paper[0] - 4 * 32


@pytest.mark.parametrize(
    ("model", "schedule"), [("UNet", "BP"), ("GNS", "ES"), ("IT32", "BP"), ("IT32", "BP+MP"), ("IT32", "MP")]
)
def test_other_models_have_the_papers_collectives(model: str, schedule: str):
    row = ROW[model, schedule]
    assert counts(row) == row.paper


@pytest.mark.parametrize("schedule", ["BP+Z2", "BP+Z3"])
def test_sharding_the_state_of_unet_scatters_every_gradient(schedule: str):
    row = ROW["UNet", schedule]
    _, all_reduce, reduce_scatter, _ = counts(row)
    assert (all_reduce, reduce_scatter) == row.paper[1:3] == (2, 501)
