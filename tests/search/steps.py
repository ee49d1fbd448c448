"""Small training steps to search on, and a memory objective under which even they are worth partitioning."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import autopart as ap
from autopart.api.tactics.tactic import TacticContext, actions_of
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.search.evaluation.cost import Cost
from experiments.models import t32
from experiments.models.tactics import MP

MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")


@dataclass(frozen=True)
class PeakBytes:
    """Memory alone: latency makes replication the fastest way to run a step this small."""

    def __call__(self, cost: Cost) -> float:
        return cost.peak_bytes


def lowered(schedule, config=t32.SMALL, mesh=MESH) -> ap.Lowered:
    step = ap.jit(t32.step(config), mesh, schedule, donate_argnums=(0, 1))
    return step.lower(*t32.abstract_args(config))


@functools.cache
def decoder(layers: int = 2) -> Program:
    return lowered([], dataclasses.replace(t32.SMALL, layers=layers)).traced.program


def decoder_partitioning(*tactics: ap.ManualPartition, layers: int = 2, mesh: ap.Mesh = MESH) -> Partitioning:
    partitioning = Partitioning(decoder(layers), mesh)
    actions_of(partitioning, tactics, TacticContext())
    return partitioning


MEGATRON = MP
