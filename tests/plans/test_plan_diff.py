"""What does the difference of two plans say?"""

from __future__ import annotations

import jax

import autopart as ap

MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
X = jax.ShapeDtypeStruct((16, 16), "float32")


def matmul(x, w):
    return x @ w


def plan(*schedule, mesh=MESH, x=X):
    return ap.jit(matmul, mesh, list(schedule)).lower(x, X).plan


BP = ap.ManualPartition({"x": 0}, axis="batch")
CONTRACTED = ap.ManualPartition({"w": 0}, axis="model")


def test_equal_plans_do_not_differ():
    found = plan(BP).diff(plan(BP))
    assert not found
    assert str(found) == "no difference"


def test_layouts_collectives_and_seconds_are_listed():
    found = plan(BP).diff(plan(BP, CONTRACTED))
    rows = {(row.what, row.name): (row.before, row.after) for row in found.rows}
    assert rows["input", "w"] == ("whole", "[model]")
    assert rows["collective", "all_reduce"] == ("0", "1")
    assert rows["step_s", ""][0].endswith("s")
    assert "%)" in rows["step_s", ""][1]
    assert len(str(found).splitlines()) == len(found.rows)


def test_meshes_devices_and_types_are_listed():
    small = plan(BP, mesh=ap.Mesh({"batch": 2}, device="tpu_v4"), x=jax.ShapeDtypeStruct((8, 16), "float32"))
    rows = {row.what: row for row in plan(BP).diff(small).rows if row.what != "collective"}
    assert (rows["mesh"].before, rows["mesh"].after) == ("batch=4, model=2", "batch=2")
    assert rows["device"].after == "tpu_v4"
    assert any(row.before.startswith("f32[16,16]") and row.after.startswith("f32[8,16]") for row in rows.values())


def test_arrays_that_only_one_plan_has_are_listed():
    def one(x):
        return x

    found = plan(BP).diff(ap.jit(one, MESH).lower(X).plan)
    assert ("w", "-") in {(row.name, row.after) for row in found.rows}


def test_a_long_list_is_cut_and_counted():
    many = [X] * 60
    plans = [
        ap.jit(lambda xs: xs, MESH, s).lower(many).plan for s in ([], [ap.ManualPartition({"xs": 0}, axis="batch")])
    ]
    found = plans[0].diff(plans[1])
    assert len(found.rows) >= 120
    assert "more inputs and outputs" in str(found)
