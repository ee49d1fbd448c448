"""Do named schedules go by what arguments do, whatever they are called, wherever they stand, however stacked?"""

from __future__ import annotations

import functools
import random
import string
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import autopart as ap

MESH = ap.Mesh({"data": 2, "model": 4}, device="h100")
VOCABULARY, WIDTH, HIDDEN, HEADS, LAYERS = 4096, 512, 2048, 8, 2
ADAM = optax.adam(1e-3)
STATE = ("params", "opt", "ema")


def shape(*dims: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


# ---- a training step, its arguments in any order under any names

BLOCK = {
    **dict.fromkeys("qkv", shape(WIDTH, HEADS, WIDTH // HEADS)),
    "out": shape(HEADS, WIDTH // HEADS, WIDTH),
    "up": shape(WIDTH, HIDDEN),
    "bias": shape(HIDDEN),
    "down": shape(HIDDEN, WIDTH),
}
PARAMS = {"emb": shape(VOCABULARY, WIDTH), "blocks": [BLOCK] * LAYERS, "head": shape(WIDTH, VOCABULARY)}
ARGUMENTS = {
    "params": PARAMS,
    "opt": jax.eval_shape(ADAM.init, PARAMS),
    "ema": PARAMS,
    "tokens": shape(16, 256, dtype="int32"),
}


def loss(params, tokens):
    x, mask = params["emb"][tokens], jnp.tril(jnp.ones((tokens.shape[1],) * 2, bool))
    for block in params["blocks"]:
        q, k, v = (jnp.einsum("bsd,dhe->bhse", x, block[name]) for name in "qkv")
        weights = jax.nn.softmax(jnp.where(mask, jnp.einsum("bhse,bhte->bhst", q, k) / 8, -1e9))
        x = x + jnp.einsum("bhse,hed->bsd", jnp.einsum("bhst,bhte->bhse", weights, v), block["out"])
        x = x + jnp.tanh(x @ block["up"] + block["bias"]) @ block["down"]
    return optax.softmax_cross_entropy_with_integer_labels(x @ params["head"], tokens).mean()


def updated(params, opt, ema, tokens):
    updates, opt = ADAM.update(jax.grad(loss)(params, tokens), opt)
    params = optax.apply_updates(params, updates)
    return {"params": params, "opt": opt, "ema": jax.tree.map(lambda e, p: 0.99 * e + 0.01 * p, ema, params)}


class Names:
    """Another name for each key, the same for the same key; seed 0 leaves them."""

    def __init__(self, draw: random.Random, seed: int):
        self._draw, self._of = draw, dict[str, str]()
        self._renames = seed > 0

    def of(self, key: str) -> str:
        if not self._renames:
            return key
        while key not in self._of:
            word = "".join(self._draw.choices(string.ascii_letters, k=self._draw.randint(1, 8)))
            word += self._draw.choice(["", "", "_", str(self._draw.randint(0, 30))])
            if word not in self._of.values():
                self._of[key] = word
        return self._of[key]

    def given(self, tree: Any) -> Any:
        """A tree under the new names."""
        if type(tree) is dict:
            return {self.of(key): self.given(value) for key, value in tree.items()}
        return self._with(tree, map(self.given, tree)) if isinstance(tree, (list, tuple)) else tree

    def taken(self, tree: Any, like: Any) -> Any:
        """A tree under the names that `like` has."""
        if type(like) is dict:
            return {key: self.taken(tree[self.of(key)], value) for key, value in like.items()}
        return self._with(like, map(self.taken, tree, like)) if isinstance(like, (list, tuple)) else tree

    @staticmethod
    def _with(like: Any, parts: Any) -> Any:
        return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)


def drawn(seed: int) -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    """(step, its arguments, those that are donated): in one dict or one by one, outputs in another order than they."""
    draw = random.Random(seed)
    names, order, results = Names(draw, seed), [*ARGUMENTS], [*STATE]
    if seed:
        draw.shuffle(order)
        draw.shuffle(results)
    if seed and draw.random() < 0.5:

        def of_dict(state, tokens):
            given = names.taken(state, {name: ARGUMENTS[name] for name in STATE})
            return names.given(updated(**given, tokens=tokens))

        return of_dict, (names.given({name: ARGUMENTS[name] for name in STATE}), ARGUMENTS["tokens"]), (0,)

    def one_by_one(*arguments):
        given = {name: names.taken(value, ARGUMENTS[name]) for name, value in zip(order, arguments, strict=True)}
        made = updated(**given)
        return tuple(names.given(made[name]) for name in results)

    donated = tuple(place for place, name in enumerate(order) if name in STATE)
    return one_by_one, tuple(names.given(ARGUMENTS[name]) for name in order), donated


@functools.cache
def rows(seed: int) -> dict[str, tuple[float, float]]:
    step, arguments, donated = drawn(seed)
    found = ap.named_schedules(step, MESH, arguments, donate_argnums=donated)
    return {row.name: (row.step_s, row.peak_bytes) for row in found}


def check(seed: int) -> None:
    found, wanted = rows.__wrapped__(seed), rows(0)
    assert found.keys() == wanted.keys()
    for name, costs in wanted.items():
        np.testing.assert_allclose(found[name], costs, rtol=1e-6, err_msg=name)


def test_the_step_as_it_is_written_has_the_rows_that_people_know():
    wanted = {"DP(data)+Megatron(model)", "DP(data)+MegatronVocab(model)", "DP(data)+MegatronSP(model)"}
    assert wanted | {"DP(data,model)", "FSDP(data,model)", "FSDP(data)+Megatron(model)"} <= rows(0).keys()


@pytest.mark.parametrize("seed", [1, 2, 4, 7, 13])
def test_rows_and_costs_do_not_depend_on_the_order_and_the_names_of_arguments(seed):
    check(seed)


@pytest.mark.slow
def test_rows_and_costs_are_the_same_for_200_orders_and_names():
    for seed in range(1, 201):
        check(seed)


def test_outputs_are_next_values_by_what_they_are_made_of():
    def step(ema, params, x):
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(lambda p: jnp.sum((x @ p["w"]) ** 2))(params))
        return params, jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, ema, params)

    def of_leaves(state, x):
        params, ema = step({"w": state["a"]}, {"w": state["b"]}, x)
        return ema["w"], params["w"]

    w, x = {"w": jnp.ones((8, 8))}, jnp.ones((4, 8))
    traced = ap.jit(step, MESH, donate_argnums=(0, 1)).traced((w, w, x), {})
    names = traced.program.argument_names
    assert {output: names[argument] for output, argument in traced.program.ties.items()} == {0: "params/w", 1: "ema/w"}
    wave = ap.jit(lambda u, v: (v, 2 * v - u), MESH, donate_argnums=(0, 1)).traced((jnp.ones(8), jnp.ones(8)), {})
    assert wave.program.ties == {0: 0, 1: 1}
    traced = ap.jit(of_leaves, MESH, donate_argnums=0).traced(({"a": w["w"], "b": w["w"]}, x), {})
    names = traced.program.argument_names
    assert {output: names[argument] for output, argument in traced.program.ties.items()} == {0: "state/a", 1: "state/b"}


# ---- layers stacked on any dim, cast before the loop or in it


def stacked(dim: int, cast: str) -> tuple[Any, Any]:
    """(step, parameters) of a decoder that scans over layers."""

    def rounded(tree):
        return jax.tree.map(lambda w: w.astype("bfloat16"), tree)

    def total(params, x):
        def layer(x, w):
            w = rounded(w) if cast == "in the loop" else w
            q, k, v = (jnp.einsum("bsd,dhe->bshe", x, w[name]) for name in "qkv")
            scores = jax.nn.softmax(jnp.einsum("bshe,bthe->bhst", q, k).astype("float32")).astype("bfloat16")
            x = x + jnp.einsum("bshe,hed->bsd", jnp.einsum("bhst,bthe->bshe", scores, v), w["out"])
            return x + jax.nn.gelu(x @ w["up"]) @ w["down"], None

        layers = rounded(params) if cast == "before the loop" else params
        layers = jax.tree.map(lambda w: jnp.moveaxis(w, dim, 0), layers)
        return jnp.mean(jax.lax.scan(layer, x, layers)[0].astype("float32") ** 2)

    def step(params, x):
        return jax.tree.map(lambda w, g: w - g, params, jax.grad(total)(params, x))

    shapes = {name: [*array.shape] for name, array in BLOCK.items() if name != "bias"}
    return step, {name: shape(*dims[:dim], 4, *dims[dim:]) for name, dims in shapes.items()}


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("cast", ["in the loop", "before the loop"])
def test_schedules_of_stacked_layers_are_found_and_leave_the_dim_of_the_layers(dim, cast):
    step, params = stacked(dim, cast)
    x, mesh = shape(32, 256, WIDTH, dtype="bfloat16"), ap.Mesh({"data": 8, "model": 4}, device="h100")
    names = {row.name for row in ap.named_schedules(step, mesh, (params, x), donate_argnums=0)}
    assert {"FSDP(data,model)", "DP(data)+Megatron(model)", "DP(data)+MegatronSP(model)"} <= names
    for name in ("FSDP(data,model)", "DP(data)+Megatron(model)", "DP(data)+MegatronSP(model)"):
        specs = ap.jit(step, mesh, [ap.Parallelism(name)], donate_argnums=0).lower(params, x).metadata.in_specs
        for argument in params:
            dims = [*specs[f"params/{argument}"], (), ()]
            assert not dims[dim], (name, argument, dims)
            assert any(dims), (name, argument, dims)


def test_weights_that_no_other_dim_divides_are_whole_rather_than_divided_by_layers():
    def step(w, x):
        def total(w):
            return jnp.mean(jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0])

        return w - jax.grad(total)(w)

    arguments, mesh = (shape(8, 129, 129), shape(4096, 129)), ap.Mesh({"b": 4}, device="h100")
    rows = ap.named_schedules(step, mesh, arguments, donate_argnums=0)
    assert [row.name for row in rows if "Megatron" in row.name or "ZeRO" in row.name or "FSDP" in row.name] == []
    low = ap.jit(step, mesh, [ap.ManualPartition({"w": 0}, axis="b")], donate_argnums=0).lower(*arguments)
    assert low.metadata.in_specs["w"] == (("b",),)


def test_layers_that_are_indexed_one_by_one_are_no_dim_to_store_in_parts():
    def step(w, x):
        def total(w):
            y = x
            for n in range(4):
                y = jnp.tanh(y @ w[n])
            return jnp.sum(y)

        return w - jax.grad(total)(w)

    low = ap.jit(step, ap.Mesh({"d": 4}), [ap.Parallelism("FSDP(d)")], donate_argnums=0)
    assert low.lower(jnp.ones((4, 64, 64)), jnp.ones((8, 64))).metadata.in_specs["w"] == ((), ("d",))


# ---- donated state that is data


def with_key(step):
    return lambda state, bits: step(state, jax.random.wrap_key_data(bits))


def psi(weights, walkers):
    return (jnp.tanh(jnp.tanh(walkers @ weights["in"]) @ weights["hidden"]) @ weights["out"])[..., 0]


def metropolis(walkers, weights, bits):
    first, second = jax.random.split(jax.random.wrap_key_data(bits))
    moved = walkers + 0.1 * jax.random.normal(first, walkers.shape)
    ratio = jnp.exp(2 * (psi(weights, moved) - psi(weights, walkers)))
    return jnp.where((jax.random.uniform(second, ratio.shape) < ratio)[:, None], moved, walkers)


@with_key
def ising(spins, key):
    around = sum(jnp.roll(spins, by, dim) for by in (1, -1) for dim in (1, 2))
    return jnp.where(jax.random.uniform(key, spins.shape) < jnp.exp(-2 * spins * around), -spins, spins)


@with_key
def evolution(population, key):
    fitness = -jnp.sum((population - 1) ** 2 * jnp.cos(population), -1)
    return population + 0.1 * jax.random.normal(key, population.shape) * jax.nn.sigmoid(fitness)[:, None]


BITS = shape(2, dtype="uint32")
WEIGHTS = {"in": shape(30, 256), "hidden": shape(256, 256), "out": shape(256, 1)}


@pytest.mark.parametrize(
    ("step", "arguments"),
    [
        (metropolis, (shape(4096, 30), WEIGHTS, BITS)),
        (ising, (shape(64, 512, 512), BITS)),
        (evolution, (shape(4096, 1024), BITS)),
    ],
    ids=["walkers", "lattices", "populations"],
)
def test_donated_state_with_a_batch_dim_is_data(step, arguments):
    mesh = ap.Mesh({"b": 8}, device="h100")
    donated = ap.named_schedules(step, mesh, arguments, donate_argnums=0)
    kept = ap.named_schedules(step, mesh, arguments)
    assert donated["DP(b)"].step_s == pytest.approx(kept["DP(b)"].step_s)
    assert donated.best.name == kept.best.name == "DP(b)"
    low = ap.jit(step, mesh, [ap.Parallelism("DP(b)")], donate_argnums=0).lower(*arguments)
    assert {name: dims for name, dims in low.metadata.in_specs.items() if dims} == {
        low.traced.program.argument_names[0]: (("b",),)
    }


def test_a_classifier_of_one_layer_is_trained_on_a_batch():
    def step(w, x, labels):
        return w - jax.grad(lambda w: optax.softmax_cross_entropy_with_integer_labels(x @ w, labels).mean())(w)

    mesh, arguments = ap.Mesh({"b": 8}, device="h100"), (shape(512, 1024), shape(4096, 512), shape(4096, dtype="int32"))
    low = ap.jit(step, mesh, [ap.Parallelism("DP(b)")], donate_argnums=0).lower(*arguments)
    assert low.metadata.in_specs == {"w": (), "x": (("b",),), "labels": (("b",),)}


# ---- modules of nnx, and a cache, in either order


def costs(rows):
    return {row.name: (pytest.approx(row.step_s), pytest.approx(row.peak_bytes)) for row in rows}


class Perceptron(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(512, 2048, rngs=rngs), nnx.Linear(2048, 512, rngs=rngs)
        self.head = nnx.Linear(512, 4096, rngs=rngs)

    def __call__(self, x):
        return self.head(x + self.down(jnp.tanh(self.up(x))))


@pytest.mark.parametrize(
    "optimizer", [optax.sgd(0.1), optax.adamw(1e-3), optax.lamb(1e-3)], ids=["sgd", "adamw", "lamb"]
)
def test_a_batch_of_few_rows_is_the_batch_though_the_update_is_most_of_the_work(optimizer):
    params = {"up": shape(64, 128), "bias": shape(128), "down": shape(128, 64)}

    def few_rows(params, state, x):
        def error(params):
            return jnp.mean((jnp.tanh(x @ params["up"] + params["bias"]) @ params["down"] - x) ** 2)

        updates, state = optimizer.update(jax.grad(error)(params), state, params)
        return optax.apply_updates(params, updates), state

    arguments = params, jax.eval_shape(optimizer.init, params), shape(8, 64)
    lowered = ap.jit(few_rows, ap.Mesh({"data": 4}, device="h100"), "DP(data)", donate_argnums=(0, 1)).lower(*arguments)
    assert {name for name, spec in lowered.metadata.in_specs.items() if any(spec)} == {"x"}


def test_modules_of_nnx_have_the_same_rows_whichever_comes_first():
    def step(model, optimizer, x, labels):
        def total(model):
            return optax.softmax_cross_entropy_with_integer_labels(model(x), labels).mean()

        optimizer.update(model, nnx.grad(total)(model))

    model = Perceptron(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, ADAM, wrt=nnx.Param)
    data = shape(4096, 512), shape(4096, dtype="int32")
    first = ap.named_schedules(step, MESH, (model, optimizer, *data), donate_argnums=(0, 1))
    last = ap.named_schedules(
        lambda optimizer, x, labels, model: step(model, optimizer, x, labels),
        MESH,
        (optimizer, *data, model),
        donate_argnums=(0, 3),
    )
    assert "DP(data)+Megatron(model)" in {row.name for row in last}
    assert {row.name: (row.step_s, row.peak_bytes) for row in last} == costs(first)


def test_a_cache_before_the_parameters_is_data_as_one_behind_them():
    def decode(params, cache, x, at):
        q, k, v = (jnp.einsum("bd,dhe->bhe", x, params[name]) for name in "qkv")
        new = {"k": k[:, None], "v": v[:, None]}
        cache = {name: jax.lax.dynamic_update_slice(cache[name], row, (0, at, 0, 0)) for name, row in new.items()}
        scores = jax.nn.softmax(jnp.einsum("bhe,bthe->bht", q, cache["k"]))
        x = x + jnp.einsum("bhe,hed->bd", jnp.einsum("bht,bthe->bhe", scores, cache["v"]), params["out"])
        return x + jnp.tanh(x @ params["up"]) @ params["down"], cache

    params = {name: BLOCK[name] for name in (*"qkv", "out", "up", "down")}
    cache = dict.fromkeys("kv", shape(64, 1024, HEADS, WIDTH // HEADS))
    x, at = shape(64, WIDTH), shape(dtype="int32")
    behind = ap.named_schedules(decode, MESH, (params, cache, x, at), donate_argnums=1)
    before = ap.named_schedules(
        lambda cache, at, params, x: decode(params, cache, x, at)[::-1], MESH, (cache, at, params, x), donate_argnums=0
    )
    assert {"DP(data,model)", "DP(data)+Megatron(model)"} <= {row.name for row in before}
    assert {row.name: (row.step_s, row.peak_bytes) for row in before} == costs(behind)


def test_running_statistics_are_no_batch_where_no_axis_divides_the_batch():
    def train(state, x):
        params, moments, mean = state

        def loss(p):
            h = x @ p["a"]
            return (jnp.tanh(h - h.mean(0)) @ p["b"]).mean(), h.mean(0)

        gradients, new = jax.grad(loss, has_aux=True)(params)
        moments = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments, gradients)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, moments), moments, 0.9 * mean + 0.1 * new

    params = {"a": shape(15, 60), "b": shape(60, 30)}
    lowered = functools.partial(ap.jit(train, MESH, "DP(model)", donate_argnums=0).lower, (params, params, shape(60)))
    assert lowered(shape(16, 15)).metadata.in_specs["x"] == (("model",),)
    with pytest.raises(ap.TileError, match="does nothing"):
        lowered(shape(14, 15))
