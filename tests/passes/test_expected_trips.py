"""Does a loop that the data end count as often as it is told to run, and is nothing else changed?"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

MESH = ap.Mesh({"a": 4}, device="tpu_v3")
BP = ap.ManualPartition({"x": 0}, axis="a")
X = np.full((4096, 1024), 0.1, np.float32)
W = np.full((1024, 1024), 1e-4, np.float32)


def early_stop(x, w):
    """Runs until the data say so; a loop of known length stands behind it."""
    x = lax.while_loop(lambda x: jnp.max(x) > 1e-3, lambda x: jnp.tanh(x @ w), x)
    return lax.fori_loop(0, 3, lambda _, x: x @ w, x)


def step_s(*passes) -> float:
    return ap.jit(early_stop, MESH, [BP], passes=passes).lower(X, W).estimate.step_s


def test_the_loop_is_priced_as_often_as_it_is_told():
    """Of one turn more is priced: what all turns read is not rounded before a loop that runs once."""
    one, nine, seventeen, more = (step_s(*([ap.ExpectedTrips(n)] if n > 1 else [])) for n in (1, 9, 17, 25))
    assert seventeen - nine == pytest.approx(more - seventeen, rel=1e-6)
    assert seventeen - nine == pytest.approx(nine - one, rel=0.05)
    assert nine > 2.5 * one


def test_a_pattern_names_the_loop():
    assert step_s(ap.ExpectedTrips({"*test_expected_trips.py*": 9})) == step_s(ap.ExpectedTrips(9))
    with pytest.raises(ap.UnknownNameError, match=r"no loop of unknown length matches \"\*decode\*\"[\s\S]*while"):
        step_s(ap.ExpectedTrips({"*decode*": 9}))


def test_numbers_and_programs_without_such_loops_stay_as_they_are():
    mesh = ap.Mesh({"a": 4})
    told, plain = (ap.jit(early_stop, mesh, [BP], passes=passes) for passes in ([ap.ExpectedTrips(9)], []))
    np.testing.assert_array_equal(told(X, W), plain(X, W))
    assert ap.jit(jnp.tanh, MESH, passes=[ap.ExpectedTrips(9)]).lower(X).estimate.step_s > 0


def test_wrong_numbers_of_runs_are_refused():
    for wrong in (0, -1, 1.5, "9", {"*": 0}, None):
        with pytest.raises(ap.ArgumentError, match="trips"):
            ap.ExpectedTrips(wrong)


def test_a_loop_of_unknown_length_is_named_with_the_trips_that_are_counted():
    for passes, trips in ((), 1), ([ap.ExpectedTrips(9)], 9):
        remarks = ap.jit(early_stop, MESH, [BP], passes=passes).lower(X, W).metadata.remarks
        (remark,) = [r for r in remarks if "test_expected_trips.py:20" in r]
        assert f"count {trips} " in remark


def test_a_loop_of_known_length_is_not_named():
    low = ap.jit(lambda x, w: lax.fori_loop(0, 3, lambda _, x: x @ w, x), MESH, [BP]).lower(X, W)
    assert not any("count" in remark for remark in low.metadata.remarks)
