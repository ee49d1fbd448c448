"""What is spread is written before, and sums over groups of features are two kernels, held to compiled programs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

ONE = ap.Mesh({"x": 1}, device="tpu_v5e")
ROWS, COLUMNS = jax.ShapeDtypeStruct((4096, 512), "f4"), jax.ShapeDtypeStruct((512,), "f4")


def of(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "f4")


def norm(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    y = x - x.mean(axes, keepdims=True)
    return y * jax.lax.rsqrt((y**2).mean(axes, keepdims=True) + 1e-5)


def group_norm(x: jax.Array, groups: int, axes: tuple[int, ...]) -> jax.Array:
    return norm(x.reshape(*x.shape[:-1], groups, -1), axes).reshape(x.shape)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "a sum": (lambda x: x - x.sum(0), (ROWS,), 2),
    "a mean": (lambda x: x - x.mean(0), (ROWS,), 3),
    "a negation": (lambda x, b: x * -b, (ROWS, COLUMNS), 2),
    "a sum of two": (lambda x, b, c: x * (b + c), (ROWS, COLUMNS, COLUMNS), 2),
    "rounded": (lambda x, b: x * b.astype("f4"), (ROWS, jax.ShapeDtypeStruct((512,), jnp.bfloat16)), 2),
    "for some rows": (lambda x, b: x * jnp.exp(b)[:, None], (of((512, 8, 512)), of((512, 512))), 2),
    "of two sides": (lambda x, a, b: x + jnp.exp(a)[:, None] * jnp.exp(b), (ROWS, of((4096,)), COLUMNS), 3),
    "a scalar": (lambda x, a: x * jnp.exp(a), (ROWS, of(())), 1),
    "positions": (lambda x: jnp.where(jnp.arange(4096)[:, None] > jnp.arange(512) + 3, x, 0), (ROWS,), 2),
    "in front of a product": (lambda x, b, w: (x * jnp.exp(b)) @ w, (ROWS, COLUMNS, of((512, 512))), 2),
    "softmax": (lambda x: jax.nn.softmax(x, -1), (ROWS,), 3),
    "layer norm": (lambda x, w: norm(x @ w, (1,)) @ w, (ROWS, of((512, 512))), 5),
}
"""A program, its arguments, and the kernels that libtpu 0.0.51 makes of it for one v5e."""


def kernels(f: Callable[..., Any], args: tuple[Any, ...]) -> int:
    run = ap.jit(f, ONE, []).lower(*args).estimate.simulation
    return int(np.count_nonzero((run.node_s > 0) & (run.leader == np.arange(len(run.leader)))))


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_are_as_many_as_the_compilers(name: str):
    f, args, theirs = PROGRAMS[name]
    assert kernels(f, args) == theirs


def test_what_is_as_large_as_what_reads_it_is_computed_inside():
    assert kernels(lambda x, y: x * jnp.exp(y), (ROWS, ROWS)) == 1


COMPILED_US = {
    "groups of sequences": (lambda x, w: group_norm(x @ w, 8, (1, 3)), ((8, 1024, 256), (256, 256)), 65.4),
    "wide groups": (lambda x, w: group_norm(x @ w, 4, (1, 3)), ((8, 1024, 512), (512, 512)), 133.5),
    "single features": (lambda x, w: group_norm(x @ w, 256, (1,)), ((8, 1024, 256), (256, 256)), 62.7),
}
"""Microseconds of libtpu 0.0.51 on v5e."""


@pytest.mark.parametrize("name", COMPILED_US)
def test_norms_take_the_compilers_time(name: str):
    f, shapes, theirs = COMPILED_US[name]
    ours = ap.jit(f, ONE, []).lower(*map(of, shapes)).estimate.compute_s * 1e6
    assert 0.83 <= ours / theirs <= 1.1
