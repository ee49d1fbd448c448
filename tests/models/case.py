"""One model to partition: a step, its arguments, and named schedules.

Case(step=train_step, args=(params, opt_state, batch), state=2, ...)

state = 2   the first two results are the next step's first two arguments, and are donated
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import autopart as ap

MESH = ap.Mesh({"batch": 4, "model": 2})

ADAM_EPSILON = 1e-5
"""With 1e-8, Adam turns the rounding of a gradient that happens to be near zero into a visible step."""


@dataclass(frozen=True)
class Case:
    """A function, arguments for it and the schedules it must compute the same under."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    state: int
    schedules: dict[str, list[Any]]


def training_schedules(
    batch: str | dict[str, int], model: dict[str, Any], *, state: tuple[str, ...] = ("params", "opt_state")
) -> dict[str, list[Any]]:
    """BP, BP+MP and BP+Z3: `batch` arguments on dim 0, `model` as Megatron would, all of `state` fully sharded."""
    batch_parallel = ap.ManualPartition({batch: 0} if isinstance(batch, str) else batch, axis="batch")
    model_parallel = ap.ManualPartition(model, axis="model")
    fully_sharded = ap.ManualPartition({name: ap.FIRST_DIVISIBLE_DIM for name in state}, axis="batch")
    return {
        "BP": [batch_parallel],
        "BP+MP": [batch_parallel, model_parallel],
        "BP+Z3": [batch_parallel, fully_sharded],
    }
