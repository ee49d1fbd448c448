"""Is what is easily given wrong answered in words: a schedule that is no list, a dict as mesh, a number as budget?"""

from __future__ import annotations

import re
from pathlib import Path

import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.costmodel.hardware.devices import device

MESH = ap.Mesh({"batch": 4})
BP = ap.ManualPartition({"x": 0}, axis="batch")
PAGE = Path(__file__).parents[2] / "docs" / "training-loop.md"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: ap.jit(jnp.tanh, MESH, BP), "schedule is .*list of tactics"),
        (lambda: ap.jit(jnp.tanh, MESH, "BP"), "schedule is 'BP'.*list of tactics"),
        (lambda: ap.jit(jnp.tanh, {"batch": 4}, [BP]), r"mesh is \{'batch': 4\}.*ap\.Mesh\(\{\.\.\.\}\)"),
        (lambda: ap.AutomaticPartition(["batch"], budget=100), r"budget is 100.*ap\.Budget"),
        (lambda: ap.Mesh({"batch": 4}, device=device("tpu_v3")), "device is .*Device.*name"),
        (lambda: ap.Mesh([4, 2]), r"axes is \[4, 2\]"),
    ],
    ids=["a tactic as schedule", "a name as schedule", "a dict as mesh", "a number as budget", "a device", "a list"],
)
def test_what_is_easily_given_wrong_says_what_is_right(wrong, says):
    with pytest.raises(ap.PartitionError) as error:
        wrong()
    assert re.search(says, " ".join(str(error.value).split())), str(error.value)


def test_the_page_on_training_loops_warns_of_loops_that_never_wait():
    page = " ".join(PAGE.read_text().split())
    assert "On simulated host devices a loop that never waits piles up work" in page
    assert "jax.block_until_ready" in page
