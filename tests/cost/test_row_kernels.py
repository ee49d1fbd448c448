"""Do kernels of whole rows write what is shifted once, and wait for nothing?

Each as libtpu 0.0.51 has it on v5e, which no test compiles again.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from tests.cost.programs import f32, lowered, nodes_of, simulated

X, W = f32(4, 256, 512), f32(4096, 512)
US = 1e-6


def log_probabilities(x, w):
    return jax.nn.log_softmax(x @ w.T)


def cross_entropy(x, w):
    return (jax.nn.log_softmax(x @ w.T) * jax.nn.one_hot(jnp.zeros(x.shape[:-1], jnp.int32), len(w))).sum()


def by_logsumexp(x, w):
    return jax.nn.logsumexp(x @ w.T, -1).sum()


def rounded(x, w):
    return jax.nn.log_softmax((x @ w.T).astype(jnp.bfloat16).astype(jnp.float32))


def norm(x, w):
    y = x @ w.T
    return y - y.mean(-1, keepdims=True)


def of_heads(x, w):
    return jax.nn.log_softmax(jnp.einsum("bqd,bkd->bqk", x, x))


def kernels_of_rows(function, *args) -> int:
    run = simulated(function, *args, device="tpu_v5e")
    kernels = {int(node) for node in run.leader[nodes_of(run, "subtract", "reduce")]}
    return sum(run.program_arrays.ops["of_rows"][run.graph.nodes["subject"][node]] >= 0 for node in kernels)


@pytest.mark.parametrize(
    ("function", "args", "kernels"),
    [
        (log_probabilities, (X, W), 2),
        (jax.grad(cross_entropy), (X, W), 1),
        (log_probabilities, (f32(1024, 512), W), 0),
        (log_probabilities, (X, f32(10_000, 512)), 0),
        (by_logsumexp, (X, W), 0),
        (rounded, (X, W), 1),
        (norm, (X, W), 0),
        (of_heads, (X, W), 0),
    ],
)
def test_softmaxes_over_short_rows_of_three_dims_or_more_have_kernels_of_their_own(function, args, kernels):
    assert kernels_of_rows(function, *args) == kernels


def test_what_is_shifted_is_written_once_and_the_sum_of_its_exponentials_joins():
    run = simulated(jax.grad(cross_entropy, (0, 1)), X, W, device="tpu_v5e")
    shifted, *_ = nodes_of(run, "subtract")
    product = nodes_of(run, "dot_general")[0]
    joined = [node for node in nodes_of(run, "reduce") if run.leader[node] == shifted]
    assert joined
    assert run.slot[shifted] > run.slot[product]
    assert run.node_s[shifted] <= 12 * US, "6.0 by the compiler; 51 where no kernel has whole rows"


def test_without_a_backward_pass_the_second_kernel_is_of_rows_too():
    run = simulated(lambda x, w: log_probabilities(x, w).sum(1), X, W, device="tpu_v5e")
    assert sum(run.node_s[nodes_of(run, "subtract")]) <= 20 * US, "3.3, and 1.8 on the chip, by the compiler"


def test_rows_that_are_tiled_have_no_such_kernels():
    mesh = ap.Mesh({"x": 2}, device="tpu_v5e")
    vocabulary = ap.ManualPartition({"w": 0}, axis="x", name="vocabulary")
    run = lowered(jax.grad(cross_entropy), X, W, mesh=mesh, schedule=[vocabulary]).estimate.simulation
    assert max(run.node_s[nodes_of(run, "subtract", "reduce")]) > 12 * US, "25.9 for all that is left of each row"


def test_what_is_left_of_rows_is_not_followed_round_a_loop():
    def doubled(x):
        return jax.lax.fori_loop(0, 3, lambda i, rows: rows * 2 + 1, (x * 2).max(-1))

    assert kernels_of_rows(doubled, f32(4, 8, 16)) == 0
