"""What holds for a plain jax function, from its arguments to its results?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.api.kernels.twin import twin_factors, twin_work
from autopart.costmodel.hardware.devices import device
from tests.kernels.programs import MESH, arrays, close, kernels, plain_attention, plain_norm, rms_norm

S = jax.ShapeDtypeStruct


def rule(twin, *shapes):
    def flat(*x):
        return jax.tree.leaves(twin(*x))

    return str(twin_factors(flat, flat, [S(shape, "float32") for shape in shapes])[0])


@pytest.mark.parametrize(
    ("twin", "shapes", "expected"),
    [
        (jnp.matmul, [(4, 8), (8, 6)], "f0 f1, f1 f2 -> f0 f2; tile f0=4 f2=6; reduce f1:sum=8"),
        (plain_norm, [(4, 8, 16), (16,)], "f0 f1 _, _ -> f0 f1 _; tile f0=4 f1=8; reduce -"),
        (lambda x: x.mean(0), [(4, 8)], "_ f0 -> f0; tile f0=8; reduce -"),
        (lambda x: x.max(0), [(4, 8)], "f0 f1 -> f1; tile f1=8; reduce f0:max=4"),
        (lambda x: jnp.cumsum(x, 0), [(4, 8)], "_ f0 -> _ f0; tile f0=8; reduce -"),
        (lambda x: x.reshape(-1, x.shape[-1]), [(2, 3, 4)], "f0 _ f1 -> f0 f1; tile f0=2 f1=4; reduce -"),
    ],
)
def test_factors_are_those_of_which_slices_are_the_twin_of_slices(twin, shapes, expected):
    assert rule(twin, *shapes) == expected


def test_queries_are_sliced_unless_a_mask_asks_for_their_place():
    shapes = [(4, 8, 16, 32), (4, 2, 16, 32), (4, 2, 16, 32)]
    plain = rule(lambda q, k, v: plain_attention(q, k, v, causal=False), *shapes)
    assert plain == "f0 f1 f2 _, f0 f1 _ _, f0 f1 _ f3 -> f0 f1 f2 f3; tile f0=4 f1=2 f2=16 f3=32; reduce -"
    assert rule(plain_attention, *shapes).endswith("tile f0=4 f1=2 f2=32; reduce -")


def test_a_twin_says_the_flop():
    x = S((4, 8), "float32"), S((8, 6), "float32")
    assert twin_work(lambda a, b: [a @ b], x) == (2 * 4 * 8 * 6, 0)
    groups = S((64, 32), "float32"), S((4, 32, 16), "float32"), S((4,), "int32")
    assert twin_work(lambda a, b, sizes: [jax.lax.ragged_dot(a, b, sizes)], groups) == (2 * 64 * 32 * 16, 0)


def test_a_kernel_is_sliced_as_its_twin_and_equal_to_it():
    norm = ap.kernel(rms_norm, like=plain_norm)
    x, w = arrays((8, 6, 16), (16,))
    tactics = [ap.ManualPartition({"x": 0}, axis="d"), ap.ManualPartition({"x": 1}, axis="m")]
    step = ap.jit(lambda x, w: norm(x, w), ap.Mesh(MESH), tactics)
    assert not step.lower(x, w).program.collectives()
    close(step(x, w), plain_norm(x, w))
    close(jax.jit(norm)(x, w), plain_norm(x, w))
    close(norm(x, w), plain_norm(x, w))


def test_a_kernel_that_cannot_be_traced_for_slices_is_not_cut_so_often():
    def in_blocks(x):
        if x.shape[0] % 4:
            raise ValueError("rows in fours")
        return rms_norm(x, jnp.ones(16), rows=4)

    norm = ap.kernel(in_blocks, like=lambda x: plain_norm(x, jnp.ones(16)))
    found = kernels(ap.jit(lambda x: norm(x), ap.Mesh(MESH)).lower(S((24, 16), "float32")))
    assert "tile f0=6" in found["in_blocks"]["rule"]


def test_where_the_kernel_cannot_run_the_twin_does():
    elsewhere = ap.kernel(lambda x: jax.ffi.ffi_call("nobody", S(x.shape, x.dtype))(x), like=jnp.sin, platforms=["tpu"])
    (x,) = arrays((8, 4))
    planned, here = (ap.jit(lambda x: elsewhere(x), ap.Mesh(MESH, device=d)) for d in ("tpu_v5e", "h100"))
    close(planned(x), jnp.sin(x))
    assert not planned.lower(x).metadata.remarks
    (remark,) = here.lower(x).metadata.remarks
    assert "its twin in plain jax runs in its place on cuda, since it is said to run on tpu" in remark


def test_a_kernel_moves_its_operands_and_results_once_and_nothing_of_its_twin():
    def twin(a, b):
        return jnp.where(a @ b.T > 0, 1.0, 0.0) @ b

    x = S((4096, 4096), "float32")
    kernel = ap.kernel(lambda a, b: a + b, like=twin, flop=0)
    estimate = ap.jit(lambda a, b: kernel(a, b), ap.Mesh(MESH, device="tpu_v5e")).lower(x, x).estimate
    chip = device("tpu_v5e")
    moved = 3 * 4 * 4096**2
    assert estimate.peak_bytes == moved
    assert estimate.step_s == pytest.approx(moved / (chip.hbm_bytes_per_s * chip.hbm_efficiency), rel=0.01)


def test_a_kernel_that_asks_for_its_device_when_it_is_traced_is_planned_as_its_twin():
    def elsewhere(q, k, v, kind):
        raise NotImplementedError(f"no {kind} on cpu")

    def twin(q, k, v, kind):
        return plain_attention(q, k, v)

    attend = ap.kernel(elsewhere, like=twin, platforms=["cuda"])
    gradient = jax.grad(lambda q, k, v: (attend(q, k, v, "kind") ** 2).sum(), argnums=(0, 1, 2))
    qkv = arrays(*[(4, 4, 8, 16)] * 3)
    step = ap.jit(
        gradient, ap.Mesh(MESH, device="h100"), [ap.ManualPartition({"q": 0}, "d"), ap.ManualPartition({"q": 1}, "m")]
    )
    low = step.lower(*qkv)
    assert set(kernels(low)) == {"elsewhere", "elsewhere backward"}
    assert not low.program.collectives()
    close(step(*qkv), jax.grad(lambda q, k, v: (plain_attention(q, k, v) ** 2).sum(), argnums=(0, 1, 2))(*qkv))


def test_where_nothing_runs_the_error_says_so():
    elsewhere = ap.kernel(lambda x: x + 1, rule="a -> a", platforms=["tpu"], name="elsewhere")
    with pytest.raises(ap.CallError, match=r"the kernel elsewhere cannot run on cpu"):
        ap.jit(lambda x: elsewhere(x), ap.Mesh({"d": 2}, device="tpu_v5e"))(jnp.ones(4))


def test_equal_calls_of_a_kernel_are_one_op_of_the_program():
    norm = ap.kernel(rms_norm, like=plain_norm)

    def layers(x, w):
        return norm(norm(norm(x, w), w), w)

    program = ap.jit(layers, ap.Mesh(MESH)).lower(*arrays((8, 16), (16,))).traced.program
    assert len(program.source.bodies) == 1


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: ap.kernel(jnp.sin), "neither a twin nor a rule"),
        (lambda: ap.kernel(jnp.sin, rule="a -> a", gradient="twin"), "the gradient of a twin"),
        (lambda: ap.kernel(jnp.sin, like=jnp.sum)(jnp.ones(4)), "leave different arrays"),
        (lambda: ap.kernel(lambda x, y: x, rule="a -> a")(jnp.ones(4), {1}), "unhashable"),
        (lambda: ap.kernel(lambda x, k: x, rule="a -> a")(jnp.ones(4), jax.random.key(0)), "a key of random numbers"),
        (lambda: ap.kernel(jnp.sin, rule="a b -> a b")(jnp.ones(4)), "has 2 names for an array of shape"),
    ],
)
def test_what_is_no_kernel_is_refused_with_the_reason(make, why):
    with pytest.raises(ap.ArgumentError, match=why):
        make()
