"""Does `ap.AutomaticPartition` work as a tactic: alone, after others, before others, and on devices?"""

from __future__ import annotations

import dataclasses
import json

import jax
import pytest

import autopart as ap
from experiments.models import gns, it32, t32, unet
from experiments.models.tactics import BP, Z3
from tests.models.case import Case
from tests.numerics.test_partitioned_equals_unpartitioned import assert_same, run
from tests.prompt import slow
from tests.search.steps import MEGATRON, MESH, PeakBytes, decoder, lowered


def automatic(*axes: str, evaluations: int = 60, **settings) -> ap.AutomaticPartition:
    settings = {"objective": PeakBytes(), "cache": False, "progress": False} | settings
    return ap.AutomaticPartition(axes or ("batch", "model"), budget=ap.Budget(evaluations), **settings)


@pytest.fixture(scope="module")
def found() -> ap.Lowered:
    return lowered([automatic()])


def test_metadata_tells_actions_costs_and_how_they_were_found(found):
    row = found.metadata.tactics[-1]
    assert row.actions[-1].startswith("propagate<")
    assert row.report["best"]["peak_bytes"] == row.peak_bytes < 0.3 * row.report["start"]["peak_bytes"]
    assert row.report["best"]["step_s"] == row.step_s
    assert row.report["decisions"]
    assert 0 < row.report["evaluations"] <= 60
    assert ap.Metadata.from_json(found.metadata.to_json()) == dataclasses.replace(
        found.metadata, tactics=(dataclasses.replace(row, report=json.loads(json.dumps(dict(row.report)))),)
    )


def test_found_schedule_as_code_reproduces_the_result(found):
    code = found.metadata.as_schedule()
    space = {"ap": ap}
    exec(code, space)
    again = lowered(space["schedule"])
    assert "*" in code
    assert again.metadata.in_specs == found.metadata.in_specs
    assert again.metadata.tactics[-1].collectives == found.metadata.tactics[-1].collectives
    assert again.metadata.tactics[-1].step_s == found.metadata.tactics[-1].step_s


def test_values_without_a_path_are_written_by_scope_op_and_line():
    program = decoder()
    value = next(v for v in range(program.value_count) if program.spec(program.value_op[v]).kind == "dot_general")
    metadata = lowered([ap.ManualPartition({f"%{value}": 0}, axis="batch")]).metadata
    (tile,) = (row for row in metadata.tactics[-1].decisions if row[0] == "tile")
    assert "dot_general@t32.py:" in tile[1]
    assert "%" not in metadata.as_schedule()


def test_earlier_tactics_are_never_undone():
    before, after = lowered([BP, MEGATRON]), lowered([BP, MEGATRON, automatic("batch")])
    for name, dims in before.metadata.in_specs.items():
        kept = after.metadata.in_specs[name]
        for dim, axes in enumerate(dims):
            assert set(axes) <= set(kept[dim]), name


def test_later_tactics_build_on_what_was_found():
    rows = lowered([automatic("model", seed=1), Z3]).metadata.tactics
    assert rows[1].peak_bytes < rows[0].peak_bytes


def test_an_axis_that_is_not_given_is_not_used():
    specs = lowered([automatic("model")]).metadata.in_specs
    assert not any("batch" in axes for dims in specs.values() for axes in dims)


def test_seeds_bound_the_result_from_above():
    seed = [BP, MEGATRON, Z3]
    bound = lowered(seed).metadata.tactics[-1].peak_bytes
    result = lowered([automatic(evaluations=2, optimizer=ap.MCTS(seeded=True), seeds=[seed])]).metadata.tactics[-1]
    assert result.peak_bytes <= bound


@pytest.mark.slow
def test_found_schedule_is_at_least_as_good_as_known_ones():
    best = (
        lowered([automatic(evaluations=300, optimizer=ap.MCTS(seeded=False), baselines=False)])
        .metadata.tactics[-1]
        .peak_bytes
    )
    for schedule in ([BP], [BP, MEGATRON], [BP, MEGATRON, Z3], [MEGATRON]):
        assert best <= lowered(schedule).metadata.tactics[-1].peak_bytes


def test_own_cost_model_needs_no_device():
    @dataclasses.dataclass(frozen=True)
    class Bytes:
        def __call__(self, local, mesh):
            held = sum(
                float(t.bytes) for t in (local.local_type(v, int(local.settled[v])) for v in local.program.arguments)
            )
            return type("Estimate", (), {"step_s": held, "peak_bytes": held})()

    mesh = ap.Mesh({"batch": 4, "model": 2})
    tactic = automatic(cost_model=Bytes(), objective=ap.StepSeconds())
    step = ap.jit(t32.step(t32.SMALL), mesh, [tactic], donate_argnums=(0, 1))
    report = step.lower(*t32.abstract_args(t32.SMALL)).metadata.tactics[-1].report
    assert report["best"]["score"] < 0.3 * report["start"]["score"]


STEPS = {"t32": (t32, 2, (0, 1)), "gns": (gns, 2, (0, 1)), "it32": (it32, 0, (1,)), "unet": (unet, 2, (0, 1))}
MIXES = {
    "AllAuto": lambda: [automatic()],
    "BP+AutoMP": lambda: [BP, automatic("model")],
    "AutoBP+MP": lambda: [automatic("batch"), MEGATRON],
    "AutoMP+Z3": lambda: [automatic("model"), Z3],
}
LONG = [*(("t32", mix) for mix in MIXES), ("gns", "AllAuto"), ("unet", "AllAuto")]
RUNS = [("it32", "AllAuto"), *[slow(*run) for run in LONG]]


@pytest.mark.parametrize(("model", "mix"), RUNS)
def test_found_schedules_compute_the_unpartitioned_numbers(model, mix):
    module, state, donated = STEPS[model]
    changes = {"adam_epsilon": 1e-5, "heads": 8}
    own = {f.name for f in dataclasses.fields(module.SMALL)}
    config = dataclasses.replace(module.SMALL, **{k: v for k, v in changes.items() if k in own})
    case = Case(module.step(config), module.example_args(config), state, {})
    step = ap.jit(case.step, MESH, MIXES[mix](), donate_argnums=donated if state else ())
    with jax.default_matmul_precision("highest"):
        assert_same(run(step, case), run(jax.jit(case.step), case), 5e-3)
