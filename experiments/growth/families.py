"""Families of programs: each makes a program of about so many ops.

    chain(30_000)       x = tanh(x * w) ...                       30,000 ops one after the other
    branches(30_000)    x = cond(x[0, 0] > 0, f, g, x) ...        thousands of conds

What is repeated is traced each time, since a program that jax calls as one function is imported as one template;
`calls` is the family of those. Numbers of repetitions are such that the imported program has about as many ops as asked
for; the program's own count is what exponents are fitted to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import optax

ROWS, WIDTH = 64, 32


@dataclass(frozen=True)
class Case:
    """A function, its abstract arguments, those that it gives away, and what a first tactic tiles."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    donated: tuple[int, ...] = ()
    tiled: Mapping[str, int] = field(default_factory=lambda: {"x": 0})


Family = Callable[[int], Case]
FAMILIES: dict[str, Family] = {}


def family(make: Family) -> Family:
    """Registers a family under its function's name."""
    FAMILIES[make.__name__] = make
    return make


def array(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    """An abstract array."""
    return jax.ShapeDtypeStruct(shape, dtype)


X, SQUARE = array(ROWS, WIDTH), array(WIDTH, WIDTH)


@family
def chain(ops: int) -> Case:
    """Elementwise ops and products, each reading the last."""

    def fun(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(ops // 3):
            x = jnp.tanh(x @ w) + x
        return x

    return Case(fun, (X, SQUARE))


@family
def wide(ops: int) -> Case:
    """Ops that all read one array, summed up in the end."""

    def fun(x: jax.Array, w: jax.Array) -> jax.Array:
        found = [jnp.sin(x * i) @ w for i in range(ops // 5)]
        return sum(found[1:], found[0])

    return Case(fun, (X, SQUARE))


@family
def training(ops: int) -> Case:
    """A step of Adam on a deep perceptron with norms; state is donated."""
    depth = max(1, ops // 110)
    params = [{"w": SQUARE, "up": array(WIDTH, 64), "down": array(64, WIDTH), "scale": array(WIDTH)}] * depth
    optimizer = optax.adamw(1e-3)

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for layer in params:
            normed = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * layer["scale"]
            x = x + jnp.tanh(normed @ layer["w"]) + jax.nn.relu(normed @ layer["up"]) @ layer["down"]
        return jnp.mean(x * x)

    def fun(params: Any, state: Any, x: jax.Array) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    return Case(fun, (params, jax.eval_shape(optimizer.init, params), X), (0, 1))


@family
def branches(ops: int) -> Case:
    """Conds one after the other."""

    def fun(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(ops // 14):
            x = jax.lax.cond(x[0, 0] > 0, lambda x: jnp.tanh(x @ w), lambda x: x + 1.0, x)
        return x

    return Case(fun, (X, SQUARE))


@family
def scans(ops: int) -> Case:
    """Scans one after the other, with gradients: what the first ones stack up the second ones read."""

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        for _ in range(ops // 80):
            x, _ = jax.lax.scan(lambda x, row: (jnp.tanh(x @ w) + row, None), x, x[:4])
        return jnp.mean(x * x)

    return Case(lambda w, x: jax.grad(loss)(w, x), (SQUARE, X))


@family
def nested(ops: int) -> Case:
    """Scans five deep, one such nest after the other."""

    def deep(x: jax.Array, w: jax.Array, depth: int) -> jax.Array:
        if not depth:
            return jnp.tanh(x @ w)
        return jax.lax.scan(lambda x, _: (deep(x, w, depth - 1), None), x, None, length=2)[0]

    def fun(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(ops // 45):
            x = deep(x, w, 5)
        return x

    return Case(fun, (X, SQUARE))


@family
def slices(ops: int) -> Case:
    """Rows taken from an array and put together again, at fixed and at computed places."""

    def fun(x: jax.Array, at: jax.Array, w: jax.Array) -> jax.Array:
        for i in range(ops // 20):
            row = jax.lax.dynamic_slice(x, (at + i, 0), (1, WIDTH))
            x = jax.lax.dynamic_update_slice(x, jnp.tanh(row), (at, 0))
            left, right = x[: ROWS // 2], x[ROWS // 2 :]
            x = jnp.concatenate([right, left + 1.0])
        return x @ w

    return Case(fun, (X, array(dtype=jnp.int32), SQUARE))


@family
def arguments(ops: int) -> Case:
    """Many arguments, each used once."""

    def fun(params: Any, x: jax.Array) -> jax.Array:
        for w in params:
            x = jnp.tanh(x @ w)
        return x

    return Case(fun, ([SQUARE] * (ops // 3), X))


@family
def complex_constants(ops: int) -> Case:
    """Products with complex numbers that the program spells out."""

    def fun(x: jax.Array, z: jax.Array) -> jax.Array:
        for i in range(ops // 3):
            z = z * (1.5 + 1j * (i % 7)) + x
        return z

    return Case(fun, (X, array(ROWS, WIDTH, dtype=jnp.complex64)))


@family
def tied(ops: int) -> Case:
    """A donated state of many arrays, each updated from a batch."""

    def fun(state: Any, x: jax.Array) -> Any:
        return [s + jnp.tanh(x @ s).mean() for s in state]

    return Case(fun, ([SQUARE] * (ops // 9), X), (0,))


@family
def calls(ops: int) -> Case:
    """One function called often: a loop over blocks and a branch, as block-sparse attention has them."""

    @jax.jit
    def called(x: jax.Array, w: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(lambda x, _: (jnp.tanh(x @ w) + x, None), x, None, length=3)
        left, right = jnp.split(x, 2)
        x = jnp.concatenate([jax.nn.softmax(right @ w), jax.nn.softmax(left @ w)])
        return jax.lax.cond(x[0, 0] > 0, lambda x: x * 2.0, lambda x: x - 1.0, x)

    @jax.jit
    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(8):
            x = called(x, w)
        return x

    def fun(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(max(1, ops // 480)):
            x = layer(x, w)
        return x

    return Case(fun, (X, SQUARE))


@family
def indexed_stack(ops: int) -> Case:
    """Layers whose weights are rows of one array, and their gradients."""
    layers = max(1, ops // 13)

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        for i in range(layers):
            x = jnp.tanh(x @ w[i])
        return jnp.mean(x * x)

    return Case(lambda w, x: jax.grad(loss)(w, x), (array(layers, WIDTH, WIDTH), X))
