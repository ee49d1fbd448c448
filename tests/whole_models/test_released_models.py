"""Do models of released packages lower, where the packages are here? `experiments/strangers` has all of them."""

from __future__ import annotations

import signal

import pytest

from experiments.strangers.process import stages
from experiments.strangers.rows import summary
from experiments.strangers.step import STRANGERS, Step, Stranger, released, table

FAST = (
    "equinox/batch-norm",
    "equinox/gru",
    "flax/bidirectional-lstm",
    "flax/fp8",
    "flax/group-norm-conv",
    "flax/spectral-norm",
    "haiku/conv-lstm",
    "haiku/lstm",
    "haiku/vqvae",
    "mctx/gumbel-muzero",
    "optax/lbfgs",
    "optax/muon",
    "optax/prodigy",
    "optax/schedule-free",
)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["tpu_v5e", "h100"])
@pytest.mark.parametrize("name", FAST)
def test_a_released_model_lowers_under_every_schedule(name, device):
    if missing := table()[name].missing():
        pytest.skip(f"{name} needs {', '.join(missing)}")
    done = list(stages(name, device))
    assert [s["stage"] for s in done] == ["built", "jax", "import", "none", "batch", "search"]
    assert not [s for s in done if "error" in s or "left_out" in s]


def test_a_package_that_is_not_installed_is_no_error():
    row = Stranger("none", ("no_such_package", "no_such_package.part", "jax"), lambda: Step(lambda: None, ()))
    assert row.missing() == ["no_such_package", "no_such_package.part"]
    assert summary([{"stage": "built", "missing": row.missing()}], 0, "")["ended"] == "not installed"


def test_a_name_that_is_taken_is_refused_and_the_first_row_stays():
    name = next(iter(table()))
    before = STRANGERS[name]
    with pytest.raises(ValueError, match="is taken by"):
        released(name, "jax")(lambda: Step(lambda: None, ()))
    assert STRANGERS[name] is before


@pytest.mark.parametrize(
    ("last", "returncode", "ended"),
    [
        ({"stage": "built", "error": "ImportError"}, 0, "no model"),
        ({"stage": "import", "error": "IndexError"}, 0, "error"),
        ({"stage": "none"}, -signal.SIGXCPU, "over"),
        ({"stage": "none"}, -signal.SIGABRT, "died"),
        ({"stage": "search", "left_out": ["layer_order: ValueError"]}, 0, "passes left out"),
        ({"stage": "search"}, 0, "lowers"),
    ],
)
def test_how_a_row_ended_is_told_by_its_last_stage_and_its_process(last, returncode, ended):
    assert summary([last], returncode, "")["ended"] == ended


@pytest.mark.parametrize(("by_jax", "ended"), [({"refused": "ValueError"}, "refused by jax too"), ({}, "error")])
def test_an_error_is_a_fault_where_jax_lowers_the_same_function(by_jax, ended):
    stages = [{"stage": "jax", **by_jax}, {"stage": "import", "error": "ProgramError: jax cannot lower"}]
    assert summary(stages, 0, "")["ended"] == ended
