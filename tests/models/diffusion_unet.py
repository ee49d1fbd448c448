"""Plain JAX: UNet with two levels and one block each."""

from __future__ import annotations

from experiments.models import unet
from experiments.models.tactics import UNET_BP, UNET_MP, UNET_Z2, UNET_Z3
from tests.models.case import Case


def case() -> Case:
    config = unet.SMALL
    schedules = {
        "BP": [UNET_BP],
        "BP+MP": [UNET_BP, UNET_MP],
        "BP+Z2": [UNET_BP, UNET_Z2],
        "BP+Z3": [UNET_BP, UNET_Z3],
    }
    return Case(unet.step(config), unet.example_args(config), state=2, schedules=schedules)
