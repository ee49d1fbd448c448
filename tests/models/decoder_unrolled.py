"""Plain JAX: the T32 training step with two blocks, under all schedules of the paper's Table 2."""

from __future__ import annotations

from experiments.models import t32
from experiments.models.tactics import BP, EMB, MP, Z2, Z3
from tests.models.case import Case


def case() -> Case:
    config = t32.SMALL
    schedules = {
        "BP": [BP],
        "MP": [MP],
        "BP+MP": [BP, MP],
        "BP+Z3": [BP, Z3],
        "BP+MP+Z2": [BP, MP, Z2],
        "BP+MP+Z3": [BP, MP, Z3],
        "BP+MP+Z3+EMB": [BP, MP, Z3, EMB],
    }
    return Case(t32.step(config), t32.example_args(config), state=2, schedules=schedules)
