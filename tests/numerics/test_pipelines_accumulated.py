"""Does a loop of the user's own over microbatches go through stages, whatever it hands from one to the next?

An accumulation is what people write: a scan or a `fori_loop` over parts of the batch, with `value_and_grad` inside.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import autopart as ap
from tests.numerics.test_pipelines import LAYERS, LENGTH, WIDTH, WORDS, assert_same, drawn
from tests.prompt import slow

PARTS, BATCH = 8, 16
RNG = np.random.default_rng(2)
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2, eps=1e-3))
DATA = {name: RNG.integers(0, WORDS, (BATCH, LENGTH)).astype("i4") for name in ("x", "y")}
GRADIENT = jax.value_and_grad


def weights(*count):
    return {"up": drawn(*count, WIDTH, 2 * WIDTH), "down": drawn(*count, 2 * WIDTH, WIDTH)}


STACKED = {"table": drawn(WORDS, WIDTH), "layers": weights(LAYERS)}
LISTED = {"table": drawn(WORDS, WIDTH), "layers": [weights() for _ in range(4)]}


def layer(h, w, key):
    y = jnp.tanh(h @ w["up"]) @ w["down"]
    return h + jnp.where(jax.random.bernoulli(key, 0.9, y.shape), y, 0)


def loss(p, part, key):
    """The table is read before the layers and behind them."""
    h = p["table"][part["x"]]
    if isinstance(p["layers"], list):
        for w in p["layers"]:
            h = layer(h, w, key)
    else:
        each = p["layers"], jax.random.split(key, LAYERS)
        h = lax.scan(lambda h, w: (layer(h, *w).astype(h.dtype), None), h, each)[0]
    return optax.softmax_cross_entropy_with_integer_labels(h @ p["table"].T, part["y"]).mean()


def summed(a, b):
    return jax.tree.map(jnp.add, a, b)


def divided(p, parts, zeros, key):
    def one(total, part):
        return jax.tree.map(lambda a, b: a + b / PARTS, total, GRADIENT(loss)(p, part, key)), None

    return lax.scan(one, (0.0, zeros), parts)[0]


def split_keys(p, parts, zeros, key):
    """A key is handed on, and split for each microbatch."""

    def one(carry, part):
        total, key = carry
        key, own = jax.random.split(key)
        return (summed(total, GRADIENT(loss)(p, part, own)), key), None

    return lax.scan(one, ((0.0, zeros), key), parts)[0][0]


def counted(p, parts, zeros, key):
    def one(n, total):
        part = jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, n, keepdims=False), parts)
        return summed(total, GRADIENT(loss)(p, part, jax.random.fold_in(key, n)))

    return lax.fori_loop(0, PARTS, one, (0.0, zeros))


def weighed(p, parts, zeros, key):
    """Each microbatch has its number of words; the losses are kept one by one."""

    def one(total, part):
        words = (part["y"] > 3).sum()
        value, found = GRADIENT(lambda p: loss(p, part, key) * words)(p)
        return summed(total, (found, words)), value

    (found, words), values = lax.scan(one, (zeros, 0), parts)
    return values.sum() / words, jax.tree.map(lambda a: a / words, found)


def greatest(p, parts, zeros, key):
    """The greatest loss so far is no sum."""

    def one(carry, part):
        most, total = carry
        value, found = GRADIENT(loss)(p, part, key)
        return (jnp.maximum(most, value), summed(total, found)), None

    return lax.scan(one, (-jnp.inf, zeros), parts)[0]


def behind_the_last(p, parts, zeros, key):
    """The first microbatch begins the sums."""
    first = GRADIENT(loss)(p, jax.tree.map(lambda a: a[0], parts), key)

    def one(total, part):
        return summed(total, GRADIENT(loss)(p, part, key)), None

    return lax.scan(one, first, jax.tree.map(lambda a: a[1:], parts))[0]


def checkpointed(p, parts, zeros, key):
    """The gradient of a loop over microbatches, each of which is computed again."""

    def total(p):
        return lax.scan(lambda c, part: (c + jax.checkpoint(loss)(p, part, key), None), 0.0, parts)[0]

    return GRADIENT(total)(p)


def mixed(p, parts, zeros, key):
    """Layers compute in bf16, sums are of f32."""

    def one(total, part):
        value, found = GRADIENT(loss)(jax.tree.map(lambda a: a.astype(jnp.bfloat16), p), part, key)
        return jax.tree.map(lambda a, b: a + b.astype("f4"), total, (value, found)), None

    return lax.scan(one, (jnp.float32(0), zeros), parts)[0]


KINDS = (divided, split_keys, counted, weighed, greatest, behind_the_last, checkpointed, mixed)


def step(accumulate, params, state, data, key):
    parts = jax.tree.map(lambda a: a.reshape(PARTS, -1, *a.shape[1:]), data)
    value, found = accumulate(params, parts, jax.tree.map(jnp.zeros_like, params), key)
    updates, state = OPTIMIZER.update(found, state, params)
    return optax.apply_updates(params, updates), state, value


CASES = {kind.__name__: (kind, STACKED) for kind in KINDS}
CASES |= {"divided, listed": (divided, LISTED), "split_keys, listed": (split_keys, LISTED)}
QUICK = {("split_keys", "1f1b"), ("weighed", "1f1b"), ("divided, listed", "gpipe"), ("greatest", "circular")}
ALL = [(name, schedule) for name in CASES for schedule in ("gpipe", "1f1b", "circular")]
ALL.remove(("behind_the_last", "circular"))  # seven microbatches are no groups of two


@pytest.mark.parametrize(("name", "schedule"), [case if case in QUICK else slow(*case) for case in ALL])
def test_what_microbatches_hand_on_is_the_same_in_stages(name, schedule):
    accumulate, params = CASES[name]
    args = (params, OPTIMIZER.init(params), DATA, jax.random.key(3))
    tactics = [ap.Pipeline("pipe", schedule=schedule), ap.ManualPartition({"data/*": 0}, axis="data")]
    lowered = ap.jit(partial(step, accumulate), ap.Mesh({"pipe": 2, "data": 2}), tactics).lower(*args)
    assert lowered.plan.stages is not None
    assert_same(lowered.compile()(*args), step(accumulate, *args), 1e-2 if accumulate is mixed else 1e-4)


def test_what_layers_add_up_to_stays_in_stages_until_all_microbatches_are_through():
    """A gradient of what all layers share is one reduction, behind the ticks; none of a microbatch alone."""

    def sharing(p, data):
        parts = jax.tree.map(lambda a: a.reshape(PARTS, -1, *a.shape[1:]), data)

        def one(total, part):
            def loss(p):
                h = p["table"][part["x"]]
                for scale in p["scales"]:
                    h = h + jnp.tanh(h @ p["shared"]["up"]) @ p["shared"]["down"] * scale
                return optax.softmax_cross_entropy_with_integer_labels(h @ p["table"].T, part["y"]).mean()

            return summed(total, jax.grad(loss)(p)), None

        return lax.scan(one, jax.tree.map(jnp.zeros_like, p), parts)[0]

    params = {"table": drawn(WORDS, WIDTH), "shared": weights(), "scales": [drawn(WIDTH) for _ in range(4)]}
    lowered = ap.jit(sharing, ap.Mesh({"pipe": 4}), [ap.Pipeline("pipe", schedule="1f1b")]).lower(params, DATA)
    local, ticks = lowered.program, 2 * (PARTS + 4 - 1)
    assert local.collectives()["all_permute"] == ticks  # the stream alone, there and back
    assert_same(lowered.compile()(params, DATA), sharing(params, DATA), 1e-4)
