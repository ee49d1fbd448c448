"""Do layers in stages compute what the whole step computes, alone and with other axes, whatever the layers are?"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import autopart as ap
from tests.prompt import slow

LAYERS, WIDTH, WORDS, BATCH, LENGTH = 8, 16, 32, 16, 8
RNG = np.random.default_rng(0)


def drawn(*shape):
    return (0.3 * RNG.normal(size=shape)).astype("f4")


PARAMS = {
    "table": drawn(WORDS, WIDTH),
    "place": drawn(LENGTH, WIDTH),
    "head": drawn(WIDTH, WORDS),
    "layers": {
        "qkv": drawn(LAYERS, WIDTH, 3, 2, WIDTH // 2),
        "out": drawn(LAYERS, 2, WIDTH // 2, WIDTH),
        "up": drawn(LAYERS, WIDTH, 4 * WIDTH),
        "down": drawn(LAYERS, 4 * WIDTH, WIDTH),
        "scale": drawn(LAYERS, WIDTH),
    },
}
DATA = {name: RNG.integers(0, WORDS, (BATCH, LENGTH)).astype("i4") for name in ("x", "y")}
KEY = jax.random.key(3)


def normed(h, scale):
    return h * lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-5) * (1 + scale)


def attention(w, h, mask):
    q, k, v = jnp.einsum("btd,dchf->cbthf", normed(h, w["scale"]), w["qkv"])
    scores = jnp.einsum("bthf,bshf->bhts", q, k) / np.sqrt(q.shape[-1])
    probs = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1)
    return jnp.einsum("bhts,bshf,hfd->btd", probs, v, w["out"])


def block(h, w, mask):
    h = h + attention(w, h, mask)
    return h + jax.nn.gelu(normed(h, w["scale"]) @ w["up"]) @ w["down"]


def plain(p, data, key):
    """A decoder with one mask for all."""
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    h = p["table"][data["x"]] + p["place"]
    return lax.scan(lambda h, w: (block(h, w, mask), None), h, p["layers"])[0]


def checkpointed(p, data, key):
    """Residuals are computed again, layer by layer."""
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    h = p["table"][data["x"]] + p["place"]
    return lax.scan(jax.checkpoint(lambda h, w: (block(h, w, mask), None)), h, p["layers"])[0]


def masked(p, data, key):
    """Each example has a mask of its own, which all layers read."""
    mask = (jnp.tril(jnp.ones((LENGTH, LENGTH), bool)) & (data["x"] % 5 > 0)[:, None, :])[:, None]
    h = p["table"][data["x"]]
    return lax.scan(lambda h, w: (block(h, w, mask), None), h, p["layers"])[0]


def dropped(p, data, key):
    """Dropout, by a key for each layer."""
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))

    def layer(h, given):
        w, key = given
        h = block(h, w, mask)
        return jnp.where(jax.random.bernoulli(key, 0.9, h.shape), h / 0.9, 0), None

    h = p["table"][data["x"]]
    return lax.scan(layer, h, (p["layers"], jax.random.split(key, LAYERS)))[0]


def numbered(p, data, key):
    """Layers know their numbers, and hand on a sum beside the stream."""
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))

    def layer(carry, given):
        (h, total), (w, n) = carry, given
        h = lax.cond(n % 2 == 0, lambda h: block(h, w, mask), lambda h: h + attention(w, h, mask), h)
        return (h, total + jnp.mean(h * h, (1, 2))), None

    h = p["table"][data["x"]]
    (h, total), _ = lax.scan(layer, (h, jnp.zeros(len(h))), (p["layers"], jnp.arange(LAYERS)))
    return h + 0.01 * total[:, None, None]


def looped(p, data, key):
    """A loop in the layer."""
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))

    def layer(h, w):
        def inner(c, row):
            c = jnp.tanh(c + row @ w["up"][:, :WIDTH])
            return c, c

        _, seen = lax.scan(inner, jnp.zeros((h.shape[0], WIDTH)), h.swapaxes(0, 1))
        return block(h + seen.swapaxes(0, 1), w, mask), None

    h = p["table"][data["x"]]
    return lax.scan(layer, h, p["layers"])[0]


def chosen(p, data, key):
    """A layer looks rows up, sorts, and sends to experts."""
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))

    def layer(h, w):
        h = h + attention(w, h, mask)
        gates = jax.nn.softmax(h @ w["up"][:, :4])
        best, index = lax.top_k(gates, 2)
        experts = w["down"].reshape(4, WIDTH, WIDTH)
        found = jnp.einsum("btd,btkde->btke", h, experts[index])
        return normed(h + jnp.einsum("btke,btk->bte", found, best) + jnp.sort(h, -1), w["scale"]), None

    h = p["table"][data["x"]]
    return lax.scan(layer, h, p["layers"])[0]


def stacked(p, data, key):
    """Layers leave something each, beside the stream."""
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))

    def layer(h, w):
        h = block(h, w, mask)
        return h, jnp.square(h).mean((1, 2))

    h, sizes = lax.scan(layer, p["table"][data["x"]], p["layers"])
    return h + 0.01 * (sizes.sum(0) + sizes[3] * sizes[-1])[:, None, None]


BODIES = (plain, checkpointed, masked, dropped, numbered, looped, chosen, stacked)


def loss(body, p, data, key):
    logits = body(p, data, key) @ p["head"]
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, data["y"]))


def sgd(body, p, data, key):
    value, gradients = jax.value_and_grad(partial(loss, body))(p, data, key)
    return value, jax.tree.map(lambda a, b: a - 0.1 * b, p, gradients)


OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))


def adamw(p, state, data):
    value, gradients = jax.value_and_grad(partial(loss, checkpointed))(p, data, None)
    updates, state = OPTIMIZER.update(gradients, state, p)
    return value, optax.apply_updates(p, updates), state


def assert_same(found, expected, tolerance=2e-5):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


BP = ap.ManualPartition({"data/*": 0}, axis="data")
MP = ap.ManualPartition({"p": {"layers/up": 2, "layers/down": 1, "layers/qkv": 3}}, axis="model")


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "circular"])
@pytest.mark.parametrize("body", [plain, *map(slow, BODIES[1:])])
def test_layers_in_stages_give_the_numbers_of_the_whole_step(body, schedule):
    step = partial(sgd, body)
    pipeline = ap.Pipeline("pipe", 8, {"data/*": 0}, schedule)
    found = ap.jit(step, ap.Mesh({"pipe": 4}), [pipeline])(PARAMS, DATA, KEY)
    assert_same(found, step(PARAMS, DATA, KEY))


Z3 = ap.ManualPartition({"p": ap.LARGEST_DIVISIBLE_DIM, "state": ap.LARGEST_DIVISIBLE_DIM}, axis="data")
CUBE = ap.Mesh({"pipe": 2, "data": 2, "model": 2})
COMPOSED = {
    "data": (ap.Mesh({"pipe": 4, "data": 2}), [BP]),
    "zero": (ap.Mesh({"pipe": 4, "data": 2}), [BP, Z3]),
    "model": (ap.Mesh({"pipe": 4, "model": 2}), [MP]),
    "all": (CUBE, [BP, MP, Z3]),
    "recomputed": (ap.Mesh({"pipe": 4}), [ap.Recompute("nothing")]),
    "accumulated": (ap.Mesh({"pipe": 4, "data": 2}), [ap.Microbatch({"data/*": 0}, 4), BP]),
}


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "circular"])
@pytest.mark.parametrize("name", ["all", *map(slow, [name for name in COMPOSED if name != "all"])])
def test_stages_compose_with_tilings_of_other_axes(name, schedule):
    mesh, others = COMPOSED[name]
    pipeline = ap.Pipeline("pipe", None if name == "accumulated" else 4, schedule=schedule)
    state = OPTIMIZER.init(PARAMS)
    step = ap.jit(adamw, mesh, [pipeline, *others], donate_argnums=(0, 1))
    lowered = step.lower(PARAMS, state, DATA)
    print(name, schedule, [(t.name, t.collectives) for t in lowered.metadata.tactics])
    expected = adamw(PARAMS, state, DATA)
    assert_same(lowered.compile()(*jax.tree.map(jnp.asarray, (PARAMS, state)), DATA), expected)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "circular"])
def test_stages_hand_over_by_permutes_and_gather_nothing(schedule):
    state, mesh = OPTIMIZER.init(PARAMS), ap.Mesh({"pipe": 4, "data": 2})
    step = ap.jit(adamw, mesh, [ap.Pipeline("pipe", 4, schedule=schedule), BP], donate_argnums=(0, 1))
    lowered = step.lower(PARAMS, state, DATA)
    ticks = 4 * (2 if schedule == "circular" else 1) + 4 - 1
    collectives = lowered.program.collectives()
    assert collectives["all_permute"] >= 2 * ticks
    assert "all_gather" not in collectives
    assert ("all_to_all" in collectives) == (schedule == "circular")
    layout = lowered.metadata.in_specs["state/1/0/mu/layers/up"]
    assert layout == (((), (), ("pipe",)) if schedule == "circular" else (("pipe",),))


@pytest.mark.parametrize("schedule", ["gpipe", slow("1f1b"), slow("circular")])
def test_losses_of_what_enters_each_layer_add_nothing_where_no_microbatch_is(schedule):
    """The gradient of such a loss is not zero when a stage has nothing to do, and the layer before would receive it."""

    def gradients(w, x):
        def one(h, w):
            return h + jnp.tanh(h @ w), jnp.mean(h * h)

        def loss(w):
            h, losses = lax.scan(one, x, w, unroll=2)
            return jnp.mean(h**4) + losses.sum()

        return jax.grad(loss)(w)

    w, x = drawn(LAYERS, WIDTH, WIDTH), drawn(BATCH, WIDTH)
    found = ap.jit(gradients, ap.Mesh({"pipe": 2}), [ap.Pipeline("pipe", 4, {"x": 0}, schedule)])(w, x)
    expected = np.asarray(gradients(w, x))
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_an_axis_of_one_device_has_no_stages():
    lowered = ap.jit(partial(sgd, plain), ap.Mesh({"pipe": 1, "data": 2}), [ap.Pipeline("pipe", 4), BP])
    assert not lowered.lower(PARAMS, DATA, KEY).traced.program.tags


def test_a_loop_of_ones_own_over_microbatches_goes_through_stages():
    def accumulated(p, data):
        parts = jax.tree.map(lambda a: a.reshape(8, 2, LENGTH), data)

        def one(total, part):
            value, gradients = jax.value_and_grad(partial(loss, plain))(p, part, None)
            return jax.tree.map(jnp.add, total, gradients), value

        gradients, values = lax.scan(one, jax.tree.map(jnp.zeros_like, p), parts)
        return values, jax.tree.map(lambda a, b: a - 0.1 / 8 * b, p, gradients)

    found = ap.jit(accumulated, ap.Mesh({"pipe": 4}), [ap.Pipeline("pipe")])(PARAMS, DATA)
    assert_same(found, accumulated(PARAMS, DATA))


@pytest.mark.parametrize("schedule", ["gpipe", slow("circular")])
def test_a_plan_and_its_code_write_the_same_stages(schedule, tmp_path):
    mesh, state = ap.Mesh({"pipe": 2, "data": 4}), OPTIMIZER.init(PARAMS)
    tactics = [ap.Pipeline("pipe", 4, schedule=schedule), BP, Z3]
    low = ap.jit(adamw, mesh, tactics).lower(PARAMS, state, DATA)
    low.plan.save(tmp_path / "plan.json")
    made: dict = {}
    exec(low.metadata.as_schedule(), {"ap": ap}, made)
    for again in (ap.Plan.load(tmp_path / "plan.json"), made["schedule"]):
        assert ap.jit(adamw, mesh, again).lower(PARAMS, state, DATA).as_text("hlo") == low.as_text("hlo")


@pytest.mark.parametrize(("schedule", "stages"), [("gpipe", 3), ("1f1b", 5), slow("circular", 3)])
def test_layers_that_stages_do_not_divide_fill_all_but_the_last(schedule, stages):
    mesh = ap.Mesh({"pipe": stages})
    low = ap.jit(partial(sgd, dropped), mesh, [ap.Pipeline("pipe", 2 * stages, {"data/*": 0}, schedule)])
    data = jax.tree.map(lambda a: np.resize(a, (30, LENGTH)), DATA)
    low = low.lower(PARAMS, data, KEY)
    assert_same(low.compile()(PARAMS, data, KEY), sgd(dropped, PARAMS, data, KEY))
    assert low.plan.stages.layers == LAYERS
    assert any("8 layers take as long as" in text for text in low.metadata.remarks)
    assert (
        low.program.collectives()["all_gather"] <= 8
    )  # gradients, once a step: no dim of theirs is a multiple of 3 or 5
