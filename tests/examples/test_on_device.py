"""Steps as files: what one machine exports another runs with jax alone."""

import json

import jax
import jax.numpy as jnp
import pytest

pytest.importorskip("flatbuffers")

from experiments.on_device import export, measure
from experiments.on_device.steps import Step


def test_a_step_that_is_exported_is_measured(tmp_path, monkeypatch):
    def sgd(weights, momentum, x):
        gradient = jax.grad(lambda w: jnp.sum((x @ w["a"]) ** 2))(weights)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
        return jax.tree.map(lambda w, m: w - 0.1 * m, weights, momentum), momentum

    weights = {"a": jax.ShapeDtypeStruct((32, 16), jnp.float32)}
    step = Step(sgd, (weights, weights, jax.ShapeDtypeStruct((8, 32), jnp.float32)))
    monkeypatch.setattr(export, "STEPS", {"sgd": lambda: step})
    steps, out = tmp_path / "steps", tmp_path / "out"
    out.mkdir()
    export.main(steps)
    measure.main(steps, out, 60.0)
    found = json.loads((out / "measured.json").read_text())["steps"]["00-sgd"]
    assert found["step_s"] > 0
    assert found["alias_bytes"] == 2 * 4 * 32 * 16
    assert (out / "00-sgd.hlo.gz").exists()
