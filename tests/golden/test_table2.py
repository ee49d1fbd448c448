"""Does a known strategy introduce exactly the collectives that the PartIR paper's Table 2 counts?"""

from __future__ import annotations

import pytest

from experiments.table2.rows import ROWS, counts

T32 = {row.name: row for row in ROWS if row.model == "T32"}


@pytest.mark.parametrize("schedule", ["BP", "BP+MP", "BP+MP+Z2", "BP+MP+Z3", "MP"])
def test_t32_has_the_papers_collectives(schedule: str):
    assert counts(T32[schedule]) == T32[schedule].paper


def test_bp_of_unet_reduces_every_gradient_and_both_reported_losses():
    row = next(row for row in ROWS if (row.model, row.name) == ("UNet", "BP"))
    assert counts(row) == row.paper
