"""Is cuDNN's attention planned without a GPU, divided by batch and heads, and equal to plain attention?"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.core.doors.jax_private import cudnn_assumed
from tests.kernels.programs import MESH, arrays, close, kernels

H100 = ap.Mesh(MESH, device="h100")
SCHEDULE = [ap.ManualPartition({"q": 0}, axis="d"), ap.ManualPartition({"q": 2}, axis="m")]


def loss(implementation, **how):
    def attend(q, k, v, *rest):
        made = jax.nn.dot_product_attention(q, k, v, *rest, implementation=implementation, **how)
        return (made.astype(jnp.float32) ** 2).sum()

    return attend


def step(count, **how):
    return jax.value_and_grad(loss("cudnn", **how), argnums=tuple(range(count)))


@pytest.fixture(scope="module")
def qkv():
    return arrays((4, 64, 8, 32), (4, 64, 4, 32), (4, 64, 4, 32), dtype="bfloat16")


def test_batch_and_heads_are_divided_forward_and_backward_and_nothing_is_moved(qkv):
    partitioned = ap.jit(step(3, is_causal=True), H100, SCHEDULE)
    low = partitioned.lower(*qkv)
    assert min(low.metadata.flop_divided.values()) > 0.99
    assert low.program.collectives() == {"all_reduce": 1}
    assert set(kernels(low)) == {"cudnn attention", "cudnn attention backward"}
    plain = jax.value_and_grad(loss("xla", is_causal=True), argnums=(0, 1, 2))
    close(partitioned(*qkv), jax.jit(plain)(*qkv), tolerance=2e-2)


def test_the_gradient_of_a_bias_for_all_examples_is_a_sum(qkv):
    (bias,) = arrays((1, 8, 64, 64), dtype="bfloat16")
    partitioned = ap.jit(step(4), H100, SCHEDULE)
    low = partitioned.lower(*qkv, bias)
    assert low.program.collectives() == {"all_reduce": 2}
    plain = jax.value_and_grad(loss("xla"), argnums=(0, 1, 2, 3))
    close(partitioned(*qkv, bias), jax.jit(plain)(*qkv, bias), tolerance=2e-2)


def test_lengths_of_sequences_are_sliced_with_the_batch(qkv):
    lengths = jnp.array([64, 32, 16, 48], jnp.int32)

    def padded(implementation, q, k, v, lengths):
        how = {"query_seq_lengths": lengths, "key_value_seq_lengths": lengths, "local_window_size": (8, 0)}
        made = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=implementation, **how)
        return made.astype(jnp.float32).sum(axis=(1, 3))

    partitioned = ap.jit(lambda q, k, v, n: padded("cudnn", q, k, v, n), H100, SCHEDULE)
    assert not partitioned.lower(*qkv, lengths).program.collectives()
    close(partitioned(*qkv, lengths), jax.jit(lambda *a: padded("xla", *a))(*qkv, lengths), tolerance=2e-2)


def test_the_kernel_of_a_slice_is_cudnns(qkv):
    low = ap.jit(loss("cudnn"), H100).lower(*qkv)
    (body,) = low.traced.program.source.bodies
    shapes = [(2, 64, 4, 32), (2, 64, 2, 32), (2, 64, 2, 32), *[(0,)] * 7]
    slices = body.local_avals(shapes)
    text = jax.jit(body.kernel(slices)).trace(*slices).lower(lowering_platforms=("cuda",)).as_text()
    assert re.search(r"@__cudnn\$fmhaSoftmax.*tensor<2x4x64x32xbf16>", text)


def test_on_a_mesh_of_tpus_the_error_says_what_is_legal(qkv):
    with pytest.raises(ap.ProgramError, match=r"(?s)cuDNN is not detected.*for a mesh of GPUs"):
        ap.jit(loss("cudnn"), ap.Mesh(MESH, device="tpu_v5e")).lower(*qkv)


@pytest.mark.parametrize(
    ("how", "seen"),
    [
        ({}, 64 * 64),
        ({"is_causal": True}, 64 * 65 / 2),
        ({"is_causal": True, "local_window_size": (7, 0)}, 64 * 8 - 28),
    ],
)
def test_flop_are_those_of_the_scores_that_a_mask_leaves(qkv, how, seen):
    found = kernels(ap.jit(step(3, **how), H100).lower(*qkv))
    assert found["cudnn attention"]["matrix_flop"] == 4 * 8 * seen * 2 * 64
    assert found["cudnn attention backward"]["matrix_flop"] == 4 * 8 * seen * 5 * 64


def test_threads_that_assume_cudnn_leave_others_as_they_were(qkv):
    from jax._src.cudnn import fused_attention_stablehlo as attention

    def traced(_):
        return ap.jit(loss("cudnn"), H100).lower(*qkv).program.collectives()

    with ThreadPoolExecutor(4) as threads:
        assert not any(threads.map(traced, range(8)))
    with cudnn_assumed(), ThreadPoolExecutor(1) as other:
        assert attention.check_cudnn_version() > 0
        with pytest.raises(RuntimeError, match="cuDNN is not detected"):
            other.submit(attention.check_cudnn_version).result()
    with pytest.raises(RuntimeError, match="cuDNN is not detected"):
        attention.check_cudnn_version()
