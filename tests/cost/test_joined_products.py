"""Where are parts laid beside each other: inside what reads them, or in memory?

Microseconds as libtpu 0.0.51 has them on v5e, which no test compiles again; looking up rows takes none there.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from autopart.costmodel.compiled.facts.cut_arrays import BY_PARTS, NESTED
from tests.cost.programs import f32, simulated

ROWS, FEATURES = 40_000, 128
ARGUMENTS = (
    *(f32(ROWS, FEATURES) for _ in range(2)), f32(5_000, FEATURES), jax.ShapeDtypeStruct((ROWS,), jnp.int32),
    *(f32(2 * FEATURES, FEATURES) for _ in range(2)), f32(FEATURES, FEATURES),
)  # fmt: skip

PARTS = {
    "given": lambda x, table, index, w: x,
    "computed": lambda x, table, index, w: jnp.exp(x) * 2,
    "multiplied": lambda x, table, index, w: x @ w,
    "looked up": lambda x, table, index, w: table[index],
    "scattered": lambda x, table, index, w: jnp.zeros((ROWS, FEATURES)).at[index].add(x),
    "zero": lambda x, table, index, w: jnp.zeros_like(x),
}
READERS = {
    "product": lambda joined, v, w: joined @ v,
    "two products": lambda joined, v, w: (joined @ v, jnp.tanh(joined @ w)),
    "product and gradient": lambda joined, v, w: jax.grad(lambda v: (jnp.tanh(joined @ v) ** 2).sum())(v),
    "product and sum": lambda joined, v, w: (joined @ v, joined.sum(0)),
    "product and tanh": lambda joined, v, w: (joined @ v, jnp.tanh(joined)),
    "two sums": lambda joined, v, w: (jnp.tanh(joined).sum(0), (joined * joined).sum(0)),
}


def program(parts: tuple[str, str], reader: str) -> Callable[..., object]:
    def function(x, y, table, index, v, w, square):
        each = [PARTS[part](given, table, index, square) for part, given in zip(parts, (x, y), strict=True)]
        return READERS[reader](jnp.concatenate(each, 1), v, w)

    return function


COMPUTED_AGAIN = pytest.mark.xfail(reason="parts are summed in f32 and rounded in kernels of their own", strict=True)
SUMMED_WHERE_LOOKED_UP = pytest.mark.xfail(reason="looked-up rows are summed for nothing", strict=True)


@pytest.mark.parametrize(
    ("parts", "reader", "compiled_us"),
    [
        (("given", "given"), "product", 106.6),
        (("given", "given"), "two products", 198.6),
        (("given", "given"), "product and gradient", 160.3),
        (("given", "given"), "product and tanh", 314.2),
        (("given", "given"), "two sums", 195.3),
        (("computed", "computed"), "product", 164.7),
        (("computed", "computed"), "two products", 202.2),
        (("computed", "computed"), "product and gradient", 175.0),
        pytest.param(("computed", "computed"), "product and sum", 291.1, marks=COMPUTED_AGAIN),
        (("computed", "computed"), "product and tanh", 234.7),
        (("computed", "computed"), "two sums", 196.8),
        (("looked up", "multiplied"), "product", 74.7),
        (("looked up", "multiplied"), "two products", 112.2),
        (("looked up", "multiplied"), "product and tanh", 173.5),
        (("looked up", "multiplied"), "two sums", 135.6),
        pytest.param(("looked up", "looked up"), "product and sum", 144.1, marks=SUMMED_WHERE_LOOKED_UP),
        (("looked up", "looked up"), "two sums", 198.3),
        (("scattered", "scattered"), "two sums", 198.3),
    ],
)
def test_parts_beside_each_other_take_what_the_compiler_says(parts: tuple[str, str], reader: str, compiled_us: float):
    run = simulated(program(parts, reader), *ARGUMENTS, device="tpu_v5e")
    assert 0.85 < 1e6 * run.compute_s / compiled_us < 1.16


@pytest.mark.parametrize(
    ("parts", "reader", "laid"),
    [
        (("given", "given"), "product", NESTED),
        (("given", "looked up"), "two products", BY_PARTS),
        (("scattered", "given"), "two products", BY_PARTS),
        (("given", "computed"), "two products", NESTED),
        (("given", "zero"), "two products", NESTED),
        (("given", "multiplied"), "product and sum", NESTED),
    ],
)
def test_parts_are_written_one_by_one_where_none_is_computed_and_several_ops_read_them(parts, reader, laid):
    run = simulated(program(parts, reader), *ARGUMENTS, device="tpu_v5e")
    assert set(run.program_arrays.values["laid"].tolist()) == {0, laid}


def test_a_convolution_reads_none_of_it():
    def joined(x, w):
        both = jnp.concatenate([jnp.exp(x), x], -1)
        return jax.lax.conv_general_dilated(both, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    run = simulated(joined, f32(32, 16, 16, 64), f32(3, 3, 128, 64), device="tpu_v5e")
    assert not run.program_arrays.values["laid"].any()


@pytest.mark.parametrize("device", ["h100", "cpu_host"])
def test_others_compute_parts_inside_whatever_reads_them(device: str):
    run = simulated(program(("computed", "given"), "two sums"), *ARGUMENTS, device=device)
    assert not run.program_arrays.values["laid"].any()
