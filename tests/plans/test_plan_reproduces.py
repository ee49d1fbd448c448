"""Does a plan, read back from its file, give exactly the program that its schedule gave?"""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from experiments.models import gns, t32, tactics, unet
from tests.prompt import slow

MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
AUTO = ap.AutomaticPartition(["batch", "model"], budget=ap.Budget(12), cache=False, progress=False)
T32 = (t32.step(t32.SMALL), t32.abstract_args(t32.SMALL))
GNS = (gns.step(gns.SMALL), gns.abstract_args(gns.SMALL))
UNET = (unet.step(unet.SMALL), unet.abstract_args(unet.SMALL))


def check_same(step, args, schedule, path, **options):
    """The program of a schedule and the one of its plan, read from `path`, are alike in text and estimate."""
    low = ap.jit(step, MESH, schedule, **options).lower(*args)
    low.plan.save(path)
    plan = ap.Plan.load(path)
    again = ap.jit(step, MESH, plan, **{k: v for k, v in options.items() if k != "options"}).lower(*args)
    assert again.as_text("hlo") == low.as_text("hlo")
    assert (again.estimate.step_s, again.estimate.peak_bytes) == (low.estimate.step_s, low.estimate.peak_bytes)
    assert again.in_shardings == low.in_shardings
    assert again.out_shardings == low.out_shardings
    assert again.plan == low.plan == plan
    return low


@pytest.mark.parametrize(
    "schedule",
    [
        [],
        slow([tactics.BP, tactics.MP]),
        slow([tactics.BP, tactics.MP, tactics.Z2]),
        [tactics.BP, tactics.MP, tactics.Z3, tactics.EMB],
        [tactics.BP, tactics.Z3, ap.SharedGathers(200)],
        [ap.Microbatch({"batch": 0}, steps=2), tactics.BP, tactics.Z3],
        [ap.Recompute("blocks"), tactics.BP, tactics.Z3],
        [tactics.BP, AUTO],
        slow([ap.Parallelism("FSDP(batch)+Megatron(model)")]),
    ],
    ids=lambda schedule: "+".join(tactic.name for tactic in schedule) or "replicated",
)
def test_of_the_transformer(schedule, tmp_path):
    check_same(*T32, schedule, tmp_path / "plan.json", donate_argnums=(0, 1))


def test_of_the_graph_network(tmp_path):
    check_same(*GNS, [tactics.GNS_ES], tmp_path / "plan.json", donate_argnums=(0, 1))


@pytest.mark.slow
def test_of_the_unet_with_its_optimizer_state_in_parts(tmp_path):
    check_same(*UNET, [tactics.UNET_BP, tactics.UNET_Z2], tmp_path / "plan.json", donate_argnums=(0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("automatic", [False, True], ids=["manual", "automatic"])
@pytest.mark.parametrize(
    "model",
    [
        "cnn_flax", "decoder_scan_flax", "decoder_unrolled", "diffusion_unet", "encoder_decoder_nnx", "graph_network",
        "kv_cache_decoding", "lstm_haiku", "mixture_of_experts", "mlp_equinox",
    ],
)  # fmt: skip
def test_of_every_model_of_the_tests(model, automatic, tmp_path):
    case = importlib.import_module(f"tests.models.{model}").case()
    for schedule in [[AUTO]] if automatic else case.schedules.values():
        donated = tuple(range(case.state))
        check_same(case.step, case.args, schedule, tmp_path / "plan.json", donate_argnums=donated)


def layer(x, w, v):
    hidden = ap.tag("hidden", jnp.tanh(x @ w))
    return hidden @ v


ARRAYS = [jax.ShapeDtypeStruct((16, 16), "float32")] * 3


@pytest.mark.parametrize(
    "schedule",
    [
        [ap.ManualPartition({"x": 0, "w": ap.REPLICATED}, axis="batch")],
        [ap.ManualPartition({"hidden": ap.REPLICATED}, axis="model"), ap.ManualPartition({"w": 1}, axis="model")],
        [ap.ManualPartition({"hidden": 1}, axis="model")],
        [ap.ManualPartition({"outputs": 1}, axis="model"), ap.ManualPartition({"x": 0}, axis="batch")],
        [ap.ManualPartition({"x": 0}, axis=["model", "batch"])],
        [ap.ManualPartition({"x": 0}, axis="model"), ap.ManualPartition({"x": 0}, axis="batch")],
        [ap.ManualPartition({"%5": 0}, axis="batch")],
    ],
    ids=["whole argument", "whole tag", "tag", "output", "two axes of a dim", "the other way round", "by number"],
)
def test_of_decisions_about_anything(schedule, tmp_path):
    check_same(layer, ARRAYS, schedule, tmp_path / "plan.json")


def test_with_the_options_of_its_lowering(tmp_path):
    options = ap.LoweringOptions(share_within=100, regather=True)
    low = check_same(layer, ARRAYS, [ap.ManualPartition({"w": 0}, axis="batch")], tmp_path / "p.json", options=options)
    assert ap.jit(layer, MESH, low.plan).lower(*ARRAYS).program.options == options


def test_it_computes_the_same_as_its_schedule(tmp_path):
    arrays = [jax.random.normal(jax.random.key(n), (16, 16)) for n in range(3)]
    mesh = ap.Mesh({"batch": 4, "model": 2})
    plan = ap.jit(layer, mesh, [ap.ManualPartition({"w": 1}, axis="model")]).lower(*arrays).plan
    assert jnp.allclose(ap.jit(layer, mesh, plan)(*arrays), layer(*arrays), atol=1e-4)


def test_no_search_runs_where_a_plan_is_given(monkeypatch):
    plan = ap.jit(layer, MESH, [AUTO]).lower(*ARRAYS).plan
    monkeypatch.setattr("autopart.api.tactics.automatic.search", None)
    assert ap.jit(layer, MESH, plan).lower(*ARRAYS).plan.hash == plan.hash
