"""The steps that are run on one device: blocks of the papers' models, whole models from outside, and two probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from experiments.models import gns, it32, t32, unet
from experiments.simulator_accuracy.outside_pairs import MODELS, OTHER_KINDS
from experiments.simulator_accuracy.states import outside


@dataclass(frozen=True)
class Step:
    """A function, abstract arguments, and those whose memory it may use."""

    function: Callable
    arguments: tuple[Any, ...]
    donated: tuple[int, ...] = (0, 1)


PAPERS = {
    "t32_block": (t32, replace(t32.Config(), layers=1, vocabulary=1024, batch=4)),
    "t32": (t32, replace(t32.Config(), layers=3, batch=8)),
    "unet": (unet, unet.Config()),
    "unet_block": (unet, replace(unet.Config(), blocks=1, batch=256)),
    "gns": (gns, replace(gns.Config(), steps=6)),
    "it32": (it32, replace(it32.Config(), layers=2, steps=64)),
}


def of_paper(module: ModuleType, config: Any) -> Step:
    return Step(module.step(config), module.abstract_args(config), (1,) if module is it32 else (0, 1))


def of_outside(model: str) -> Step:
    program = outside(model)
    return Step(program.step, program.args)


def product(dtype: Any) -> Step:
    square = jax.ShapeDtypeStruct((8192, 8192), dtype)
    return Step(jnp.matmul, (square, square), ())


def stream() -> Step:
    array = jax.ShapeDtypeStruct((2**28,), jnp.float32)
    return Step(lambda x, y: x + 2 * y, (array, array), ())


STEPS: dict[str, Callable[[], Step]] = {
    "product_f32": partial(product, jnp.float32),
    "product_bf16": partial(product, jnp.bfloat16),
    "stream": stream,
    **{name: partial(of_paper, *paper) for name, paper in PAPERS.items()},
    **{model.replace(" ", "_"): partial(of_outside, model) for model in (*MODELS, *OTHER_KINDS)},
}
"""Name to what builds it. Every other one was in view when rules were chosen, from the first on."""
