"""Is the gradient of logits written once, where they are the largest arrays and that takes less memory?"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.spmd.for_xla import written_once

MESH = ap.Mesh({"a": 4, "b": 2})
R = np.random.default_rng(0)
BP = ap.ManualPartition({"tokens": 0}, axis="a")
FSDP = ap.ManualPartition({"params": 0}, axis="a")
Params = dict[str, Any]


def _step(params: Params, tokens: jax.Array) -> Params:
    def loss(params: Params) -> jax.Array:
        logits = jnp.tanh(params["table"][tokens] * params["scale"]) @ params["table"].T
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, None] // 2, 1)
        return -picked.astype(jnp.float32).mean()

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


def _args(tokens: int = 32, dtype: str = "f4") -> tuple[Params, np.ndarray]:
    """Each device has a quarter of the tokens, whose gradient of a table of 64 rows is an array of 8 columns."""
    params = {"table": R.normal(size=(64, 8)).astype(dtype), "scale": np.ones(8, dtype)}
    return params, R.integers(0, 64, tokens).astype("i4")


def _lowered(tactics: list[ap.Tactic], *args: Any) -> ap.Lowered:
    return ap.jit(_step, MESH, tactics).lower(*args)


def _written(low: ap.Lowered) -> int:
    return len(written_once.written_once(low.program))


@pytest.mark.parametrize("tactics", [[BP], [BP, FSDP]])
def test_both_products_read_the_gradient_behind_one_barrier(tactics: list[ap.Tactic]):
    args = _args()
    low = _lowered(tactics, *args)
    (value,) = written_once.written_once(low.program)
    assert low.program.program.type_of(value).shape == (32, 64)
    ops = [op.operation for op in low.exported.body.operations[0].regions[0].blocks[0].operations]
    (held,) = (
        op for op in ops if op.name == "stablehlo.optimization_barrier" and list(op.results[0].type.shape) == [8, 64]
    )
    assert [use.owner.name for use in held.results[0].uses] == ["stablehlo.dot_general"] * 2
    for ours, theirs in zip(
        jax.tree.leaves(ap.jit(_step, MESH, tactics)(*args)), jax.tree.leaves(jax.jit(_step)(*args)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_more_tokens_than_columns_make_logits_and_gradient_more_than_what_waits_otherwise():
    assert _written(_lowered([BP], *_args(tokens=64))) == 0


def test_few_tokens_save_little():
    assert _written(_lowered([BP], *_args(tokens=8))) == 0


def test_a_table_that_was_gathered_for_both_passes_would_lie_beside_both():
    assert _written(_lowered([BP, FSDP, ap.SharedGathers(within=1_000_000)], *_args())) == 0


def test_wide_products_hide_what_they_compute_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(written_once, "MOST_COLUMNS", 7)
    assert _written(_lowered([BP], *_args())) == 0


def test_products_in_bf16_read_logits_that_are_no_wider():
    assert _written(_lowered([BP], *_args(dtype="bfloat16"))) == 0


def test_larger_arrays_elsewhere_are_what_takes_memory():
    def step(params: Params, tokens: jax.Array, other: jax.Array) -> tuple[Params, jax.Array]:
        return _step(params, tokens), jnp.sin(other.T @ other)

    other = np.ones((4, 64), "f4")
    assert len(written_once.written_once(ap.jit(step, MESH, [BP]).lower(*_args(), other).program)) == 0
