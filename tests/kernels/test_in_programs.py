"""Do searches, plans, passes and shard_map treat a kernel as any op?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention
from jax.sharding import PartitionSpec as P

import autopart as ap
from tests.kernels.programs import arrays, close, kernels, plain_attention, plain_norm, rms_norm
from tests.kernels.test_models import decoder
from tests.kernels.test_pallas_calls import splash

MESH = ap.Mesh({"d": 4, "m": 2}, device="tpu_v5e")
NORM = ap.kernel(rms_norm, like=plain_norm, gradient="twin", name="rms_norm")
BATCH = ap.ManualPartition({"x": 0}, axis="d")


def loss(params, x, norm=NORM):
    for layer in range(2):
        h = norm(x, params[f"scale{layer}"])
        x = x + jnp.tanh(h @ params[f"up{layer}"]) @ params[f"down{layer}"]
    return (x**2).mean()


def step(params, x):
    value, gradient = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), value


@pytest.fixture(scope="module")
def operands():
    shapes = {f"{name}{layer}": s for layer in range(2) for name, s in (("up", (16, 32)), ("down", (32, 16)))}
    params = dict(zip(shapes, arrays(*shapes.values()), strict=True))
    return {**params, "scale0": jnp.ones(16), "scale1": jnp.ones(16)}, *arrays((16, 6, 16))


@pytest.mark.parametrize(
    "schedule",
    [
        [BATCH],
        [BATCH, ap.ManualPartition({"params/up*": 1}, axis="m")],
        [ap.Microbatch({"x": 0}, 2), BATCH],
        [ap.Recompute(), BATCH],
        [ap.AutomaticPartition(["d", "m"], budget=ap.Budget(60))],
    ],
    ids=["batch", "two axes", "microbatches", "recompute", "search"],
)
def test_a_step_with_kernels_is_the_step_whatever_the_schedule(operands, schedule):
    close(ap.jit(step, MESH, schedule)(*operands), jax.jit(step)(*operands))


def test_a_plan_is_saved_and_applied_and_the_reference_semantics_agree(operands, tmp_path):
    low = ap.jit(step, MESH, [BATCH]).lower(*operands)
    low.plan.save(tmp_path / "plan.json")
    again = ap.jit(step, MESH, ap.Plan.load(tmp_path / "plan.json"))
    assert again.lower(*operands).program.collectives() == low.program.collectives()
    close(low.interpret(*operands), jax.jit(step)(*operands))
    assert "kernel rms_norm" in low.as_text("core")
    assert "kernel rms_norm" in str(low.explain("params/scale0"))


def test_a_scan_over_layers_and_a_shard_map_call_kernels(operands):
    params, x = operands
    stacked = {name: jnp.stack([params[f"{name}0"], params[f"{name}1"]]) for name in ("up", "down", "scale")}

    def layer(x, p):
        return x + jnp.tanh(NORM(x, p["scale"]) @ p["up"]) @ p["down"], None

    def scanned(params, x):
        return (jax.lax.scan(jax.checkpoint(layer), x, params)[0] ** 2).mean()

    found = ap.jit(jax.grad(scanned), MESH, [BATCH])(stacked, x)
    close(found, jax.jit(jax.grad(scanned))(stacked, x))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("d", "m"))
    how = {"mesh": mesh, "in_specs": (P("d"), P()), "out_specs": P("d"), "check_vma": False}
    by_hand = ap.jit(lambda x, w: jax.shard_map(NORM, **how)(x, w) * 2, MESH)
    close(by_hand(x, params["scale0"]), plain_norm(x, params["scale0"]) * 2)


def test_a_pallas_call_in_a_shard_map_over_one_axis_is_sliced_along_the_other(operands):
    params, x = operands
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("d", "m"))
    how = {"mesh": mesh, "axis_names": {"d"}, "in_specs": (P("d"), P()), "out_specs": P("d"), "check_vma": False}
    by_hand = ap.jit(
        lambda x, w: jax.shard_map(rms_norm, **how)(x, w) * 2, MESH, [ap.ManualPartition({"x": 1}, axis="m")]
    )
    assert by_hand.lower(x, params["scale0"]).metadata.flop_divided["m"] > 0.5
    close(by_hand(x, params["scale0"]), plain_norm(x, params["scale0"]) * 2)


def test_stages_of_a_pipeline_run_their_kernels_at_once():
    params, (x,) = dict(zip(("up", "down"), arrays((4, 16, 32), (4, 32, 16)), strict=True)), arrays((16, 6, 16))
    params["scale"] = jnp.ones((4, 16))

    def gradient(params, x):
        def layer(x, p):
            return x + jnp.tanh(NORM(x, p["scale"]) @ p["up"]) @ p["down"], None

        return jax.grad(lambda p: (jax.lax.scan(layer, x, p)[0] ** 2).mean())(params)

    staged = ap.jit(gradient, ap.Mesh({"pipe": 4, "d": 2}), [ap.Pipeline("pipe", 4, {"x": 0}), BATCH])
    low = staged.lower(params, x)
    assert kernels(low)["rms_norm"]["rule"].startswith("v0 f0 f1 _, v0 _ -> v0 f0 f1 _; tile v0=4")
    assert not [row for row in low.metadata.gathered if row.kind.startswith("kernel")]
    close(staged(params, x), jax.jit(gradient)(params, x))


def test_a_search_finds_for_splash_attention_what_it_finds_for_its_twin():
    sizes = {"embedding": (512, 256), "q": (256, 8, 128), "k": (256, 4, 128), "v": (256, 4, 128)}
    sizes |= {"o": (8, 128, 256), "up": (256, 1024), "down": (1024, 256)}
    params = {name: jax.ShapeDtypeStruct(shape, "float32") for name, shape in sizes.items()}
    tokens = jax.ShapeDtypeStruct((16, 256), "int32")
    found = {}
    for name, attend in {"splash": splash(8, 256), "twin": plain_attention}.items():
        function = jax.value_and_grad(decoder(attend))
        search = ap.AutomaticPartition(["d", "m"], budget=ap.Budget(200))
        found[name] = ap.jit(function, MESH, [search]).lower(params, tokens)
        assert min(found[name].metadata.flop_divided.values()) > 0.99
    assert set(found["splash"].program.collectives()) <= set(found["twin"].program.collectives())
    assert len(kernels(found["splash"])) == 3
    assert found["splash"].estimate.step_s < 1.05 * found["twin"].estimate.step_s, "256 tokens: scores stay on the chip"


def test_the_scores_of_a_kernel_take_no_memory():
    x = jax.ShapeDtypeStruct((1, 8, 8192, 128), "float32")
    peak = {
        name: ap.jit(jax.grad(lambda q, k, v, f=f: f(q, k, v).sum()), MESH).lower(x, x, x).estimate.peak_bytes
        for name, f in {"kernel": flash_attention, "twin": plain_attention}.items()
    }
    assert peak["kernel"] < peak["twin"] / 2
