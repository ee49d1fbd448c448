"""Does an explanation say which tactic and action a layout comes from, on which way, and what stands against others?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from tests.explained.programs import BP, MESH, array, lowered


def axis(explained, name: str):
    return next(a for a in explained.axes if a.axis == name)


def test_a_tile_that_was_asked_for_names_its_tactic_and_action():
    [up] = lowered("BP+MP+Z3").explain("params/up")
    model, batch = axis(up, "model"), axis(up, "batch")
    assert (model.dim, model.tactic, model.action, model.via) == (1, "MP", "tile<params/up, 1, model>", ())
    assert (batch.dim, batch.tactic, batch.action) == (0, "Z3", "tile<params/up, 0, batch>")
    assert up.spec == (("batch",), ("model",))
    assert (up.type_, up.local_type, up.bytes, up.local_bytes) == ("f32[256,512]", "f32[64,256]", 524288, 65536)


def test_a_tile_that_was_inferred_names_the_ops_on_its_way():
    [down] = lowered("BP+MP").explain("params/down")
    model = axis(down, "model")
    assert (model.dim, model.tactic, model.action) == (0, "MP", "tile<params/up, 1, model>")
    assert model.via[0].startswith("dot_general  (_, 1) -> tile 1")
    assert model.via[-1].startswith("dot_general  (1, 0) -> sum")
    assert all("programs.py:" in link for link in model.via)


def test_collectives_of_a_parameter_are_its_gathers_and_its_gradients_reduction():
    [up] = lowered("BP+MP+Z3").explain("params/up")
    kinds = {row.kind: row for row in up.collectives}
    assert set(kinds) == {"all_gather", "reduce_scatter"}
    assert kinds["reduce_scatter"].axes == ("batch",)
    assert "programs.py:" in kinds["reduce_scatter"].where
    assert up.collective_s == pytest.approx(sum(row.seconds for row in up.collectives))
    assert up.collective_s > 0


def test_collectives_of_all_values_are_those_of_the_estimate():
    low = lowered("BP+MP+Z3")
    total = low.estimate.collectives
    rows = [row for value in low.explain("params") for row in value.collectives]
    for kind in ("all_gather", "reduce_scatter"):
        assert sum(r.count for r in rows if r.kind == kind) == total[kind].count
        assert sum(r.seconds for r in rows if r.kind == kind) == pytest.approx(total[kind].uncombined_s)


def test_readers_have_a_mapping_per_axis():
    [up] = lowered("BP+MP").explain("params/up")
    forward = next(r for r in up.readers if r.op.startswith("dot_general"))
    assert forward.mappings == {"batch": "(0, _) -> tile 0", "model": "(_, 1) -> tile 1"}
    assert forward.seconds > 0


@pytest.mark.parametrize(
    ("schedule", "name", "on", "kind", "words"),
    [
        ("BP", "params/up", "model", "nobody asked", "no tactic decides about this axis"),
        ("BP", "params/up", "batch", "readers", "dot_general"),
        ("BP", "params/odd", "batch", "indivisible", "3 is not a multiple of 4"),
        ("BP+MP", "params/odd", "model", "indivisible", "3 is not a multiple of 2"),
        ("BP+MP", "x", "model", "readers", "(_, 1) -> tile 1, which leaves this operand whole"),
    ],
)
def test_what_is_left_whole_has_a_reason(schedule, name, on, kind, words):
    [value] = lowered(schedule).explain(name)
    found = axis(value, on)
    assert found.dim is None
    assert found.kind == kind
    assert words in found.why


def test_a_value_that_a_tactic_keeps_whole_names_it():
    keep = ap.ManualPartition({"hidden": ap.REPLICATED}, axis="model", name="Keep")
    low = ap.jit(lambda x, w: ap.tag("hidden", x @ w) * 2, MESH, [keep]).lower(array(8, 16), array(16, 32))
    [hidden] = low.explain("hidden")
    found = axis(hidden, "model")
    assert (found.kind, found.tactic) == ("kept", "Keep")
    assert found.action.startswith("atomic<")
    assert hidden.role == "tag"


def test_a_conflict_and_an_op_without_a_mapping_are_reasons():
    rows = ap.ManualPartition({"x": 0, "y": 1}, axis="model", name="Both")
    args = array(16, 16), array(16, 16)
    low = ap.jit(lambda x, y: (ap.tag("sum", x + y), jnp.sort(x, 0)), MESH, [rows]).lower(*args)
    assert axis(low.explain("sum")[0], "model").kind == "conflict"
    rows = ap.ManualPartition({"x": 0}, axis="model")
    factored = ap.jit(lambda x: jax.lax.linalg.cholesky(x, symmetrize_input=False), MESH, [rows]).lower(array(16, 16))
    found = axis(factored.explain("outputs")[0], "model")
    assert found.kind == "no rule"


def test_dims_that_could_be_tiled_are_priced():
    [up] = lowered("BP").explain("params/up")
    options = {o.dim: o for o in axis(up, "model").options}
    assert set(options) == {0, 1}
    asked = lowered("BP").what_if({"params/up": 1}, axis="model")
    assert (options[1].step_s, options[1].peak_bytes) == (asked.step_s[1], asked.peak_bytes[1])


def test_without_a_device_there_are_no_seconds_but_everything_else():
    low = lowered("BP+MP", None)
    [up] = low.explain("params/up")
    assert low.explain("params/up").step_s is None
    assert up.collective_s is None
    assert all(not a.options for a in up.axes)
    assert "tiled on dim 1 by tile<params/up, 1, model>" in str(low.explain("params/up"))


def test_paths_tags_outputs_and_globs_are_names_and_others_are_errors():
    low = lowered("BP+MP")
    assert [v.name for v in low.explain("params")] == ["params/down", "params/odd", "params/up"]
    assert [v.name for v in low.explain("*/up")] == ["params/up", "outputs/up"]
    assert {v.role for v in low.explain("hidden")} == {"tag"}
    assert low.explain("%0")[0].role == "value"
    with pytest.raises(ap.UnknownNameError, match="%999999"):
        low.explain("%999999")
    assert low.explain("outputs/up")[0].spec == low.metadata.out_specs["outputs/up"]
    with pytest.raises(ap.UnknownNameError, match="'params/up'"):
        low.explain("params/upp")


def test_a_tactic_that_hides_what_it_does_is_said_to():
    class Hides:
        name = "Hides"

        def act(self, partitioning, context):
            partitioning.tile(partitioning.program.arguments[0], 0, "batch")
            partitioning.propagate(["batch"])
            return ap.TacticResult(())

    low = ap.jit(lambda x: x * 2, MESH, [Hides()]).lower(array(8, 8))
    [x] = low.explain("x")
    assert (axis(x, "batch").dim, axis(x, "batch").action) == (0, "")


def test_text_names_the_tactic_the_line_and_the_seconds():
    text = str(lowered("BP+MP+Z3").explain("params/down"))
    assert 'tile<params/up, 1, model> of tactic "MP"' in text
    assert "-> dot_general  (1, 0) -> sum  at programs.py:" in text
    assert "reduce_scatter<batch>  1 x" in text


def test_hostile_names_stay_on_their_line():
    name = "a\nb<script>"
    low = ap.jit(lambda d: d[name] * 2, MESH, [BP_OF_ALL]).lower({name: array(8, 8)})
    text = str(low.explain("d*"))
    assert "\nb<script>" not in text
    assert "a\\nb<script>" in text


BP_OF_ALL = ap.ManualPartition({"*": 0}, axis="batch", name=BP.name)


def test_explaining_changes_nothing():
    low = lowered("BP+MP")
    before = low.scheduled.partitioning.fingerprint
    low.explain("*")
    assert low.scheduled.partitioning.fingerprint == before
    assert jax.tree.leaves(low.in_shardings)
