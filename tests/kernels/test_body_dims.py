"""Along which dims may the body of a Pallas call be cut? Slices of each factor run, and are put together again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autopart.api.kernels.pallas_call import PallasCall
from autopart.core.importer.jaxprs import equations
from autopart.core.table.temporal import combined, tile
from tests.kernels.programs import arrays


def softmax(x, o):
    e = jnp.exp(x[...] - x[...].max(-1, keepdims=True))
    o[...] = e / e.sum(-1, keepdims=True)


def product(x, w, o):
    o[...] = x[...] @ w[...]


def biased(x, w, b, o):
    o[...] = jax.nn.gelu(x[...] @ w[...] + b[...])


def attention(q, k, v, o):
    scores = jnp.einsum("bsd,btd->bst", q[...], k[...])
    o[...] = jnp.einsum("bst,btd->bsd", jax.nn.softmax(scores, -1), v[...])


def mean_of_rows(x, o):
    o[...] = x[...].mean(0)


def square_of_sum(x, o):
    o[...] = x[...].sum(0) ** 2


def scaled_by_sum(x, o):
    o[...] = x[...] * x[...].sum(0)


def rounded(x, o):
    o[...] = x[...].sum(0).astype(jnp.int32).astype(x.dtype)


def in_places(x, o):
    o[...] = x[...] + jax.lax.broadcasted_iota(x.dtype, x.shape, 0)


def halves(x, o):
    o[:8] = x[:8] * 2
    o[8:] = x[8:]


def by_row(x, o):
    def row(i, _):
        o[i, :] = jnp.cumsum(x[i, :])

    jax.lax.fori_loop(0, x.shape[0], row, None)


def turned(x, o):
    o[...] = jax.lax.fori_loop(0, 3, lambda _, y: y * 0.5 + x[...].T, jnp.zeros(o.shape, o.dtype))


def folded(x, o):
    o[...] = x[...].reshape(x.shape[0], -1, 4).max(-1)


def later(x, o, total):
    @pl.when(pl.program_id(0) == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    total[...] += x[...].sum(0, keepdims=True)

    @pl.when(pl.program_id(0) == pl.num_programs(0) - 1)
    def _():
        o[...] = total[...]


X, ROWS = (16, 32), pl.BlockSpec((8, 32), lambda i: (i, 0))
SUMS = {"grid": (2,), "in_specs": [ROWS], "out_specs": pl.BlockSpec((1, 32), lambda i: (0, 0))}
SUMS["scratch_shapes"] = [pltpu.VMEM((1, 32), "float32")]
BLOCKS = {"grid": (2,), "in_specs": [ROWS], "out_specs": ROWS}


@pytest.mark.parametrize(
    ("body", "shapes", "out", "how", "factors"),
    [
        (softmax, [X], X, {}, "tile r0=16; reduce -"),
        (softmax, [X], X, BLOCKS, "tile g0=16; reduce -"),
        (softmax, [(24, 32)], (24, 32), {**BLOCKS, "grid": (3,)}, "tile g0=24; reduce -"),
        (product, [X, (32, 24)], (16, 24), {}, "tile r0=16 r2=24; reduce r1:sum=32"),
        (biased, [X, (32, 24), (1, 24)], (16, 24), {}, "tile r0=16 r1=24; reduce -"),
        (attention, [(4, 8, 6)] * 3, (4, 8, 6), {}, "tile r0=4 r1=8 r2=6; reduce -"),
        (mean_of_rows, [X], (32,), {}, "tile r1=32; reduce r0:sum=16"),
        (square_of_sum, [X], (32,), {}, "tile r0=32; reduce -"),
        (scaled_by_sum, [X], X, {}, "tile r0=32; reduce -"),
        (rounded, [X], (32,), {}, "tile r0=32; reduce -"),
        (in_places, [X], X, {}, "tile r0=32; reduce -"),
        (in_places, [X], X, BLOCKS, "tile g0=2 r0=32; reduce -"),
        (halves, [X], X, {}, "tile r0=32; reduce -"),
        (by_row, [X], X, {}, "tile -; reduce -"),
        (turned, [X], (32, 16), {}, "tile r0=16 r1=32; reduce -"),
        (folded, [X], (16, 8), {}, "tile r0=16; reduce -"),
        (later, [X], (1, 32), SUMS, "tile r1=32; reduce g0:sum=16"),
    ],
)
def test_a_body_is_cut_along_each_dim_that_its_equations_carry(body, shapes, out, how, factors):
    operands = arrays(*shapes)

    def function(*x):
        return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(out, "float32"), interpret=True, **how)(*x)

    traced = jax.make_jaxpr(function)(*operands).jaxpr
    equation = next(e for e in equations(traced) if e.primitive.name == "pallas_call")
    avals = [tuple(v.aval for v in side) for side in (equation.invars, equation.outvars)]
    call = PallasCall(equation.primitive, equation.params, *avals, (0,))
    found, _ = call.factors()
    assert str(found).partition("; ")[2] == factors
    expected = np.asarray(function(*operands))
    for factor, mapping in zip(found.sliced, found.mappings(), strict=True):
        for ways in {next(w for w in range(2, factor.ways + 1) if factor.ways % w == 0), factor.ways}:
            slices = [
                [tile(np.asarray(x), d, i, ways) for x, d in zip(operands, mapping.operands, strict=True)]
                for i in range(ways)
            ]
            local = jax.jit(call.for_shapes([jax.ShapeDtypeStruct(x.shape, x.dtype) for x in slices[0]]))
            parts = [np.asarray(local(*x)[0]) for x in slices]
            np.testing.assert_allclose(combined(parts, mapping.results[0]), expected, rtol=0, atol=2e-5)
