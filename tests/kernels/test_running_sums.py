"""Which steps of a Pallas call may be slices: those that add to a sum, and none that read what others left."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import autopart as ap
from tests.kernels.programs import MESH, arrays, close, kernels

S = jax.ShapeDtypeStruct


def first():
    return pl.program_id(2) == 0


def last():
    return pl.program_id(2) == pl.num_programs(2) - 1


def product(body, scratch=True):
    """A product of x[32,32] and w[32,16] in blocks of 8; the body has blocks of x, w and the result, and scratch."""

    def run(x, w):
        return pl.pallas_call(
            body,
            out_shape=S((32, 16), x.dtype),
            grid=(4, 2, 4),
            in_specs=[pl.BlockSpec((8, 8), lambda i, j, k: (i, k)), pl.BlockSpec((8, 8), lambda i, j, k: (k, j))],
            out_specs=pl.BlockSpec((8, 8), lambda i, j, k: (i, j)),
            scratch_shapes=[pltpu.VMEM((8, 8), jnp.float32)] if scratch else [],
            interpret=True,
        )(x, w)

    return run


def accumulated(leave, when=last, begin=jnp.zeros_like, add=lambda acc, part: acc + part):
    """In scratch, which is begun at the first step; at some of them `leave` says what the result is."""

    def body(x, w, o, acc):
        @pl.when(first())
        def _():
            acc[...] = begin(acc)

        acc[...] = add(acc[...], x[...] @ w[...])

        @pl.when(when())
        def _():
            o[...] = leave(acc[...])

    return product(body)


def in_place(x, w, o):
    part = x[...] @ w[...]

    @pl.when(first())
    def _():
        o[...] = part

    @pl.when(pl.program_id(2) > 0)
    def _():
        o[...] += part


def chosen(x, w, o):
    o[...] = jnp.where(first(), 0.0, o[...]) + x[...] @ w[...]


def looped(x, w, o, acc):
    @pl.when(first())
    def _():
        acc[...] = jnp.zeros_like(acc)

    def turn(t, c):
        return c + x[:, pl.ds(2 * t, 2)] @ w[pl.ds(2 * t, 2), :]

    acc[...] = jax.lax.fori_loop(0, 4, turn, acc[...])
    o[...] = acc[...]


def weighted(x, w, o, acc):
    @pl.when(first())
    def _():
        acc[...] = jnp.zeros_like(acc)

    acc[...] += x[...] @ w[...] * pl.program_id(2)
    o[...] = acc[...]


def parts(x, w):
    return jnp.stack([x[:, k : k + 8] @ w[k : k + 8] for k in range(0, 32, 8)])


SUMS = {
    "scratch": (accumulated(lambda acc: acc), jnp.matmul),
    "scaled at the end": (accumulated(lambda acc: acc * 0.5), lambda x, w: x @ w * 0.5),
    "the number of the last step": (accumulated(lambda acc: acc, lambda: pl.program_id(2) == 3), jnp.matmul),
    "in place": (product(in_place, scratch=False), jnp.matmul),
    "chosen": (product(chosen, scratch=False), jnp.matmul),
    "in a loop": (product(looped), jnp.matmul),
}
NO_SUMS = {
    "tanh at the end": (accumulated(jnp.tanh), lambda x, w: jnp.tanh(x @ w)),
    "one more at the end": (accumulated(lambda acc: acc + 1), lambda x, w: x @ w + 1),
    "begins at one": (accumulated(lambda acc: acc, begin=jnp.ones_like), lambda x, w: x @ w + 1),
    "maximum": (
        accumulated(lambda acc: acc, begin=lambda acc: jnp.full_like(acc, -1e9), add=jnp.maximum),
        lambda x, w: parts(x, w).max(0),
    ),
    "decays": (
        accumulated(lambda acc: acc, add=lambda acc, part: acc * 0.5 + part),
        lambda x, w: functools.reduce(lambda acc, part: acc * 0.5 + part, parts(x, w)),
    ),
    "weighted by step": (product(weighted), lambda x, w: (parts(x, w) * jnp.arange(4)[:, None, None]).sum(0)),
}


@pytest.mark.parametrize("name", [*SUMS, *NO_SUMS])
def test_slices_along_a_sum_leave_parts_and_no_other_is_cut(name):
    kernel, plain = {**SUMS, **NO_SUMS}[name]
    schedule = [ap.ManualPartition({"x": 0}, axis="d"), ap.ManualPartition({"x": 1}, axis="m")]
    step = ap.jit(lambda x, w: kernel(x, w), ap.Mesh(MESH, device="tpu_v5e"), schedule)
    x, w = arrays((32, 32), (32, 16))
    low = step.lower(x, w)
    assert (low.program.collectives() == {"all_reduce": 1}) == (name in SUMS)
    assert (low.metadata.flop_divided["m"] > 0.99) == (name in SUMS)
    close(step(x, w), plain(x, w))


def test_the_gradient_of_a_norm_is_divided_with_the_sum_for_its_scale():
    whole, rows = pl.BlockSpec((1, 16), lambda i, j: (0, 0)), pl.BlockSpec((1, 2, 16), lambda i, j: (i, j, 0))

    def call(body, out, specs, *operands):
        grid = operands[0].shape[0], operands[0].shape[1] // 2
        return pl.pallas_call(body, out_shape=out, grid=grid, in_specs=specs[0], out_specs=specs[1], interpret=True)(
            *operands
        )

    def forward(x, w, o):
        o[...] = x[...] * jax.lax.rsqrt((x[...] ** 2).mean(-1, keepdims=True)) * w[...]

    def backward(x, w, g, dx, dw):
        @pl.when((pl.program_id(0) == 0) & (pl.program_id(1) == 0))
        def _():
            dw[...] = jnp.zeros_like(dw)

        r = jax.lax.rsqrt((x[...] ** 2).mean(-1, keepdims=True))
        n, gw = x[...] * r, g[...] * w[...]
        dx[...] = r * (gw - n * (gw * n).mean(-1, keepdims=True))
        dw[...] += (g[...] * n).sum((0, 1))[None]

    @jax.custom_vjp
    def norm(x, w):
        return call(forward, S(x.shape, x.dtype), ([rows, whole], rows), x, w)

    def back(kept, g):
        out = [S(kept[0].shape, g.dtype), S((1, 16), g.dtype)]
        return tuple(call(backward, out, ([rows, whole, rows], [rows, whole]), *kept, g))

    norm.defvjp(lambda x, w: (norm(x, w), (x, w)), back)

    def plain(x, w):
        return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True)) * w

    def gradient(f):
        return jax.grad(lambda x, w: (f(x, w) ** 3).sum(), argnums=(0, 1))

    schedule = [ap.ManualPartition({"x": 0}, axis="d"), ap.ManualPartition({"x": 1}, axis="m")]
    step = ap.jit(gradient(norm), ap.Mesh(MESH, device="tpu_v5e"), schedule)
    x, w = arrays((8, 4, 16), (1, 16))
    low = step.lower(x, w)
    assert low.program.collectives() == {"all_reduce": 1}
    assert min(low.metadata.flop_divided.values()) > 0.99
    close(step(x, w), gradient(plain)(x, w))


def carried(begins):
    def body(x, o, acc):
        @pl.when(begins(x))
        def _():
            acc[...] = jnp.zeros_like(acc)

        acc[...] += x[...]
        o[...] = acc[...] + 0

    spec = pl.BlockSpec((1, 8), lambda j, i: (i, j))

    def run(x, **how):
        scratch = [pltpu.VMEM((1, 8), jnp.float32)]
        return pl.pallas_call(
            body, out_shape=S(x.shape, x.dtype), grid=(2, 8), in_specs=[spec], out_specs=spec, scratch_shapes=scratch,
            interpret=True, **how,
        )(x)  # fmt: skip

    return run


@pytest.mark.parametrize(
    ("begins", "how", "sliced"),
    [
        (lambda x: pl.program_id(1) == 0, {}, "tile g0=16;"),
        (lambda x: x[0, 0] > 0, {}, "tile -;"),
        (
            lambda x: x[0, 0] > 0,
            {"compiler_params": pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary"))},
            "tile g0=2;",
        ),
    ],
)
def test_what_steps_leave_in_scratch_for_others_keeps_their_dim_whole(begins, how, sliced):
    step = ap.jit(lambda x: carried(begins)(x, **how), ap.Mesh(MESH), [ap.ManualPartition({"x": 0}, axis="d")])
    x = jnp.abs(arrays((8, 16))[0]) + 0.1
    (found,) = kernels(step.lower(x)).values()
    assert found["rule"].partition("; ")[2].startswith(sliced)
    close(step(x), jax.jit(lambda x: carried(begins)(x, **how))(x))
