"""Plain JAX: greedy decoding in a loop with a KV cache (IT32 with two blocks)."""

from __future__ import annotations

import autopart as ap
from experiments.models import it32
from experiments.models.tactics import IT32_BP, IT32_MP, IT32_MP_OUTSIDE_ATTENTION, IT32_MQ
from tests.models.case import Case


def case() -> Case:
    config = it32.SMALL
    stored_sharded = ap.ManualPartition({"params": ap.FIRST_DIVISIBLE_DIM}, axis="batch")
    schedules = {
        "BP": [IT32_BP],
        "MP": [IT32_MP],
        "BP+MP": [IT32_BP, IT32_MP],
        "BP+Z3": [IT32_BP, stored_sharded],
        "BP+MP+MQ": [IT32_BP, IT32_MP_OUTSIDE_ATTENTION, IT32_MQ],
    }
    return Case(it32.step(config, ap.tag), it32.example_args(config), state=0, schedules=schedules)
