"""Does a schedule's name or file stand wherever a schedule does?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap

MESH = ap.Mesh({"data": 4, "model": 2}, device="tpu_v3")
W, X = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((256, 256), (4096, 256)))
ROWS = {"x": (("data",),)}


def mlp(w, x):
    return (jnp.tanh(x @ w) ** 2).mean()


def specs(schedule):
    found = ap.jit(mlp, MESH, schedule).lower(W, X).metadata.in_specs
    return {name: dims for name, dims in found.items() if dims}


@pytest.fixture
def files(tmp_path):
    ap.jit(mlp, MESH, [ap.ManualPartition({"x": 0}, "data")]).lower(W, X).plan.save(tmp_path / "plan.json")
    code = "import autopart as ap\nschedule = ['DP(data)']\nmine = [ap.ManualPartition({'w': 1}, 'model')]\n"
    (tmp_path / "tactics.py").write_text(code)
    return tmp_path


@pytest.mark.parametrize("schedule", ["DP(data)", ["DP(data)"], ["DP(data)", ap.ShardedLoops()]])
def test_a_named_schedule_is_one(schedule):
    assert specs(schedule) == ROWS


def test_a_file_is_one(files):
    assert specs(files / "plan.json") == specs(str(files / "plan.json")) == specs(str(files / "tactics.py")) == ROWS
    assert specs(f"{files}/tactics.py:mine") == {"w": ((), ("model",))}


def test_a_plan_among_tactics_is_replayed(files):
    both = specs([ap.ManualPartition({"w": 1}, "model"), str(files / "plan.json")])
    assert both == {**ROWS, "w": ((), ("model",))}


def test_seeds_and_sweeps_take_names_too():
    auto = ap.AutomaticPartition("data", seeds=["DP(data)"], budget=ap.Budget(1), cache=False)
    assert specs([auto]) in (ROWS, {})
    rows = ap.sweep(mlp, (W, X), devices=8, device="tpu_v3", axes=["data"], schedule="DP(data)", budget=ap.Budget(0))
    assert rows.best.step_s


@pytest.mark.parametrize(
    ("schedule", "says"),
    [("DQ(data)", "no named schedule"), ("gone.json", "gone.json"), ("gone:mine", "gone"), ([3], "list of tactics")],
)
def test_what_is_none_is_said(schedule, says):
    with pytest.raises(ap.PartitionError, match=says):
        specs(schedule)
