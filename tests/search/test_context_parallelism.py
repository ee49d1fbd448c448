"""Does `Context` divide attention along the sequence, gathering keys and values and nothing else?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"seq": 4}, device="tpu_v3")
SIZES = (4, 64, 16)


def attention(w, x):
    q, k, v = (x @ w[name] for name in "qkv")
    return jax.nn.softmax(q @ k.swapaxes(1, 2), axis=-1) @ v @ w["o"]


def training_step(w, x):
    gradients = jax.grad(lambda w: (attention(w, x) ** 2).mean())(w)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradients)


def arrays():
    rng = np.random.default_rng(0)
    w = {name: rng.normal(size=(16, 16)).astype("float32") / 4 for name in "qkvo"}
    return w, rng.normal(size=SIZES).astype("float32")


def test_queries_stay_in_tiles_and_keys_and_values_are_gathered():
    low = ap.jit(attention, MESH, [ap.Parallelism("Context(seq)")]).lower(*arrays())
    assert low.metadata.conflicts == ()
    assert {kind: count for kind, count in low.program.collectives().items() if count} == {"all_gather": 2}
    assert low.metadata.flop_divided["seq"] == 1


def test_a_training_step_divides_more_than_the_tokens_alone_do_and_computes_the_same():
    w, x = arrays()
    step = ap.jit(training_step, MESH, [ap.Parallelism("Context(seq)")])
    alone = ap.jit(training_step, MESH, [ap.ManualPartition({"x": 1}, axis="seq")]).lower(w, x)
    low = step.lower(w, x)
    assert low.metadata.flop_divided["seq"] > alone.metadata.flop_divided["seq"]
    assert len(low.metadata.conflicts) < len(alone.metadata.conflicts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5), step(w, x), training_step(w, x))


def test_a_tile_that_an_exchange_makes_one_of_the_batch_is_no_context():
    """The order of a drawn mask needs all of a row: its tile would go to the batch, and everything with it."""

    def masked(w, x, drawn):
        kept = jnp.argsort(drawn, axis=1)[:, :32]
        return attention(w, jnp.take_along_axis(x, kept[:, :, None], axis=1))

    w, x = arrays()
    drawn = np.random.default_rng(1).uniform(size=SIZES[:2]).astype("float32")
    with pytest.raises(ap.PartitionError, match="nothing for Context"):
        ap.jit(masked, MESH, [ap.Parallelism("Context(seq)")]).lower(w, x, drawn)
