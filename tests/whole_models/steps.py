"""What is done with a drawn model, as a function of arguments in an order and with names of its own.

train      value and gradient, accumulated over parts of the batch, an optimizer of optax, an EMA
loss, gradient, forward
decode     one token more, with a cache that is carried and donated
beam       a scan of steps that keep the best of some sequences

step = Step.of(drawn)
step.function(*step.arguments)      with `step.donated` of them
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from jax import lax

from tests.whole_models.drawn import Drawn
from tests.whole_models.frameworks import CLASSES, VOCABULARY, Model, built, example_batch


@dataclass(frozen=True)
class Step:
    """A function, the shapes of its arguments, and which are donated; `batched` are the names of those with a batch."""

    function: Callable
    arguments: tuple[Any, ...]
    donated: tuple[int, ...]
    batched: tuple[str, ...]

    @staticmethod
    def of(drawn: Drawn) -> Step:
        """The step of a drawn model."""
        model = built(drawn)
        params = jax.eval_shape(model.init, jax.random.key(0))
        batch, key = example_batch(drawn), jax.eval_shape(lambda: jax.random.key(0))
        if drawn.step == "train":
            return _train(drawn, model, params, batch, key)
        if drawn.step == "decode":
            return _decode(drawn, params)
        if drawn.step == "beam":
            return _beam(drawn, params)
        if drawn.step == "forward":
            return Step(
                lambda params, batch, key: model.apply(params, batch, key), (params, batch, key), (), ("batch",)
            )
        loss = functools.partial(_loss, drawn, model)
        function = loss if drawn.step == "loss" else jax.grad(loss)
        return Step(lambda params, batch, key: function(params, batch, key), (params, batch, key), (), ("batch",))


def _loss(drawn: Drawn, model: Model, params: Any, batch: dict, key: jax.Array) -> jax.Array:
    logits = model.apply(params, batch, key).astype(jnp.float32)
    if drawn.head == "bare":
        return jnp.mean(logits**2)
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()


def optimizer_of(name: str) -> optax.GradientTransformation:
    """An optimizer by name, of optax, its contrib, or a chain of them as people write it."""
    matrices = lambda p: jax.tree.map(lambda w: w.ndim > 1, p)  # noqa: E731
    chains = {
        "momentum": lambda: optax.sgd(1e-2, momentum=0.9, nesterov=True),
        "clipped": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)),
        "scheduled": lambda: optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100)),
        "masked": lambda: optax.chain(optax.adam(1e-3), optax.masked(optax.add_decayed_weights(1e-2), matrices)),
        "multi_steps": lambda: optax.MultiSteps(optax.adam(1e-3), 2).gradient_transformation(),
    }
    if name in chains:
        return chains[name]()
    home = optax if hasattr(optax, name) else optax.contrib
    return getattr(home, name)(1e-3) if name != "schedule_free" else optax.contrib.schedule_free_adamw(1e-3)


def _train(drawn: Drawn, model: Model, params: Any, batch: dict, key: Any) -> Step:
    optimizer = optax.with_extra_args_support(optimizer_of(drawn.optimizer))
    state = jax.eval_shape(optimizer.init, params)

    def gradients(params: Any, batch: dict, key: jax.Array) -> tuple[jax.Array, Any]:
        loss = jax.value_and_grad(functools.partial(_loss, drawn, model))
        if drawn.accumulate == 1:
            return loss(params, batch, key)
        parts = {
            n: x.reshape(drawn.accumulate, x.shape[0] // drawn.accumulate, *x.shape[1:])
            for n, x in batch.items()
            if n != "edges"
        }

        def add(total: Any, part: dict) -> tuple[Any, jax.Array]:
            value, grads = loss(params, {**part, "edges": batch["edges"]}, key)
            return jax.tree.map(jnp.add, total, grads), value

        total, values = lax.scan(add, jax.tree.map(jnp.zeros_like, params), parts)
        return values.mean(), jax.tree.map(lambda g: g / drawn.accumulate, total)

    def update(params: Any, opt_state: Any, batch: dict, key: jax.Array) -> tuple[Any, Any, jax.Array]:
        value, grads = gradients(params, batch, key)
        updates, opt_state = optimizer.update(grads, opt_state, params, value=value)
        return optax.apply_updates(params, updates), opt_state, value

    if not drawn.ema:
        return Step(update, (params, state, batch, key), (0, 1), ("batch",))

    def train(ema: Any, data: dict, train_state: dict, rng: jax.Array) -> tuple[Any, dict, dict]:
        params, opt_state, value = update(train_state["params"], train_state["opt"], data, rng)
        ema = jax.tree.map(lambda e, p: 0.99 * e + 0.01 * p, ema, params)
        return ema, {"params": params, "opt": opt_state}, {"loss": value}

    return Step(train, (params, batch, {"params": params, "opt": state}, key), (0, 2), ("data",))


def _decode(drawn: Drawn, params: Any) -> Step:
    """A token's step of attention over a cache, beside whatever parameters the model has."""
    b, t, d = drawn.dims
    h = drawn.heads
    cache = {n: jax.ShapeDtypeStruct((drawn.depth, b, max(t, 1), h, d // h), jnp.float32) for n in "kv"}
    weights = {n: jax.ShapeDtypeStruct((drawn.depth, d, d), jnp.float32) for n in ("wq", "wk", "wv", "wo")}

    def decode(weights: dict, cache: dict, token: jax.Array, position: jax.Array) -> tuple[jax.Array, dict]:
        def layer(x: jax.Array, given: tuple[dict, dict]) -> tuple[jax.Array, dict]:
            w, kept = given
            q, k, v = ((x @ w[n]).reshape(b, h, d // h) for n in ("wq", "wk", "wv"))
            kept = {
                "k": lax.dynamic_update_slice_in_dim(kept["k"], k[:, None], position, 1),
                "v": kept["v"].at[:, position].set(v),
            }
            scores = jnp.einsum("bhe,bthe->bht", q, kept["k"])
            seen = jnp.arange(kept["k"].shape[1]) <= position
            out = jnp.einsum("bht,bthe->bhe", jax.nn.softmax(jnp.where(seen, scores, -1e9), -1), kept["v"])
            return x + out.reshape(b, d) @ w["wo"], kept

        x, cache = lax.scan(layer, token, (weights, cache))
        return x, cache

    token = jax.ShapeDtypeStruct((b, d), jnp.float32)
    return Step(decode, (weights, cache, token, jax.ShapeDtypeStruct((), jnp.int32)), (1,), ("token",))


def _beam(drawn: Drawn, params: Any) -> Step:
    """Three steps of a beam of two, by a product with a table, `top_k`, and rows taken along."""
    b, _, d = drawn.dims
    beams, vocabulary = 2, VOCABULARY
    weights = {
        "table": jax.ShapeDtypeStruct((vocabulary, d), jnp.float32),
        "w": jax.ShapeDtypeStruct((d, d), jnp.float32),
    }

    def search(weights: dict, start: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carried: tuple, _: None) -> tuple[tuple, jax.Array]:
            state, scores = carried
            state = jnp.tanh(state @ weights["w"])
            logits = jax.nn.log_softmax(state @ weights["table"].T) + scores[..., None]
            scores, flat = lax.top_k(logits.reshape(b, beams * vocabulary), beams)
            beam, token = flat // vocabulary, flat % vocabulary
            state = jnp.take_along_axis(state, beam[..., None], 1) + weights["table"][token]
            return (state, scores), token

        begun = (jnp.repeat(start[:, None], beams, 1), jnp.zeros((b, beams)).at[:, 1:].set(-1e9))
        (_, scores), tokens = lax.scan(step, begun, None, length=3)
        return scores, tokens

    return Step(search, (weights, jax.ShapeDtypeStruct((b, d), jnp.float32)), (), ("start",))


def values(drawn: Drawn, step: Step) -> tuple[Any, ...]:
    """Arguments with numbers: parameters as the framework begins with, tokens below the vocabulary."""
    rng = np.random.default_rng(drawn.seed)

    def filled(path: Any, leaf: Any) -> Any:
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(drawn.seed)
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            most = _most(drawn, jax.tree_util.keystr(path))
            return jnp.asarray(rng.integers(0, max(most, 1), leaf.shape), leaf.dtype)
        if leaf.dtype == bool:
            return jnp.zeros(leaf.shape, bool)
        return jnp.asarray(rng.normal(size=leaf.shape) * 0.5, leaf.dtype)

    made = list(jax.tree_util.tree_map_with_path(filled, step.arguments))
    if drawn.step in ("decode", "beam"):
        return tuple(made)
    params = built(drawn).init(jax.random.key(drawn.seed))
    if drawn.step != "train":
        return (params, *made[1:])
    state = optimizer_of(drawn.optimizer).init(params)
    if drawn.ema:
        return (jax.tree.map(jnp.copy, params), made[1], {"params": params, "opt": state}, made[3])
    return (params, state, *made[2:])


def _most(drawn: Drawn, path: str) -> int:
    b, t, _ = drawn.dims
    if "edges" in path:
        return b // drawn.accumulate * t
    if "'y'" in path:
        return min(VOCABULARY, CLASSES)
    return VOCABULARY if "'x'" in path else max(t, 1)
