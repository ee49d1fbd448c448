"""Does a program that was lowered for another platform run on the devices that are here, or say why not?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.api.jitted.platform import runnable
from autopart.core.table.actions import Tile
from tests.prompt import in_turn

X = np.random.default_rng(0).normal(size=(8, 4, 4)).astype("f4")
BP = ap.ManualPartition({"x": 0}, axis="batch")


def spd(x):
    return x @ x.swapaxes(1, 2) + jnp.eye(4)


PROGRAMS = {
    "inverse": lambda x: jnp.linalg.inv(spd(x)),
    "qr": lambda x: jnp.linalg.qr(x, mode="r"),
    "eigenvalues": lambda x: jnp.linalg.eigvalsh(spd(x)),
    "singular values": lambda x: jnp.linalg.svd(x, compute_uv=False),
    "cholesky": lambda x: jnp.linalg.cholesky(spd(x)),
    "random bits": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
    "draws that follow each other": lambda x: x + sum(map(jax.random.normal, jax.random.split(jax.random.key(0), 6))),
    "approximate top k": lambda x: jax.lax.approx_max_k(x, 2)[0],
    "top k": lambda x: jax.lax.top_k(x, 2)[0],
    "error function": jax.scipy.special.erf,
    "product in groups": lambda x: jax.lax.ragged_dot(x.reshape(32, 4), x[:2], jnp.array([12, 20])).reshape(x.shape),
}


@pytest.mark.parametrize(("name", "device"), in_turn(PROGRAMS, ["tpu_v3", "h100", "cpu_like_no_other"]))
def test_programs_for_other_platforms_run_here(name, device):
    def program(x):
        return PROGRAMS[name](ap.tag("inside", x * 1))

    schedule = [ap.ManualPartition({"inside": 0}, axis="model"), BP]
    device = None if device.startswith("cpu") else device
    lowered = ap.jit(program, ap.Mesh({"batch": 4, "model": 2}, device=device), schedule).lower(X)
    result = lowered.compile()(X)
    np.testing.assert_allclose(result, jax.jit(program)(X), rtol=1e-3, atol=1e-4)
    assert result.sharding.is_equivalent_to(
        jax.sharding.NamedSharding(result.sharding.mesh, lowered.out_shardings.spec), result.ndim
    )


def test_gathers_that_a_schedule_shares_are_shared_in_another_lowering_too():
    schedule = [BP, ap.SharedGathers(50)]
    lowered = ap.jit(PROGRAMS["inverse"], ap.Mesh({"batch": 4}, device="tpu_v3"), schedule).lower(X)
    np.testing.assert_allclose(lowered.compile()(X), jax.jit(PROGRAMS["inverse"])(X), rtol=1e-3, atol=1e-4)


def results_of(program, kind):
    """The values that ops of a kind leave, as tactics name them."""
    ops = [op for op, spec in enumerate(program.op_spec.tolist()) if program.specs[spec].kind == kind]
    return [f"%{value}" for op in ops for value in range(program.result_ptr[op], program.result_ptr[op + 1])]


@pytest.mark.parametrize("device", ["tpu_v3", "h100"])
@pytest.mark.parametrize("dim", [0, 1, ap.REPLICATED], ids=str)
def test_values_without_names_are_found_in_another_lowering(device, dim):
    def program(x):
        x = jnp.linalg.qr(x + 1)[1] @ x
        return jnp.linalg.inv(spd(x)) @ x + jnp.sin(x)

    mesh = ap.Mesh({"batch": 4, "model": 2}, device=device)
    lowered = ap.jit(program, mesh).lower(X).traced.program
    values = [value for kind in ("sine", "dot_general") for value in results_of(lowered, kind)]
    schedule = [BP, ap.ManualPartition(dict.fromkeys(values, dim), axis="model")]
    np.testing.assert_allclose(ap.jit(program, mesh, schedule)(X), jax.jit(program)(X), rtol=1e-3, atol=1e-3)


def test_a_decision_about_a_value_without_a_name_is_taken_in_another_lowering():
    def program(x):
        return jnp.sin(jnp.linalg.inv(spd(x))) * 2

    mesh = ap.Mesh({"batch": 4}, device="tpu_v3")
    (sine,) = results_of(ap.jit(program, mesh).lower(X).traced.program, "sine")
    lowered = ap.jit(program, mesh, [ap.ManualPartition({sine: 1}, axis="batch")]).lower(X)
    again, scheduled = runnable(lowered.traced, lowered.scheduled, "cpu")
    (sine_here,) = results_of(again.program, "sine")
    assert sine != sine_here
    assert scheduled.actions[0] == Tile(int(sine_here[1:]), 1, "batch")


def test_a_decision_about_what_only_one_platform_has_is_left_out_in_another_lowering():
    mesh = ap.Mesh({"batch": 4}, device="tpu_v3")
    permutation = results_of(ap.jit(PROGRAMS["inverse"], mesh).lower(X).traced.program, "custom_call")[2]
    lowered = ap.jit(PROGRAMS["inverse"], mesh, [ap.ManualPartition({permutation: 0}, axis="batch")]).lower(X)
    _, scheduled = runnable(lowered.traced, lowered.scheduled, "cpu")
    assert len(lowered.scheduled.actions) > len(scheduled.actions)
    np.testing.assert_allclose(lowered.compile()(X), jax.jit(PROGRAMS["inverse"])(X), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("device", ["h100", "tpu_v5p"])
@pytest.mark.parametrize("schedule", ["Megatron(model)", "MegatronSP(model)", "DP(data)+MegatronSP(model)"])
def test_named_schedules_beside_products_in_groups_run_here(device, schedule):
    mesh = ap.Mesh({"data": 2, "model": 4}, device=device)
    weights = np.random.default_rng(1).normal(size=(2, 4, 16, 16)).astype("f4") / 4

    def step(w, x):
        def loss(w):
            h = x
            for dense, groups in ((w[0], w[1]), (w[1], w[0])):
                h = h + jax.nn.gelu(h @ dense[0]) @ dense[1]
                h = h + jax.lax.ragged_dot(h, groups, jnp.array([8, 4, 12, 8]))
            return jnp.mean(h**2)

        return w - 0.1 * jax.grad(loss)(w)

    rows = X.reshape(-1, 16)[:8].repeat(4, 0)
    lowered = ap.jit(step, mesh, [ap.Parallelism(schedule)], donate_argnums=0).lower(weights, rows)
    np.testing.assert_allclose(lowered.compile()(weights, rows), jax.jit(step)(weights, rows), rtol=1e-3, atol=1e-4)


def by_platform(x):
    return jax.lax.platform_dependent(x, cpu=lambda t: t * 2, tpu=lambda t: t * 3, default=lambda t: t * 5)


def exported(x):
    platforms = ("cpu", "cuda", "tpu")
    return jax.export.export(jax.jit(by_platform), platforms=platforms)(jax.typeof(x)).call(x)


CHOICES = {
    "at the top": by_platform,
    "in a loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, t: by_platform(t), x),
    "in a gradient": jax.grad(lambda x: (by_platform(x) ** 2).sum()),
    "in an exported function": exported,
}


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("device", ["tpu_v3", "h100"])
def test_a_choice_by_platform_is_made_for_the_devices_that_are_here(name, device):
    fun = CHOICES[name]
    whole, lowered = jax.jit(fun)(X), ap.jit(fun, ap.Mesh({"batch": 4}, device=device), [BP]).lower(X)
    found = lowered.compile()(X)
    np.testing.assert_array_equal(found, whole)
    np.testing.assert_array_equal(lowered.interpret(X), whole)
    assert found.sharding.spec == lowered.out_shardings.spec != jax.sharding.PartitionSpec()


def test_a_choice_without_a_branch_for_the_devices_is_refused_with_its_line():
    step = ap.jit(
        lambda x: jax.lax.platform_dependent(x, tpu=jnp.sin, cuda=jnp.cos), ap.Mesh({"batch": 4}, device="h100")
    )
    with pytest.raises(
        ap.CallError,
        match=r"lowered for cuda, and the devices are cpu[\s\S]*platform_dependent .*test_platforms.py:\d+",
    ):
        step(X)


def test_a_choice_that_two_platforms_make_alike_leaves_the_program_as_it_is():
    traced = ap.jit(lambda x: jnp.diag(x[0]), ap.Mesh({"batch": 4}, device="tpu_v3")).lower(X).traced
    assert traced.choices
    assert not any(choice.differs("tpu", "cpu") for choice in traced.choices)


@pytest.mark.parametrize(
    ("target", "platform"),
    [("LuDecomposition", "tpu"), ("tpu_custom_call", "tpu"), ("cusolver_geqrf_ffi", "cuda"), ("hipblas_x", "rocm")],
)
def test_a_file_that_calls_a_library_that_is_not_here_is_refused_when_it_is_compiled(tmp_path, target, platform):
    path = tmp_path / "call.mlir"
    path.write_text(
        f"""func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
        %0 = stablehlo.custom_call @{target}(%a) : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32> }}"""
    )
    lowered = ap.jit(ap.load(path), ap.Mesh({"batch": 4})).lower()
    with pytest.raises(ap.CallError, match=f"lowered for {platform}, and the devices are cpu"):
        lowered.compile()


def test_a_file_with_an_op_that_does_not_run_here_is_refused_when_it_is_compiled(tmp_path):
    (path := tmp_path / "call.mlir").write_text(
        """func.func @main(%a: tensor<8x4xf32>, %b: tensor<2x4x4xf32>, %n: tensor<2xi32>) -> tensor<8x4xf32> {
        %0 = "chlo.ragged_dot"(%a, %b, %n) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<
          lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0],
          rhs_group_dimensions = [0]>}> : (tensor<8x4xf32>, tensor<2x4x4xf32>, tensor<2xi32>) -> tensor<8x4xf32>
        return %0 : tensor<8x4xf32> }"""
    )
    lowered = ap.jit(ap.load(path), ap.Mesh({"batch": 4})).lower()
    with pytest.raises(
        ap.CallError, match=r"lowered for tpu or cuda or rocm, and the devices are cpu[\s\S]*ragged_dot"
    ):
        lowered.compile()
