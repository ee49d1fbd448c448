"""The rows of Table 2: a model, a schedule, and how many collectives of each kind the paper counts.

Row("T32", "BP+MP", [BP, MP], Counts(all_gather=0, all_reduce=418, reduce_scatter=0, all_to_all=0))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

import autopart as ap
from experiments.models import gns, it32, t32, unet
from experiments.models.tactics import (
    BP,
    EMB,
    GNS_ES,
    IT32_BP,
    IT32_MP,
    IT32_MP_OUTSIDE_ATTENTION,
    IT32_MQ,
    MP,
    UNET_Z2,
    UNET_Z3,
    Z2,
    Z3,
)

MESH = ap.Mesh({"batch": 16, "model": 2}, device="tpu_v3")
COUNTED = ap.Mesh({"batch": 16, "model": 2})
"""As the paper counts: of the strategy, whatever a device makes of it. A v3 makes an all_reduce and a slice of
reduce_scatters into shards that fill no layout tile, 459 of UNet's 501."""

MODELS: dict[str, ModuleType] = {"T32": t32, "IT32": it32, "UNet": unet, "GNS": gns}
KINDS = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")


@dataclass(frozen=True)
class Row:
    """A schedule of a model; `paper` counts collectives in the order of `KINDS`."""

    model: str
    name: str
    schedule: tuple[Any, ...]
    paper: tuple[int, int, int, int]
    regather: bool = False


ROWS = (
    Row("T32", "BP", (BP,), (0, 290, 0, 0)),
    Row("T32", "BP+MP", (BP, MP), (0, 418, 0, 0)),
    Row("T32", "BP+MP+Z2", (BP, MP, Z2), (129, 289, 129, 0)),
    Row("T32", "BP+MP+Z3", (BP, MP, Z3), (259, 289, 129, 0)),
    Row("T32", "BP+MP+Z3+EMB", (BP, MP, Z3, EMB), (515, 354, 257, 0)),
    Row("T32", "MP", (MP,), (0, 128, 0, 0)),
    Row("T32", "EMB", (MP, EMB), (256, 193, 128, 0)),
    Row("IT32", "BP", (IT32_BP,), (0, 0, 0, 0)),
    Row("IT32", "BP+MP", (IT32_BP, IT32_MP), (0, 98304, 0, 0)),
    Row("IT32", "BP+MP+MQ", (IT32_BP, IT32_MP_OUTSIDE_ATTENTION, IT32_MQ), (64, 98304, 0, 98240)),
    Row("IT32", "MP", (IT32_MP,), (0, 98304, 0, 0)),
    Row("UNet", "BP", (BP,), (0, 503, 0, 0)),
    Row("UNet", "BP+Z2", (BP, UNET_Z2), (517, 2, 501, 0)),
    Row("UNet", "BP+Z3", (BP, UNET_Z3), (799, 2, 501, 0)),
    Row("GNS", "ES", (GNS_ES,), (0, 423, 0, 0)),
)

ANEW = tuple(replace(row, regather=True) for row in ROWS if row.name.endswith("EMB"))
"""The rows in which an activation is gathered for its matmul and again for the gradient, lowered as the paper does."""


def lowered(row: Row, config: Any = None, mesh: ap.Mesh = MESH) -> ap.Lowered:
    """The row's program; `config` is the paper's model unless given."""
    model = MODELS[row.model]
    config = config or model.Config()
    options = ap.LoweringOptions(regather=row.regather)
    fun = _step(row.model, config)
    step = ap.jit(fun, mesh, list(row.schedule), donate_argnums=donated(row.model), options=options)
    return step.lower(*model.abstract_args(config))


@cache
def _step(model: str, config: Any) -> Callable:
    """The step of a model: one function for each config, which jax traces once for all rows."""
    return it32.step(config, ap.tag) if model == "IT32" else MODELS[model].step(config)


def counts(row: Row, config: Any = None, mesh: ap.Mesh = COUNTED) -> tuple[int, ...]:
    """Our collectives for `row`, in the order of `KINDS`; `config` is the paper's model unless given."""
    return in_order(lowered(row, config, mesh))


def in_order(low: ap.Lowered) -> tuple[int, ...]:
    """A program's collectives, in the order of `KINDS`."""
    found = low.metadata.tactics[-1].collectives
    return tuple(found[kind] for kind in KINDS)


def donated(model: str) -> tuple[int, ...]:
    """Parameters and optimizer state of a training step; the cache of IT32."""
    return (1,) if model == "IT32" else (0, 1)
