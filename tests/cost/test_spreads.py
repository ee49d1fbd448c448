"""How long does it take to put one number along each row, as a norm does with its means?

Cycles of `(x - m) r + b`, doubled, over rows in bf16, each row with its own m, r and b in f32: libtpu 0.0.51.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autopart.costmodel.compiled.layout_assignment.assignment import LayoutAssignment
from tests.cost.programs import f32, simulated

CLOCK_HZ = {"tpu_v3": 0.94e9, "tpu_v4": 1.05e9, "tpu_v5e": 1.5e9, "tpu_v5p": 1.75e9, "tpu_v6e": 1.75e9}


def spread(x, m, r):
    wide = (x.astype(jnp.float32) - m[..., None]) * r[..., None] + (m * r)[..., None]
    return wide.astype(jnp.bfloat16) * 2


def seconds(rows, features, device):
    x = jax.ShapeDtypeStruct((rows, features), jnp.bfloat16)
    return simulated(spread, x, f32(rows), f32(rows), device=device).compute_s


@pytest.mark.parametrize(
    ("device", "cycles"),
    [("tpu_v3", 186535), ("tpu_v4", 187620), ("tpu_v5e", 170151), ("tpu_v5p", 87766), ("tpu_v6e", 168088)],
)
def test_a_number_for_each_row_takes_as_long_as_the_compiler_says(device, cycles):
    """50,176 rows of 128 features."""
    assert seconds(50176, 128, device) * CLOCK_HZ[device] == pytest.approx(cycles, rel=0.2)


def test_long_rows_take_less_for_the_same_elements():
    """On v5e the compiler counts 126,703 cycles for 8192 rows of 768 features, in all 2 % less elements."""
    assert seconds(8192, 768, "tpu_v5e") < 0.8 * seconds(50176, 128, "tpu_v5e")


def test_nothing_is_spread_where_the_numbers_lie_along_the_rows_already():
    def scaled(x, m):
        return x * m

    rows, columns = (
        simulated(scaled, f32(65536, 128), numbers, device="tpu_v5e") for numbers in (f32(65536, 1), f32(1, 128))
    )
    assert rows.graph.nodes["vector_flop"].sum() > 10 * columns.graph.nodes["vector_flop"].sum()


def weights(q, k):
    return jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))


def attention(q, k):
    """Moves dims of one element between the scores and their softmax."""
    return jax.nn.dot_product_attention(q, k, k)


@pytest.mark.parametrize("scored", [weights, attention])
def test_no_number_of_a_query_is_spread_along_its_keys(scored):
    def of_rows(x):
        return jax.nn.softmax(x)

    array = jax.ShapeDtypeStruct((8, 512, 12, 64), jnp.bfloat16)
    scores = simulated(scored, array, array, device="tpu_v5e")
    rows = simulated(of_rows, jax.ShapeDtypeStruct((8, 12, 512, 512), jnp.bfloat16), device="tpu_v5e")
    assert _along_lanes(rows).any()
    assert not _along_lanes(scores).any()


def _along_lanes(run):
    sizes = np.array(run.local.mesh.axis_sizes, np.int64)
    found = LayoutAssignment.of(run.local.program)(run.local.native, sizes, (8, 128))
    return found.along_lanes & run.program_arrays.ops["spreads"]


def test_short_rows_do_not_lie_along_the_lanes():
    """The compiler lays 512 channels along the lanes, not 16 states: 663,584 cycles for 16 times 4 million."""

    def states(step, b):
        return step[..., None] * b[:, None, :] + 1

    short, long = (
        simulated(states, f32(8192, 512), f32(8192, n), device="tpu_v5e").graph.nodes["vector_flop"].sum() / n
        for n in (16, 128)
    )
    assert short < 0.2 * long
