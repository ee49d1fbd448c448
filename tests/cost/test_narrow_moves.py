"""Which redistributions move f32 as bf16, as XLA:TPU does: those whose result only default-precision matmuls read?

Checked with libtpu 0.0.51 on v5e:2x4 and v3:4x4, each of these programs as `shard_map`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.costmodel import estimate
from autopart.costmodel.hardware.devices import XLA_TPU
from tests.cost.programs import f32, lowered, moves, plain_device, simulated

N = 256
WAYS = 4
FSDP = (ap.ManualPartition({"x": 0}, axis="x", name="BP"), ap.ManualPartition({"w": 0}, axis="x", name="FSDP"))


def moved_bytes(function, dtype="f4", tpu=True):
    """Bytes of the gathered parameter, and of the gather as estimates list it."""
    around = {"around_matmul": XLA_TPU} if tpu else {}
    w = jax.ShapeDtypeStruct((N, N), dtype)
    found = simulated(function, f32(N, N), w, ways=WAYS, schedule=FSDP, device=plain_device(f"narrows_{tpu}", **around))
    (gather,) = [step for plan in found.plans[1] for step in plan.steps if step.kind == "all_gather"]
    (held,) = found.arrays.moves["moved_bytes"].tolist()
    return held, gather.bytes


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x @ w,
        lambda x, w: x @ w.T,
        lambda x, w: x @ w.reshape(2, N // 2, N).reshape(N, N),
        lambda x, w: jnp.matmul(x, w, precision="default"),
        lambda x, w: jnp.concatenate([x, x], axis=1) @ jnp.concatenate([w, w]),
    ],
)
def test_what_only_matmuls_read_is_moved_as_bf16(function):
    assert moved_bytes(function) == (2.0 * N * N, 2.0 * N * N)
    assert moved_bytes(function, tpu=False) == (4.0 * N * N, 4.0 * N * N)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: jnp.matmul(x, w, precision="highest"),
        lambda x, w: jnp.sin(x) + jnp.cumsum(w, axis=0)[0],
        lambda x, w: jnp.matmul(jnp.concatenate([x, x], axis=1), jnp.concatenate([w, w]), precision="highest"),
    ],
)
def test_what_more_precision_or_another_op_reads_is_moved_as_it_is(function):
    found = moved_bytes(function)
    assert found == (4.0 * N * N, 4.0 * N * N)


def test_a_bf16_parameter_is_moved_as_it_is():
    assert moved_bytes(lambda x, w: x.astype("bfloat16") @ w, "bfloat16") == (2.0 * N * N, 2.0 * N * N)


def test_an_argument_is_rounded_before_its_gather_and_that_takes_time():
    around, found = {"around_matmul": XLA_TPU}, {}
    for precision in ("default", "highest"):
        run = simulated(
            lambda x, w, precision=precision: jnp.matmul(x, w, precision=precision), f32(N, N), f32(N, N),
            ways=WAYS, schedule=FSDP, device=plain_device("rounds", strided_collectives=True, **around),
        )  # fmt: skip
        (move,) = moves(run)
        found[precision] = run.node_hbm_bytes[move]
    assert found == {"default": 1.5 * 4 * N * N / WAYS, "highest": 0.0}


@pytest.mark.parametrize(("replicas", "rounded"), [(1, [1, 1]), (2, [1, 0])])
def test_what_is_gathered_again_is_rounded_again_only_behind_a_barrier(replicas, rounded):
    """Groups of devices have another order where there are several: no barrier is needed then."""
    device = plain_device("rounds again", strided_collectives=True, around_matmul=XLA_TPU)
    mesh = ap.Mesh({"x": WAYS, "y": replicas}, device=device)
    low = lowered(lambda x, w: jnp.tanh(x @ w) @ w, f32(N, N), f32(N, N), mesh=mesh, schedule=FSDP)
    run = estimate(low.program).simulation
    once = 1.5 * 4 * N * N / WAYS
    assert [run.node_hbm_bytes[move] / once for move in moves(run)] == rounded
