"""Are kernels merged into their readers where the TPU compiler merges them?

Each case was compiled by libtpu 0.0.51 for v5e:2x4, with arrays of 8192 x 512 in f32: its text says whether the array
that several kernels read is written.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.costmodel.compiled.facts.op_classes import MATMUL
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL

V5E = ap.Mesh({"x": 1}, device="tpu_v5e")
X, W = jax.ShapeDtypeStruct((8192, 512), jnp.float32), jax.ShapeDtypeStruct((512, 512), jnp.float32)


def norm(y):
    return y / jnp.sqrt((y * y).mean(-1, keepdims=True))


MADE = {
    "sum": lambda a, b, c, d: a + b,
    "sum with tanh": lambda a, b, c, d: a + jnp.tanh(b),
    "tanh of sum": lambda a, b, c, d: jnp.tanh(a + b),
    "scaled sum": lambda a, b, c, d: (a + b) * 2,
    "of three": lambda a, b, c, d: a + b * c,
    "of four": lambda a, b, c, d: a + b * c + d,
    "with a row": lambda a, b, c, d: a + b * c[0],
}

COMPILED = [
    ("sum", 2, "written"), ("sum", 3, "written"), ("sum with tanh", 2, "merged"), ("sum with tanh", 3, "merged"),
    ("sum with tanh", 4, "written"), ("sum with tanh", 5, "written"), ("tanh of sum", 3, "merged"),
    ("tanh of sum", 5, "written"), ("scaled sum", 3, "merged"), ("of three", 2, "merged"), ("of three", 3, "written"),
    ("of four", 2, "written"), ("with a row", 3, "written"), ("with a row", 4, "written"),
]  # fmt: skip
"""What is made, how many kernels read it (a norm's two, and products), and what the compiler does."""


def kernels_that_read(function, *given: jax.ShapeDtypeStruct) -> list[int]:
    """How many of the first four arguments each large kernel reads."""
    run = ap.jit(function, V5E, []).lower(*given).estimate.simulation
    graph, found = run.graph, []
    for k in np.flatnonzero(graph.nodes["kind"] == KERNEL):
        read = graph.reads["read_buffer"][graph.read_ptr[k] : graph.read_ptr[k + 1]]
        found.append(len({int(buffer) for buffer in read if buffer < 4}))
    return found


@pytest.mark.parametrize(("made", "readers", "expected"), COMPILED)
def test_an_array_of_several_is_written_where_that_moves_fewer_bytes(made, readers, expected):
    def function(a, b, c, d, *weights):
        y = MADE[made](a, b, c, d)
        return norm(y), *(y @ w for w in weights)

    given = (X,) * 4 + (W,) * (readers - 2)
    reading = [count for count in kernels_that_read(function, *given) if count >= 2]
    assert len(reading) == (1 if expected == "written" else readers)


def test_what_a_reader_reads_anyway_counts_nothing():
    """Four readers, one of which reads an array that the sum is made of: merged by the compiler."""

    def function(a, b, c, d, w, v):
        y = a + jnp.tanh(b)
        return norm(y) * a, y @ w, y @ v

    assert len([count for count in kernels_that_read(function, X, X, X, X, W, W) if count == 2]) == 4


def test_derivatives_along_the_input_are_computed_where_they_are_read():
    """Of a network without norms the compiler runs nothing but products."""

    def network(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return x

    def loss(weights, x):
        out, along = jax.jvp(lambda x: network(weights, x), (x,), (x,))
        return ((out * along) ** 2).mean()

    run = ap.jit(jax.grad(loss), V5E, []).lower([W] * 3, X).estimate.simulation
    ran = run.graph.nodes["subject"][np.unique(run.leader)]
    assert set(run.program_arrays.ops["op_class"][ran]) == {MATMUL}
