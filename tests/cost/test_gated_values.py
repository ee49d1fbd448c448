"""Is what is computed of several slices of one array written, or computed inside the products that read it?

Microseconds as libtpu 0.0.51 has them on v5e, which no test compiles again.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from tests.cost.programs import f32, simulated

IMAGES, WEIGHT, SQUARE = f32(8, 4096, 128), f32(3, 128, 256), f32(128, 128)


def _convolved(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, w, (1,), [(2, 0)], dimension_numbers=("NHC", "HIO", "NHC"))


def _multiplied(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w[0])


def gated(made: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[..., list[jax.Array]]:
    def program(x: jax.Array, w: jax.Array, *v: jax.Array) -> list[jax.Array]:
        first, second = jnp.split(made(x, w), 2, -1)
        gate = jnp.tanh(first) * jax.nn.sigmoid(second)
        return [jnp.square(gate @ each).sum() for each in v]

    return program


@pytest.mark.parametrize(
    ("made", "products", "compiled_us", "is_written"),
    [
        (_convolved, 1, None, True),
        (_convolved, 2, None, True),
        (_multiplied, 2, 74.5, False),
        (_multiplied, 3, 105.2, False),
        (_multiplied, 4, 205.9, True),
    ],
)
def test_slices_are_computed_in_few_products_and_never_those_of_a_convolution(
    made: Callable[[jax.Array, jax.Array], jax.Array], products: int, compiled_us: float | None, is_written: bool
):
    run = simulated(gated(made), IMAGES, WEIGHT, *[SQUARE] * products, device="tpu_v5e")
    program, values = run.local.program, run.program_arrays.values
    gates = [op for op in range(program.op_count) if program.spec(op).kind == "multiply"]
    assert values["is_written"][program.result_ptr[gates]].any() == is_written
    if compiled_us is not None:
        assert 0.8 < 1e6 * run.compute_s / compiled_us < 1.25
