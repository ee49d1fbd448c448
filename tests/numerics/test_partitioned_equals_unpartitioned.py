"""Does a partitioned step compute the same, on eight devices, as the step itself?

Every model runs three steps; state goes from step to step and is donated. Integers, bools and keys are equal bit for
bit. Floats (f32) agree within `TOLERANCE` times the root mean square of their array, Adam's moments included, because
sums run in another order, and Adam divides a gradient that is nearly nothing by its own size; the whole step in f32 is
as far from itself in f64. In double precision, where rounding hides nothing, they agree within `DOUBLE_TOLERANCE`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from tests.models.case import MESH, Case

TOLERANCE, DOUBLE_TOLERANCE = 2e-3, 1e-9
STEPS = 3

TRAINING = ("BP", "BP+MP", "BP+Z3")
MODELS = {
    "mlp_equinox": TRAINING,
    "decoder_unrolled": ("BP", "MP", "BP+MP", "BP+Z3", "BP+MP+Z2", "BP+MP+Z3", "BP+MP+Z3+EMB"),
    "decoder_scan_flax": TRAINING,
    "mixture_of_experts": TRAINING,
    "cnn_flax": TRAINING,
    "lstm_haiku": TRAINING,
    "encoder_decoder_nnx": TRAINING,
    "kv_cache_decoding": ("BP", "MP", "BP+MP", "BP+MP+MQ", "BP+Z3"),
    "graph_network": ("ES",),
    "diffusion_unet": ("BP", "BP+MP", "BP+Z2", "BP+Z3"),
}


def is_slow(model: str, schedule: str) -> bool:
    """By default the richest schedule of each model, and no model that takes long or that another test runs."""
    return (
        model in ("diffusion_unet", "encoder_decoder_nnx", "mlp_equinox", "cnn_flax") or schedule != MODELS[model][-1]
    )


RUNS = [
    pytest.param(
        model,
        schedule,
        id=f"{model}-{schedule}",
        marks=[pytest.mark.xdist_group(model), *([pytest.mark.slow] if is_slow(model, schedule) else [])],
    )
    for model, schedules in MODELS.items()
    for schedule in schedules
]


@functools.cache
def case_of(model: str) -> Case:
    return importlib.import_module(f"tests.models.{model}").case()


@functools.cache
def whole_results(model: str) -> list[Any]:
    """What the unpartitioned step returns, step by step."""
    case = case_of(model)
    return run(jax.jit(case.step), case)


def run(step: Callable[..., Any], case: Case) -> list[Any]:
    """Results of `STEPS` steps as NumPy arrays."""
    args = jax.tree.map(jnp.array, case.args)
    results = []
    for _ in range(STEPS if case.state else 1):
        out = step(*args)
        results.append(jax.tree.map(on_host, out))
        args = (*as_tuple(out)[: case.state], *args[case.state :])
    return results


def as_tuple(out: Any) -> tuple[Any, ...]:
    return out if type(out) is tuple else (out,)


def on_host(x: jax.Array) -> np.ndarray:
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)


def assert_same(found: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    leaves = zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True)
    for (path, ours), theirs in leaves:
        name = jax.tree_util.keystr(path)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), name
        if np.issubdtype(theirs.dtype, np.floating):
            scale = np.sqrt(np.mean(np.square(theirs, dtype=np.float64)))
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale, err_msg=name)
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=name)


@pytest.mark.parametrize(("model", "schedule"), RUNS)
def test_three_steps_on_eight_devices_give_the_unpartitioned_numbers(model: str, schedule: str):
    case = case_of(model)
    step = ap.jit(case.step, MESH, case.schedules[schedule], donate_argnums=tuple(range(case.state)))
    assert_same(run(step, case), whole_results(model))


@pytest.mark.parametrize(
    ("model", "schedule"),
    [
        ("decoder_unrolled", "BP+MP+Z3"),
        pytest.param("decoder_unrolled", "BP+MP+Z2", marks=pytest.mark.slow),
        pytest.param("diffusion_unet", "BP", marks=pytest.mark.slow),
        pytest.param("diffusion_unet", "BP+Z3", marks=pytest.mark.slow),
    ],
)
def test_double_precision_leaves_no_difference(model: str, schedule: str):
    with jax.enable_x64(True):
        case = case_of(model)
        args = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, case.args)
        case = dataclasses.replace(case, args=args)
        step = ap.jit(case.step, MESH, case.schedules[schedule], donate_argnums=tuple(range(case.state)))
        assert_same(run(step, case), run(jax.jit(case.step), case), DOUBLE_TOLERANCE)
