"""Do layers that a model has one by one go through stages like those of a scan, with the same numbers?"""

from __future__ import annotations

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import autopart as ap
from tests.numerics.test_pipelines import BP, WIDTH, WORDS, assert_same
from tests.prompt import slow

BATCH, LENGTH, LAYERS = 8, 4, 4
RNG = np.random.default_rng(5)
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9))
MASK = np.tril(np.ones((LENGTH, LENGTH), bool))


def drawn(*shape):
    return (0.3 * RNG.normal(size=shape)).astype("f4")


def normed(h):
    return h * lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-3)


def attention(w, h, memory, mask):
    scores = jnp.einsum("btd,bsd->bts", h @ w["q"], memory @ w["k"]) / np.sqrt(WIDTH)
    return jax.nn.softmax(jnp.where(mask, scores, -1e9)) @ (memory @ w["v"]) @ w["o"]


def dense(w, h):
    return jax.nn.gelu(h @ w["up"]) @ w["down"]


def attending():
    return {name: drawn(WIDTH, WIDTH) for name in "qkvo"}


def wide():
    return {"up": drawn(WIDTH, 2 * WIDTH), "down": drawn(2 * WIDTH, WIDTH)}


def block(w, h):
    h = h + attention(w["self"], normed(h), normed(h), MASK)
    return h + dense(w["mlp"], normed(h))


def decoder(p, data):
    h = p["table"][data["x"]]
    for w in p["layers"]:
        h = block(w, h)
    return h @ p["table"].T, 0.0


def checkpointed(p, data):
    h = p["table"][data["x"]]
    for w in p["layers"]:
        h = jax.checkpoint(block)(w, h)
    return h @ p["table"].T, 0.0


def sliced(p, data):
    h = p["table"][data["x"]]
    for n in range(LAYERS):
        h = h + dense(jax.tree.map(lambda a, n=n: a[n], p["layers"]), h)
    return h @ p["table"].T, 0.0


def experts(p, data):
    """Every second layer has experts, and a loss of its own."""
    h, total = p["table"][data["x"]], 0.0
    for w in p["layers"]:
        h = block(w, h) if "mlp" in w else h
        if "gate" in w:
            gates = jax.nn.softmax(h @ w["gate"])
            each = jnp.einsum("bte,bted->btd", gates, jnp.einsum("btd,edf->btef", normed(h), w["experts"]))
            h, total = h + each, total + jnp.square(gates.mean(1)).sum(-1).mean()
    return h @ p["table"].T, 0.01 * total


def encoder_decoder(p, data):
    """All layers of the decoder read what the encoder leaves, and add to its gradient."""
    memory, h = p["table"][data["x"]], p["table"][data["y"]]
    for w in p["encoder"]:
        memory = memory + dense(w["mlp"], normed(memory))
    for w in p["layers"]:
        h = h + attention(w["cross"], normed(h), memory, True)
        h = block(w, h)
    return h @ p["table"].T, 0.0


def on_data(p, data):
    """Nobody asks for the gradient of what enters the first layer."""
    h = jax.nn.one_hot(data["x"], WIDTH)
    for w in p["layers"]:
        h = h + dense(w["mlp"], h)
    return h @ p["table"].T, 0.0


def layers(count, *parts):
    return [{name: make() for name, make in parts} for _ in range(count)]


SELF, MLP = ("self", attending), ("mlp", wide)
GATED = ("gate", lambda: drawn(WIDTH, 4)), ("experts", lambda: drawn(4, WIDTH, WIDTH))
MODELS = {
    "decoder": (decoder, layers(LAYERS, SELF, MLP)),
    "checkpointed": (checkpointed, layers(LAYERS, SELF, MLP)),
    "sliced": (sliced, {"up": drawn(LAYERS, WIDTH, 2 * WIDTH), "down": drawn(LAYERS, 2 * WIDTH, WIDTH)}),
    "experts": (experts, [layers(1, SELF, MLP, *(GATED * (n % 2)))[0] for n in range(2 * LAYERS)]),
    "encoder and decoder": (encoder_decoder, layers(LAYERS, SELF, MLP, ("cross", attending))),
    "on data": (on_data, layers(LAYERS, MLP)),
}
DATA = {name: RNG.integers(0, WORDS, (BATCH, LENGTH)).astype("i4") for name in ("x", "y")}


def step(model, params, state, data):
    def loss(p):
        logits, total = model(p, data)
        return optax.softmax_cross_entropy_with_integer_labels(logits, data["y"]).mean() + total

    value, gradients = jax.value_and_grad(loss)(params)
    updates, state = OPTIMIZER.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, value


@pytest.mark.parametrize("schedule", ["gpipe", slow("1f1b"), slow("circular")])
@pytest.mark.parametrize("name", MODELS)
def test_equal_layers_go_through_stages(name, schedule):
    model, given = MODELS[name]
    params = {"table": drawn(WORDS, WIDTH), "layers": given, "encoder": layers(2, MLP)}
    args = (params, OPTIMIZER.init(params), DATA)
    tactics = [ap.Pipeline("pipe", 4, {"data/*": 0}, schedule), BP]
    lowered = ap.jit(partial(step, model), ap.Mesh({"pipe": 2, "data": 2}), tactics).lower(*args)
    collectives = lowered.program.collectives()
    assert collectives["all_permute"]
    assert not collectives["all_gather"]
    assert_same(lowered.compile()(*args), step(model, *args), 1e-4)


def test_parameters_one_by_one_are_stored_in_parts_and_exchanged_once():
    model, given = MODELS["decoder"]
    params = {"table": drawn(WORDS, WIDTH), "layers": given}
    args = (params, OPTIMIZER.init(params), DATA)
    for microbatches in 2, 8:
        pipeline = ap.Pipeline("pipe", microbatches, {"data/*": 0})
        lowered = ap.jit(partial(step, model), ap.Mesh({"pipe": 4}), [pipeline]).lower(*args)
        assert lowered.metadata.in_specs["params/layers/1/mlp/up"] == ((), ("pipe",))
        assert lowered.metadata.in_specs["state/1/0/trace/layers/1/mlp/up"] == ((), ("pipe",))
        assert lowered.program.collectives()["all_to_all"] == 2 * 6  # of each stack of parameters and of gradients


def test_layers_behind_equal_ones_are_named():
    model, given = MODELS["decoder"]
    params = {
        "table": drawn(WORDS, WIDTH),
        "layers": [*given, *layers(1, SELF, ("mlp", lambda: {"up": drawn(WIDTH, 8), "down": drawn(8, WIDTH)}))],
    }
    args = (params, OPTIMIZER.init(params), DATA)
    with pytest.raises(
        ap.ArgumentError, match=r"behind the last equal layer stands \w+ at .*test_pipelines_one_by_one"
    ):
        ap.jit(partial(step, model), ap.Mesh({"pipe": 8}), [ap.Pipeline("pipe", 8)]).lower(*args)


class Block(nn.Module):
    @nn.compact
    def __call__(self, h):
        y = nn.LayerNorm()(h)
        y = nn.MultiHeadDotProductAttention(2, dropout_rate=0.1, deterministic=False)(y, y)
        h = h + nn.Dropout(0.1, deterministic=False)(y)
        y = nn.Dense(h.shape[-1])(nn.gelu(nn.Dense(2 * h.shape[-1])(nn.LayerNorm()(h))))
        return h + nn.Dropout(0.1, deterministic=False)(y)


class ViT(nn.Module):
    """A class token, dropout in each block, blocks by name."""

    depth: int

    @nn.compact
    def __call__(self, images):
        h = nn.Conv(WIDTH, (4, 4), strides=(4, 4))(images)
        h = h.reshape(len(h), -1, WIDTH)
        token = self.param("token", nn.initializers.normal(), (1, 1, WIDTH))
        h = jnp.concatenate([jnp.broadcast_to(token, (len(h), 1, WIDTH)), h], 1)
        for number in range(self.depth):
            h = Block(name=f"block_{number}")(h)
        return nn.Dense(10)(nn.LayerNorm()(h)[:, 0])


@pytest.mark.parametrize(
    ("depth", "schedule"), [(4, "gpipe"), slow(12, "gpipe"), slow(12, "1f1b"), slow(12, "circular")]
)
def test_a_flax_vit_goes_through_stages(depth, schedule):
    model, optimizer = ViT(depth), optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, eps=1e-3))
    images, labels = RNG.normal(size=(BATCH, 16, 16, 3)).astype("f4"), RNG.integers(0, 10, BATCH)
    params = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, images)

    def train(params, state, images, labels, key):
        def loss(p):
            logits = model.apply(p, images, rngs={"dropout": key})
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    args = (params, optimizer.init(params), images, labels, jax.random.key(2))
    pipeline = ap.Pipeline(
        "pipe", 4, {"images": 0, "labels": 0}, schedule, depth // 4 if schedule == "circular" else None
    )
    data = ap.ManualPartition({"images": 0, "labels": 0}, axis="data")
    found = ap.jit(train, ap.Mesh({"pipe": 2 if depth < 12 else 4, "data": 2}), [pipeline, data])(*args)
    assert_same(found, train(*args))
