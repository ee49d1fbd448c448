"""Does `what_if` say what another plan would, which is then made and compared, and where a decision fails?"""

from __future__ import annotations

import jax
import pytest

import autopart as ap
from tests.explained.programs import ARGS, BP, MESH, MP, Z3, lowered, step


def planned(*schedule: ap.Tactic) -> ap.Lowered:
    return ap.jit(step, MESH, list(schedule), donate_argnums=0).lower(*ARGS)


def test_it_is_what_one_more_tactic_gives():
    found = lowered("BP").what_if({"params/up": 1}, axis="model")
    made = planned(BP, MP)
    assert found.step_s == (lowered("BP").estimate.step_s, made.estimate.step_s)
    assert found.peak_bytes == (lowered("BP").estimate.peak_bytes, made.estimate.peak_bytes)
    assert found.step_delta_s == pytest.approx(found.step_s[1] - found.step_s[0])
    assert {k: after for k, (_, after) in found.collectives.items() if after} == {
        k: n for k, n in made.metadata.tactics[-1].collectives.items() if n
    }
    assert found.layouts["params/up"] == ((), ((), ("model",)))
    assert found.layouts["params/down"] == ((), (("model",),))
    assert (found.before, found.fails, found.given_up) == ("", (), ())


def test_collectives_are_deltas():
    found = lowered("BP").what_if({"params": ap.LARGEST_DIVISIBLE_DIM}, axis="batch")
    assert found.collective_deltas == {"all_reduce": -2, "all_gather": 3, "reduce_scatter": 2}


def test_a_decision_that_the_plan_stands_against_takes_that_ones_place():
    found = lowered("BP+MP+Z3").what_if({"params/up": 0}, axis="model")
    instead = ap.ManualPartition({"params": {"up": 0}}, axis="model", name="MP")
    made = planned(BP, instead, Z3)
    assert found.before == "tile<params/up, 1, model>"
    assert found.given_up == ("tile<params/up, 1, model>",)
    assert found.step_s[1] == made.estimate.step_s
    assert found.actions == ("tile<params/up, 0, model>",)


def test_what_is_tiled_can_be_asked_to_be_whole():
    found = lowered("BP+MP+Z3").what_if({"params/up": ap.REPLICATED}, axis="batch")
    assert found.layouts["params/up"] == ((("batch",), ("model",)), ((), ("model",)))
    assert found.given_up == ("tile<params/up, 0, batch>",)


def test_a_dim_that_the_axis_does_not_divide_fails_and_the_rest_is_tried():
    found = lowered("BP").what_if({"params": {"odd": 0, "up": 1}}, axis="model")
    [failure] = found.fails
    assert (failure.name, failure.axis, failure.why) == ("params/odd", "model", "3 is not a multiple of 2")
    assert found.actions == ("tile<params/up, 1, model>",)
    alone = lowered("BP").what_if({"params/odd": ap.LARGEST_DIVISIBLE_DIM}, axis="model")
    assert (alone.actions, alone.step_delta_s) == ((), 0.0)
    assert "3 is not a multiple of 2" in str(alone)


def test_indivisible_is_the_reason_also_where_the_plan_stands_against_it():
    found = lowered("BP+MP").what_if({"params/up": 5}, axis="model")
    assert found.fails[0].why == "it has 2 dims"


def test_new_conflicts_are_listed():
    both = ap.jit(lambda x, y: x + y, MESH, [ap.ManualPartition({"x": 0}, axis="model")])
    low = both.lower(*(ARGS[1], ARGS[1]))
    found = low.what_if({"y": 1}, axis="model")
    assert found.before == "tile<x, 0, model>"
    [conflict] = found.conflicts
    assert conflict.startswith('add on "model": (0, 0) -> tile 0 or (1, 1) -> tile 1  at test_what_if.py:')


def test_without_a_device_collectives_and_layouts_are_compared():
    found = lowered("BP", None).what_if({"params/up": 1}, axis="model")
    assert (found.step_s, found.peak_bytes, found.step_delta_s) == (None, None, None)
    assert found.collective_deltas == {"all_reduce": 1}
    assert "step" not in str(found).split()


def test_unknown_names_and_axes_are_errors():
    with pytest.raises(ap.UnknownNameError, match="params"):
        lowered("BP").what_if({"parameters": 0}, axis="model")
    with pytest.raises(ap.MeshError, match="modle"):
        lowered("BP").what_if({"params": 0}, axis="modle")
    with pytest.raises(ap.ArgumentError, match=r"Lowered\.what_if"):
        lowered("BP").what_if("params", axis="model")


def test_asking_changes_nothing():
    low = lowered("BP+MP+Z3")
    before = low.scheduled.partitioning.fingerprint, low.estimate.step_s
    low.what_if({"params": ap.REPLICATED, "x": 1}, axis=["batch", "model"])
    assert (low.scheduled.partitioning.fingerprint, low.estimate.step_s) == before


def test_text_and_html_show_the_figures():
    found = lowered("BP").what_if({"params/up": 1}, axis="model")
    assert str(found).startswith("what if tile<params/up, 1, model>, after the plan's own decisions?\n  step ")
    assert "params/up     [] -> [-, model]" in str(found)
    assert "tile&lt;params/up, 1, model&gt;" in found._repr_html_()


# ---- another program


def test_a_tactic_is_added_to_the_plan():
    found = lowered("BP").what_if(ap.Microbatch({"x": 0}, 2))
    made = planned(ap.Microbatch({"x": 0}, 2), BP)
    assert found.step_s == (lowered("BP").estimate.step_s, made.estimate.step_s)
    assert found.peak_bytes[1] == made.estimate.peak_bytes
    assert "what if ap.Microbatch(inputs={'x': 0}, steps=2), by the same plan?" in str(found)


@pytest.mark.parametrize("tactic", [ap.Recompute("matmuls"), ap.AutomaticPartition(budget=ap.Budget(4), cache=False)])
def test_any_tactic_will_do(tactic):
    assert lowered("BP").what_if(tactic).step_s[1] == planned(BP, tactic).estimate.step_s


def test_a_schedule_takes_the_place_of_the_schedule():
    found = lowered("BP").what_if("FSDP(batch)")
    assert found.step_s[1] == planned(ap.Parallelism("FSDP(batch)")).estimate.step_s
    assert found.layouts["params/up"][0] == ()
    assert lowered("BP").what_if([]).step_s[1] == planned().estimate.step_s


def test_another_batch_mesh_or_device():
    low = lowered("BP")
    (params, x) = ARGS
    rows = x.shape[0]
    other = jax.ShapeDtypeStruct((2 * rows, *x.shape[1:]), x.dtype)
    more = ap.jit(step, MESH, [BP], donate_argnums=0).lower(params, other)
    assert low.what_if(batch=2 * rows).peak_bytes[1] == more.estimate.peak_bytes
    device = ap.jit(step, ap.Mesh(MESH.shape, "h100"), [BP], donate_argnums=0).lower(*ARGS)
    assert low.what_if(device="h100").step_s[1] == device.estimate.step_s
    smaller = ap.Mesh({"batch": 2}, MESH.device)
    mesh = ap.jit(step, smaller, [BP], donate_argnums=0).lower(*ARGS)
    assert low.what_if(mesh=smaller).step_s[1] == mesh.estimate.step_s


def test_what_cannot_be_asked_is_said():
    with pytest.raises(ap.ArgumentError, match="along which axis"):
        lowered("BP").what_if({"x": 0})
    with pytest.raises(ap.ArgumentError, match="a tactic, batch=, mesh= or device="):
        lowered("BP").what_if()
    with pytest.raises(ap.UnknownNameError, match="no device"):
        lowered("BP").what_if(device="h1000")
