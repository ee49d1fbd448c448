"""What does the TPU compiler write of a step in bf16 whose softmaxes are in f32?"""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import pytest

from experiments.mixed_precision.__main__ import COMPILER, NEAR, row
from experiments.mixed_precision.programs import pairs
from tests.cost.programs import f32, nodes_of, simulated

TOKENS, HEADS, FEATURES = 1024, 4, 64


def bf16(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def attended(softmax_in, device="tpu_v5e"):
    def attend(q, k, v):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(softmax_in) / 8
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(q.dtype), v)

    arrays = [bf16(32, TOKENS, HEADS, FEATURES)] * 4
    return simulated(lambda q, k, v, d: jax.vjp(attend, q, k, v)[1](d), *arrays, device=device)


def kernels_of(found, kind):
    """How many kernels have an op of this kind as their root and join no other."""
    return sum(int(found.leader[k]) == k for k in nodes_of(found, kind))


def test_exponentials_in_f32_of_scores_in_bf16_are_made_in_the_kernel_of_the_scores():
    found = attended(jnp.float32)
    assert len(nodes_of(found, "exponential")) == 1
    assert kernels_of(found, "exponential") == 0


@pytest.mark.parametrize(("softmax_in", "device"), [(jnp.bfloat16, "tpu_v5e"), (jnp.float32, "h100")])
def test_readers_compute_exponentials_of_other_scores(softmax_in, device):
    assert not nodes_of(attended(softmax_in, device), "exponential")


def test_exponentials_that_are_kept_take_twice_the_memory_of_scores_in_bf16():
    wide, narrow = attended(jnp.float32), attended(jnp.bfloat16)
    scores_bytes = 2.0 * 32 * HEADS * TOKENS**2
    assert wide.peak_bytes - narrow.peak_bytes == pytest.approx(2 * scores_bytes, rel=0.05)


def looked_up(logits, labels):
    def loss(logits):
        wide = logits.astype(jnp.float32)
        return (jax.nn.logsumexp(wide, -1) - jnp.take_along_axis(wide, labels[:, None], -1)[:, 0]).mean()

    return jax.grad(loss)(logits * 2)


def test_logits_that_are_widened_are_written_for_the_look_up_and_read_as_they_are_by_others():
    logits, labels = bf16(2048, 8192), jax.ShapeDtypeStruct((2048,), jnp.int32)
    found = simulated(looked_up, logits, labels, device="tpu_v5e")
    (widened,) = nodes_of(found, "convert")
    readers = [
        k
        for k in range(len(found.graph.nodes))
        for i in range(found.graph.read_ptr[k], found.graph.read_ptr[k + 1])
        if found.graph.reads["read_buffer"][i] == found.graph.write_buffer[found.graph.write_ptr[widened]]
    ]
    assert readers == nodes_of(found, "gather")


def test_columns_of_heads_fill_tiles_together_on_v5e_and_each_alone_on_v3():
    def ratio(device):
        def heads(x, w):
            return jnp.einsum("md,dhe->mhe", x, w)

        x = f32(4096, 4096)
        fused, apart = (simulated(heads, x, f32(4096, *sizes), device=device) for sizes in ((32, 128), (64, 64)))
        return apart.compute_s / fused.compute_s

    assert ratio("tpu_v5e") == pytest.approx(1.0, rel=0.02)
    assert ratio("tpu_v3") == pytest.approx(2.0, rel=0.1)


KEPT = json.loads(COMPILER.read_text())


@pytest.fixture(scope="module")
def rows():
    return [row(pair, KEPT[pair.name]) for pair in pairs() if pair.name in KEPT]


@pytest.mark.slow
def test_models_in_bf16_compute_about_as_long_as_the_compiler_says(rows):
    assert [found["pair"] for found in rows if not NEAR[0] <= found["compute_ratio"] <= NEAR[1]] == []


@pytest.mark.slow
def test_models_in_bf16_take_about_the_memory_that_it_says(rows):
    """But three (0.80 to 0.84): hidden features, 39 MB, that the compiler leaves in HBM though there is room on the
    chip, and gradients of such that it holds, 19 and 20 MB, until their products with weights hide a collective."""
    off = [found["pair"] for found in rows if not 0.85 <= found["peak_ratio"] <= 1.4]
    assert off == ["mixer FSDP+TP", "clip FSDP+TP", "dit FSDP+TP"]
