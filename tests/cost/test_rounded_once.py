"""Is what a product's kernel ends with left in bf16, where products alone read it?

Each as libtpu 0.0.51 has it on v5e, which no test compiles again.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tests.cost.programs import between, f32, nodes_of, simulated

N = 2048
SQUARE = 4.0 * N * N
ARGS = (f32(N, N), f32(N, N), f32(N), f32(N, N))

CASES = {
    "a bias": (lambda x, w, b, k: (x @ w + b) @ k, "add"),
    "a bias and a factor": (lambda x, w, b, k: ((x @ w + b) * 0.5) @ k, "multiply"),
    "a bias, read twice": (lambda x, w, b, k: (lambda q: (q @ k, k @ q))(x @ w + b), "add"),
    "relu": (lambda x, w, b, k: jax.nn.relu(x @ w) @ k, "maximum"),
    "tanh": (lambda x, w, b, k: jnp.tanh(x @ w) @ k, "tanh"),
    "gelu, read twice": (lambda x, w, b, k: (lambda g: (g @ k, k @ g))(jax.nn.gelu(x @ w + b)), "multiply"),
    "gelu": (lambda x, w, b, k: jax.nn.gelu(x @ w + b) @ k, None),
    "read by a sum": (lambda x, w, b, k: (lambda q: (q @ k, q.sum(0)))(x @ w + b), None),
    "exactly": (lambda x, w, b, k: jnp.dot(x @ w + b, k, precision="highest"), None),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_products_kernel_leaves_for_products_is_rounded_there(case):
    function, ends_with = CASES[case]
    found = simulated(function, *ARGS, device="tpu_v3")
    product = nodes_of(found, "dot_general")[0]
    if ends_with is None:
        assert between(found) >= SQUARE
    else:
        assert found.leader[nodes_of(found, ends_with)[-1]] == product
        assert between(found) == pytest.approx(SQUARE / 2, rel=0.01)


def test_heads_of_images_along_the_lanes_keep_copies_with_full_lanes():
    """CLIP's towers with 256 images a device, heads of 64: bf16[256,64,12,64] takes 25 MB, a copy 50."""

    def attention(x, w, keys):
        queries = jnp.einsum("bsm,mhd->bshd", x, w) + 1.0
        scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys)
        return jax.nn.softmax(scores), jnp.einsum("bhqk,bqhd->bkhd", scores, queries)

    def most(images):
        given = f32(images, 64, 256), f32(256, 4, 64), f32(images, 64, 4, 64)
        run = simulated(attention, *given, device="tpu_v5e")
        (queries,) = nodes_of(run, "add")
        return float(run.buffers.bytes[run.graph.write_buffer[run.graph.write_ptr[queries]]]) / images

    assert most(4096) == 2 * 2.0 * 64 * 256, "268 MB, more than the chip has"
