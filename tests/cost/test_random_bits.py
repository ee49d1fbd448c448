"""Do random bits, noise and dropout take about the seconds that the TPU compiler estimates?

Microseconds by libtpu 0.0.51 for v5e:2x4, on one device, which no test compiles again.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

V5E = ap.Mesh({"x": 1}, device="tpu_v5e")
ROWS, WIDTH, HIDDEN = 4096, 1024, 4096


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


X, W = f32(ROWS, WIDTH), f32(WIDTH, WIDTH)


def drop(key, x):
    return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0.0)


def two_uniforms(key):
    after = jax.random.wrap_key_data(jax.random.key_data(key) + 1)
    return jax.random.uniform(key, (ROWS, WIDTH)), jax.random.uniform(after, (ROWS, WIDTH))


def summed(key, x):
    dropped = drop(key, x)
    return dropped.sum(0), (dropped * dropped).sum(1)


def normalised(key, x, w):
    dropped = drop(key, jnp.sin(x))
    return dropped @ w, dropped / jnp.sqrt((dropped * dropped).mean(-1, keepdims=True))


def mlp(weights, x, key):
    keys = jax.random.split(key, 2 * len(weights))
    for i, (up, down) in enumerate(weights):
        x = x + drop(keys[2 * i + 1], drop(keys[2 * i], jax.nn.relu(x @ up)) @ down)
    return (x * x).mean()


def attention(weights, x, key):
    keys, (batch, length, width) = jax.random.split(key), x.shape
    q, k, v = ((x @ w).reshape(batch, length, 8, 64) for w in weights[:3])
    weight = drop(keys[0], jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weight, v).reshape(batch, length, width)
    return ((x + drop(keys[1], mixed @ weights[3])) ** 2).mean()


def in_two_products(argument):
    """What is dropped, by both a product and a product of its transpose."""

    def run(key, x, w, v):
        dropped = drop(key, argument(x, w))
        return dropped @ w, dropped.T @ v

    return run


LAYERS = [(f32(WIDTH, HIDDEN), f32(HIDDEN, WIDTH))] * 2
HEADS = [f32(512, 512)] * 4, f32(8, 512, 512)

COMPILED = {
    "normal": (lambda key: jax.random.normal(key, (ROWS, WIDTH)), (), 131.9),
    "two uniforms": (two_uniforms, (), 193.4),
    "noise": (lambda key, x, w: (x + jax.random.normal(key, x.shape)) @ w, (X, W), 148.1),
    "dropped": (drop, (X,), 110.0),
    "dropped, summed twice": (summed, (X,), 112.8),
    "dropped, in a product and a norm": (normalised, (X, W), 319.7),
    "argument in two products": (in_two_products(lambda x, w: x), (X, W, X), 206.6),
    "product in two products": (in_two_products(lambda x, w: x @ w), (X, W, X), 226.2),
    "relu in two products": (in_two_products(lambda x, w: jax.nn.relu(x @ w)), (X, W, X), 226.9),
    "MLP": (lambda key, w, x: mlp(w, x, key), (LAYERS, X), 1234.0),
    "gradient of the MLP": (lambda key, w, x: jax.grad(mlp)(w, x, key), (LAYERS, X), 4615.0),
    "gradient of attention": (lambda key, w, x: jax.grad(attention)(w, x, key), HEADS, 1780.3),
}  # fmt: skip


def ratio(name: str) -> float:
    function, given, compiled_us = COMPILED[name]
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    lowered = ap.jit(lambda key, *rest: function(jax.random.wrap_key_data(key), *rest), V5E, []).lower(key, *given)
    return 1e6 * lowered.estimate.compute_s / compiled_us


@pytest.mark.parametrize("name", COMPILED)
def test_random_bits_take_about_as_long_as_compiled(name):
    assert 0.74 < ratio(name) < 1.15


def test_random_bits_are_not_off_on_average():
    assert abs(np.log([ratio(name) for name in COMPILED]).mean()) < 0.13
