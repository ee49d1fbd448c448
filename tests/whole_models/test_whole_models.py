"""Models nobody wrote: does any of them fail to lower under some schedule, or compute something else when it is run?

pytest tests/whole_models --whole-models=1000     as many models as wanted
python -m tests.whole_models.run --shrink 17      model 17, as small as it fails
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.whole_models.blocks import BLOCKS
from tests.whole_models.drawn import NATIVE, SIMPLEST, Drawn
from tests.whole_models.run import NO_MODEL, failure, shrunk

PER_TEST = 5


def pytest_generate_tests(metafunc):
    if "group" in metafunc.fixturenames:
        metafunc.parametrize("group", range(max(1, metafunc.config.getoption("--whole-models") // PER_TEST)))


def test_drawn_models_lower_and_compute_what_they_are_meant_to(group):
    drawn = [Drawn.of(seed) for seed in range(group * PER_TEST, (group + 1) * PER_TEST)]
    wrong = [f"{one.seed}: {said}\n{one}" for one in drawn if (said := failure(one)) and not said.startswith(NO_MODEL)]
    assert not wrong, "\n\n".join(wrong)


def test_a_failing_model_shrinks_to_the_block_and_the_schedule_that_fail():
    drawn = replace(
        Drawn.of(1), blocks=("mlp", "recurrent", "pooled"), native=False, depth=4, schedules=("batch", "plan")
    )

    def wrong(one: Drawn) -> str:
        return "it has a recurrent block" if "recurrent" in one.blocks and "plan" in one.schedules else ""

    found, said = shrunk(drawn, wrong)
    assert (found.blocks, found.depth, found.schedules, said) == (("recurrent",), 1, ("plan",), wrong(drawn))
    assert all(getattr(found, name) == plain for name, plain in SIMPLEST.items())


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["plain", "linen", "nnx", "equinox", "haiku"])
def test_each_block_is_a_model_that_jax_lowers(framework):
    plain = replace(Drawn.of(0), **{**SIMPLEST, "framework": framework, "heads": 2, "width": 8}, schedules=())
    blocks = [(name, False) for name in BLOCKS] + [(name, True) for name in NATIVE if framework != "plain"]
    refused = {}
    for name, native in blocks:
        said = failure(replace(plain, blocks=(name,), native=native, step="train"))
        if said:
            refused[name] = said
    assert not refused
