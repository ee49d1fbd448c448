"""Does donated state stay where it is from step to step?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from tests.models import decoder_unrolled
from tests.models.case import MESH
from tests.prompt import slow


@pytest.fixture(scope="module")
def case():
    return decoder_unrolled.case()


@pytest.mark.parametrize("schedule", [slow("BP+MP"), "BP+MP+Z3"])
def test_new_state_has_the_layout_of_the_old_and_takes_its_memory(case, schedule):
    step = ap.jit(case.step, MESH, case.schedules[schedule], donate_argnums=(0, 1))
    params, opt_state, batch = jax.tree.map(jnp.array, case.args)
    first = step(params, opt_state, batch)
    second = step(*first[:2], batch)
    before, after = jax.tree.leaves(first[:2]), jax.tree.leaves(second[:2])
    assert [x.sharding for x in before] == [x.sharding for x in after]
    assert all(x.is_deleted() for x in before)


def test_undonated_state_can_be_used_again(case):
    step = ap.jit(case.step, MESH, case.schedules["BP+MP"])
    first = step(*case.args)
    again = step(*case.args)
    assert jnp.array_equal(first[2], again[2])
