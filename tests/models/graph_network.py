"""Plain JAX: GNS with two message-passing steps; its edges are tiled."""

from __future__ import annotations

from experiments.models import gns
from experiments.models.tactics import GNS_ES
from tests.models.case import Case


def case() -> Case:
    config = gns.SMALL
    return Case(gns.step(config), gns.example_args(config), state=2, schedules={"ES": [GNS_ES]})
