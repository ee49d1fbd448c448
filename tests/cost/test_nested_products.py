"""Does a product run inside the one that reads it where the TPU compiler has it so, and take as long?

Kernels and microseconds by libtpu 0.0.51 for v5e:2x4, on one device, in f32, which no test compiles again.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from tests.prompt import slow

V5E = ap.Mesh({"x": 1}, device="tpu_v5e")
GPU = ap.Mesh({"x": 1}, device="h100")
ROWS = 65_536
relu = jax.nn.relu


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def forward(x, a, b):
    return relu(x @ a) @ b


def gradient(x, g, w, h):
    return jnp.einsum("nk,nm->km", x, jnp.where(h > 0, g @ w.T, 0))


def products(function, *given: jax.ShapeDtypeStruct, mesh: ap.Mesh = V5E) -> int:
    """How many kernels with a product there are."""
    run = ap.jit(function, mesh, []).lower(*given).estimate.simulation
    return int((run.graph.nodes["matrix_work"] > 0).sum())


FORWARD = [
    (8, 128, "1111"), (8, 512, "1111"), (8, 1024, "1111"), (8, 2048, "1111"), (8, 4096, "1111"),
    (128, 128, "1111"), (128, 512, "1111"), (128, 1024, "1111"), (128, 2048, "1112"), (128, 4096, "1122"),
    (256, 128, "1111"), (256, 512, "1111"), (256, 1024, "1112"), (256, 2048, "1112"), (256, 4096, "1122"),
    (512, 128, "1111"), (512, 512, "1112"), (512, 1024, "1112"), (512, 2048, "1122"), (512, 4096, "2222"),
    (1024, 128, "1111"), (1024, 512, "1112"), (1024, 1024, "1122"), (1024, 2048, "2222"), (1024, 4096, "2222"),
    (2048, 128, "1112"), (2048, 512, "1122"), (2048, 1024, "1222"), (2048, 2048, "2222"), (2048, 4096, "2222"),
]  # fmt: skip
"""Summed over by the inner product of `forward`, its columns, and kernels for 8 to 4,096 columns of the outer one."""

GRADIENT = [
    (8, 128, "1111"), (8, 512, "1111"), (8, 1024, "1111"), (8, 2048, "1111"), (8, 4096, "1111"),
    (128, 128, "1111"), (128, 512, "1111"), (128, 1024, "1111"), (128, 2048, "1112"), (128, 4096, "1122"),
    (256, 128, "1111"), (256, 512, "1111"), (256, 1024, "1111"), (256, 2048, "1122"), (256, 4096, "1122"),
    (1024, 128, "1111"), (1024, 512, "1111"), (1024, 1024, "1112"), (1024, 2048, "1222"), (1024, 4096, "2222"),
    (2048, 128, "1111"), (2048, 512, "1112"), (2048, 1024, "1122"), (2048, 2048, "2222"), (2048, 4096, "2222"),
]  # fmt: skip
"""The same of `gradient`, for inputs of 8, 256, 1,024 and 2,048."""


@pytest.mark.parametrize("table", [FORWARD, slow(GRADIENT)], ids=["forward", "gradient"])
def test_products_run_inside_others_where_the_compiler_has_them(table):
    shapes = [8, 256, 1024, 4096 if table is FORWARD else 2048]
    wrong = []
    for k, h, counts in table:
        for n, expected in zip(shapes, counts, strict=True):
            if table is FORWARD:
                found = products(forward, f32(ROWS, k), f32(k, h), f32(h, n))
            else:
                found = products(gradient, f32(ROWS, n), f32(ROWS, k), f32(h, k), f32(ROWS, h))
            wrong += [(k, h, n)] if found != int(expected) else []
    assert len(wrong) <= 0.09 * len(table) * len(shapes), wrong


W, X = f32(256, 256), f32(ROWS, 256)


def chain(x, *weights):
    for w in weights[:-1]:
        x = relu(x @ w)
    return x @ weights[-1]


KERNELS = {
    "three": (2, chain, X, W, W, W),
    "five": (3, chain, X, W, W, W, W, W),
    "gated": (2, lambda x, a, b, c: (jax.nn.silu(x @ a) * (x @ c)) @ b, X, W, W, W),
    "two read it": (3, lambda x, a, b, c: (lambda h: (h @ b, h @ c))(relu(x @ a)), X, W, W, W),
    "of many columns": (2, forward, f32(8192, 512), f32(512, 2048), f32(2048, 512)),
    "of few columns": (1, forward, f32(8192, 512), f32(512, 2048), f32(2048, 256)),
    "an output": (2, lambda x, a, b: (x @ a, relu(x @ a) @ b), X, W, W),
    "reshaped between": (
        2, lambda x, a, b: relu(x @ a).reshape(ROWS, 256) @ b, f32(256, 256, 256), W, W,
    ),
    "sliced between": (1, lambda x, a, b: relu((x @ a)[:, :128]) @ b, X, W, f32(128, 256)),
    "with a norm": (
        2, lambda x, a, b: (lambda h: h / jnp.sqrt((h * h).mean(-1, keepdims=True)))(x @ a) @ b, X, W, W,
    ),
    "along batch dims": (
        1, lambda x, a, b: jnp.einsum("gnh,gho->gno", relu(jnp.einsum("gni,gih->gnh", x, a)), b),
        f32(16, 8192, 64), f32(16, 64, 256), f32(16, 256, 64),
    ),
    "linear attention": (
        1, lambda q, k, v: jnp.einsum("bqhd,bhde->bqhe", q, jnp.einsum("bkhd,bkhe->bhde", k, v)),
        f32(8, 2048, 8, 64), f32(8, 2048, 8, 64), f32(8, 2048, 8, 64),
    ),
    "low rank": (2, lambda x, w, a, b: x @ w + (x @ a) @ b, f32(16_384, 1024), f32(1024, 1024), f32(1024, 16),
                 f32(16, 1024)),
}  # fmt: skip
"""Kernels with products, and a function."""


@pytest.mark.parametrize("name", KERNELS)
def test_what_lies_between(name):
    expected, function, *given = KERNELS[name]
    assert products(function, *given) == expected


def test_a_library_runs_each_product_by_itself():
    assert products(forward, X, W, W, mesh=GPU) == 2


def test_what_is_moved_between_is_written():
    mesh = ap.Mesh({"x": 4}, device="tpu_v5e")
    tactic = ap.ManualPartition({"a": 1, "b": 0}, axis="x")
    run = ap.jit(forward, mesh, [tactic]).lower(X, f32(256, 1024), f32(1024, 256)).estimate.simulation
    assert (run.graph.nodes["matrix_work"] > 0).sum() == 1


US = {
    "gelu": (420.7, lambda x, a, b: jax.nn.gelu(x @ a) @ b, X, f32(256, 1024), f32(1024, 256)),
    "gradient": (697.7, gradient, X, X, f32(1024, 256), f32(ROWS, 1024)),
    "three": (256.7, chain, X, W, W, W),
    "wide": (4365.4, forward, f32(ROWS, 128), f32(128, 1024), f32(1024, 4096)),
    "low rank": (402.8, *KERNELS["low rank"][1:]),
    "linear attention": (195.5, *KERNELS["linear attention"][1:]),
}  # fmt: skip


@pytest.mark.parametrize("name", US)
def test_seconds_are_about_the_compilers(name):
    expected, function, *given = US[name]
    assert 0.8 <= ap.jit(function, V5E, []).lower(*given).estimate.compute_s * 1e6 / expected <= 1.25
