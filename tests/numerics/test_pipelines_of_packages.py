"""Do models as people write them with equinox, haiku and flax go through stages, and what layers do besides?"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax import lax

import autopart as ap
from tests.numerics.test_pipelines import BP, WIDTH, WORDS, assert_same, drawn
from tests.prompt import slow

BATCH, LENGTH, LAYERS = 16, 8, 8
RNG = np.random.default_rng(4)
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2, eps=1e-3))
DATA = {name: RNG.integers(0, WORDS, (BATCH, LENGTH)).astype("i4") for name in ("x", "y")}
KEYS = {"params": jax.random.key(0), "dropout": jax.random.key(1)}


def equinox_list():
    """Blocks in a list, of one example each, with dropout."""

    class Block(eqx.Module):
        attention: eqx.nn.MultiheadAttention
        norm: eqx.nn.LayerNorm
        mlp: eqx.nn.MLP
        dropout: eqx.nn.Dropout

        def __init__(self, key):
            keys = jax.random.split(key)
            self.attention = eqx.nn.MultiheadAttention(2, WIDTH, key=keys[0])
            self.norm, self.dropout = eqx.nn.LayerNorm(WIDTH), eqx.nn.Dropout(0.1)
            self.mlp = eqx.nn.MLP(WIDTH, WIDTH, 2 * WIDTH, 1, activation=jax.nn.gelu, key=keys[1])

        def __call__(self, h, key):
            y = jax.vmap(self.norm)(h)
            h = h + self.attention(y, y, y, mask=jnp.tril(jnp.ones((LENGTH, LENGTH), bool)))
            return h + self.dropout(jax.vmap(self.mlp)(h), key=key)

    params, static = eqx.partition([Block(key) for key in jax.random.split(KEYS["params"], 4)], eqx.is_array)

    def one(p, x, key):
        h = p["table"][x]
        for block, own in zip(eqx.combine(p["layers"], static), jax.random.split(key, 4), strict=True):
            h = block(h, own)
        return h

    def model(p, x, key):
        return jax.vmap(partial(one, p))(x, jax.random.split(key, len(x)))

    return params, model


def haiku_stack():
    """`layer_stack` of layers with keys of their own."""

    class Block(hk.Module):
        def __call__(self, h):
            y = hk.LayerNorm(-1, True, True)(h)
            init = hk.initializers.VarianceScaling(1.0)
            h = h + hk.MultiHeadAttention(2, WIDTH // 2, w_init=init, model_size=WIDTH)(y, y, y)
            return h + hk.dropout(hk.next_rng_key(), 0.1, hk.nets.MLP([2 * WIDTH, WIDTH])(h))

    made = hk.transform(lambda h: hk.experimental.layer_stack(LAYERS)(lambda h: Block(name="block")(h))(h))
    params = made.init(KEYS["params"], jnp.zeros((1, LENGTH, WIDTH)))
    return params, lambda p, x, key: made.apply(p["layers"], key, p["table"][x])


def linen_scan():
    """`nn.scan` of `nn.remat`, dropout, and a loss that each layer sows."""

    class Block(nn.Module):
        @nn.compact
        def __call__(self, h, _):
            y = nn.MultiHeadDotProductAttention(2, dropout_rate=0.1, deterministic=False)(h, h)
            gates = nn.softmax(nn.Dense(4)(h))
            self.sow("aux", "balance", jnp.square(gates.mean(1)).sum(-1))
            each = self.param("experts", nn.initializers.normal(0.3), (4, WIDTH, WIDTH))
            return nn.LayerNorm()(h + y + jnp.einsum("bte,btd,edf->btf", gates, h, each)), None

    class Model(nn.Module):
        @nn.compact
        def __call__(self, h):
            block = nn.remat(Block, prevent_cse=False)
            axes, keys = {"params": 0, "aux": 0}, {"params": True, "dropout": True}
            return nn.scan(block, axes, split_rngs=keys, in_axes=nn.broadcast, length=LAYERS)()(h, None)[0]

    made = Model()
    params = made.init(KEYS, jnp.zeros((1, LENGTH, WIDTH)))["params"]

    def model(p, x, key):
        h, sown = made.apply({"params": p["layers"]}, p["table"][x], rngs={"dropout": key}, mutable=["aux"])
        return h + 0.01 * sum(a.sum(0)[:, None, None] for a in jax.tree.leaves(sown))

    return params, model


def nnx_scan():
    class Block(nnx.Module):
        def __init__(self, rngs):
            self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
            self.up, self.down = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs), nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)

        def __call__(self, h):
            return h + self.down(nnx.gelu(self.up(self.norm(h))))

    made = nnx.split_rngs(splits=LAYERS)(nnx.vmap(Block))(nnx.Rngs(0))
    graph, params = nnx.split(made, nnx.Param)
    through = nnx.scan(lambda h, block: block(h), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    return params, lambda p, x, key: through(p["table"][x], nnx.merge(graph, p["layers"]))


def attended(w, h, window):
    rows = np.arange(LENGTH)
    near = (rows[:, None] >= rows) & (rows[:, None] - rows < window)
    q, k, v = (h @ w[name] for name in "qkv")
    scores = jnp.einsum("btd,bsd->bts", q, k) / np.sqrt(WIDTH)
    return h + jnp.tanh(jax.nn.softmax(jnp.where(near, scores, -1e9)) @ v)


def square(*names):
    return {name: drawn(WIDTH, WIDTH) for name in names}


def local_and_global():
    """Every second layer attends to few words; their gradients are alike."""

    def model(p, x, key):
        h = p["table"][x]
        for number, w in enumerate(p["layers"]):
            h = attended(w, h, LENGTH if number % 2 else 3)
        return h

    return [square(*"qkv") for _ in range(LAYERS)], model


def shared_block():
    """One block is used again behind every second layer, which has parameters of its own."""

    def model(p, x, key):
        h = p["table"][x]
        for own in p["layers"]["own"]:
            h = attended(own, h, LENGTH)
            h = attended(p["layers"]["shared"], h, 3)
        return h

    return {"own": [square(*"qkv") for _ in range(4)], "shared": square(*"qkv")}, model


def convolutions():
    """Residual blocks of convolutions; all stages' are one, in groups."""

    def convolved(h, kernel):
        return lax.conv_general_dilated(h, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))

    def model(p, x, key):
        def block(h, w):
            return h + convolved(jax.nn.relu(convolved(h, w["a"])), w["b"]), None

        return lax.scan(block, p["table"][x], p["layers"])[0]

    return {name: drawn(LAYERS, 3, WIDTH, WIDTH) for name in "ab"}, model


def unrolled_by_two():
    """A scan that runs two layers in a turn."""

    def model(p, x, key):
        return lax.scan(lambda h, w: (attended(w, h, 3), None), p["table"][x], p["layers"], unroll=2)[0]

    return {name: drawn(LAYERS, WIDTH, WIDTH) for name in "qkv"}, model


MODELS = (
    equinox_list, haiku_stack, linen_scan, nnx_scan, local_and_global, shared_block, convolutions, unrolled_by_two,
)  # fmt: skip
QUICK = {("local_and_global", "1f1b"), ("shared_block", "gpipe"), ("convolutions", "1f1b"), ("nnx_scan", "circular")}
CASES = [(model, schedule) for model in MODELS for schedule in ("gpipe", "1f1b", "circular")]


def step(model, params, state, data, key):
    def loss(p):
        logits = model(p, data["x"], key) @ p["table"].T
        return optax.softmax_cross_entropy_with_integer_labels(logits, data["y"]).mean()

    value, gradients = jax.value_and_grad(loss)(params)
    updates, state = OPTIMIZER.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, value


def gathered_in_ticks(local):
    """Gathers along the stages in a loop."""
    steps = [step for plan, _, scope in local.redistributions() if scope for step in plan.steps]
    return [step for step in steps if "pipe" in step.mesh_axes and step.emitted_as == "all_gather"]


@pytest.mark.parametrize(
    ("model", "schedule"), [case if (case[0].__name__, case[1]) in QUICK else slow(*case) for case in CASES]
)
def test_a_model_of_a_package_goes_through_stages(model, schedule):
    layers, apply = model()
    params = {"table": drawn(WORDS, WIDTH), "layers": layers}
    args = (params, OPTIMIZER.init(params), DATA, jax.random.key(2))
    tactics = [ap.Pipeline("pipe", 4, {"data/*": 0}, schedule), BP]
    lowered = ap.jit(partial(step, apply), ap.Mesh({"pipe": 2, "data": 2}), tactics).lower(*args)
    assert lowered.program.collectives()["all_permute"]
    assert not gathered_in_ticks(lowered.program)
    assert_same(lowered.compile()(*args), step(apply, *args), 1e-4)
