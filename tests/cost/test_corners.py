"""Arrays without elements, and ops that end a program, on every sort of device: are they lowered and priced?

x[0:0] @ w, a scan over no steps, a scatter that only the last op reads
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

DEVICES = ["tpu_v3", "tpu_v5e", "h100", "cpu_host"]


def scanned(unroll: int) -> Callable[[jax.Array], jax.Array]:
    return lambda x: lax.scan(lambda total, row: (total + row.sum(), row * total), 0.0, x, unroll=unroll)[1]


def convolved(x: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x[:, :, None, None] * jnp.ones((1, 1, 4, 3)), jnp.ones((1, 3, 3, 8)), (1, 1), "SAME", dimension_numbers=numbers
    )


FUNCTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "slice": lambda x: (x * 2)[:1] + 1.0,
    "row": lambda x: (x * 2)[0] + 1.0,
    "reduce": lambda x: x.mean(-1) + x.sum(),
    "dot": lambda x: jnp.tanh(x @ x.T) @ x,
    "softmax": lambda x: jax.nn.softmax(x) * jnp.cumsum(x, 1),
    "sort": lambda x: jnp.sort(x, -1)[::-1],
    "concatenate": lambda x: jnp.pad(jnp.concatenate([x, x, x[:, :0]], 1), ((1, 1), (0, 2))),
    "transpose": lambda x: x.T.reshape(-1) * 2,
    "scan": scanned(1),
    "unrolled scan": scanned(2),
    "gather": lambda x: x.take(jnp.zeros((3 * bool(x.shape[0]),), int), axis=0),
    "segments": lambda x: jnp.tanh(jax.ops.segment_sum(x, jnp.zeros(x.shape[0], int), 4)),
    "associative scan": lambda x: lax.associative_scan(jnp.add, x, axis=0),
    "convolution": convolved,
    "pooling": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "SAME"),
    "map": lambda x: lax.map(lambda row: jnp.sin(row) @ row, x),
    "random": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
    "complex": lambda x: jnp.real((x * 1j) * (x * 2j)),
    "outer": lambda x: (x[:, None] - x[None]).sum(-1),
}

SHAPES = [(2, 0), (0, 4), (0, 0), (4, 1), (1, 4)]


@pytest.mark.parametrize(
    "device", [pytest.param(d, marks=[pytest.mark.slow] if i else []) for i, d in enumerate(DEVICES)]
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_without_elements_are_lowered_and_priced(name, device):
    mesh = ap.Mesh({"b": 2}, device=device)
    for shape in SHAPES if name != "row" else [(2, 0), (4, 1)]:
        for function in (FUNCTIONS[name], jax.grad(lambda x: jnp.sum(FUNCTIONS[name](x)))):
            lowered = ap.jit(lambda x, f=function: f(x), mesh).lower(jax.ShapeDtypeStruct(shape, "float32"))
            assert np.isfinite(lowered.estimate.step_s)


def into_zeros(x: jax.Array, i: jax.Array) -> jax.Array:
    return jnp.zeros((16, 4)).at[i].add(x)


LAST: dict[str, Callable[[jax.Array], jax.Array]] = {
    "nothing": lambda y: y,
    "tanh": jnp.tanh,
    "a cast": lambda y: y.astype(jnp.bfloat16),
    "a transpose": lambda y: y.T,
    "a reduce": lambda y: y.sum(0),
    "a slice": lambda y: y[1:],
    "a select": lambda y: jnp.where(y > 0, y, 0),
    "itself": lambda y: y + y,
    "a scalar": lambda y: y + 1,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("last", LAST)
def test_a_scatter_is_priced_whatever_reads_it_last(last, device):
    mesh = ap.Mesh({"b": 8}, device=device)
    x, i = jax.ShapeDtypeStruct((64, 4), "float32"), jax.ShapeDtypeStruct((64,), "int32")
    lowered = ap.jit(lambda x, i: LAST[last](into_zeros(x, i)), mesh, [ap.ManualPartition({"x": 0}, "b")]).lower(x, i)
    assert lowered.estimate.step_s > 0
