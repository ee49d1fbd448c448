"""What does a plan's file hold, and what of a file that is damaged, forged or of another version?"""

from __future__ import annotations

import json
import random

import jax
import pytest

import autopart as ap
from autopart.search.storage.sealed_json import digest_of

MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
X = jax.ShapeDtypeStruct((16, 16), "float32")
SCHEDULE = [ap.ManualPartition({"x": 0}, axis="batch"), ap.ManualPartition({"w": 1}, axis="model"), ap.SharedGathers(9)]


def matmul(x, w):
    return x @ w


PLAN = ap.jit(matmul, MESH, [ap.Microbatch({"x": 0}, steps=2), *SCHEDULE]).lower(X, X).plan


def forged(**changes) -> str:
    """The plan's file with other fields and the digest of these."""
    data = {**json.loads(PLAN.to_json()), **changes}
    del data["digest"]
    return json.dumps({**data, "digest": digest_of(data)})


def test_what_is_written_is_read_back():
    again = ap.Plan.from_json(PLAN.to_json())
    assert again == PLAN
    assert again.hash == PLAN.hash
    assert again.to_json() == PLAN.to_json()


def test_a_decision_and_an_array_have_a_line_each():
    lines = [line.strip().rstrip(",") for line in PLAN.to_json().splitlines()]
    assert '["tile", ["argument", "x"], 0, "batch"]' in lines
    assert any(line.startswith('["x", "f32[16,16]", [["batch"]]') for line in lines)


def test_neither_costs_nor_names_are_part_of_the_hash():
    named = [ap.ManualPartition({"x": 0}, axis="batch", name="other")]
    plain = [ap.ManualPartition({"x": 0}, axis="batch")]
    plans = [ap.jit(matmul, ap.Mesh(MESH.shape, device=d), s).lower(X, X).plan
             for d, s in (("tpu_v3", named), ("tpu_v4", plain))]  # fmt: skip
    assert plans[0].hash == plans[1].hash
    assert plans[0].step_s != plans[1].step_s


def test_a_damaged_file_is_a_plan_error_that_names_it(tmp_path):
    text, rng, path = PLAN.to_json().encode(), random.Random(0), tmp_path / "plan.json"
    places = [place for place, byte in enumerate(text) if not chr(byte).isspace()]
    for _ in range(300):
        damaged = bytearray(text)
        for place in rng.sample(places, rng.randint(1, 4)):
            damaged[place] ^= rng.randrange(1, 256)
        path.write_bytes(bytes(damaged))
        with pytest.raises(ap.PlanError, match=r"plan.json is no plan"):
            ap.Plan.load(path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"digest": 3}'])
def test_a_file_of_something_else_is_a_plan_error(content, tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(ap.PlanError, match="no plan"):
        ap.Plan.load(path)


def test_a_later_version_says_so():
    with pytest.raises(ap.PlanError, match="version 2, and this autopart reads version 1"):
        ap.Plan.from_json(forged(autopart_plan=2))


def test_a_file_that_is_not_there_says_so(tmp_path):
    with pytest.raises(ap.PlanError, match="cannot be read"):
        ap.Plan.load(tmp_path / "none.json")
    with pytest.raises(ap.PlanError, match="cannot be written"):
        PLAN.save(tmp_path / "no folder" / "plan.json")


ACTION = ["tile", ["argument", "x"], 0, "batch"]


@pytest.mark.parametrize(
    "changes",
    [
        {"mesh": {"axes": [["batch", -1]], "device": None, "links": []}},
        {"mesh": {"axes": [["batch", 2**70]], "device": None, "links": []}},
        {"mesh": []},
        {"inputs": [["x"]]},
        {"inputs": [["x", "f32[16,16]", [[3]]]]},
        {"outputs": None},
        {"steps": [3]},
        {"steps": [{"name": 3, "actions": []}]},
        {"steps": [{"name": "", "actions": [3]}]},
        {"steps": [{"name": "", "actions": [["tile", ["argument", "x"], 2**40, "batch"]]}]},
        {"steps": [{"name": "", "actions": [["tile", {"a": 1}, 0, "batch"]]}]},
        {"steps": [{"name": "", "actions": [], "rewrite": ["microbatch"]}]},
        {"collectives": {"all_reduce": 0.5}},
        {"step_s": float("nan")},
        {"step_s": "fast"},
        {"peak_bytes": -1},
        {"options": 3},
        {"program": 3},
    ],
    ids=repr,
)
def test_a_forged_field_is_a_plan_error(changes):
    with pytest.raises(ap.PlanError, match="no plan"):
        ap.Plan.from_json(forged(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": [{"name": "", "actions": [["tile", 10**6, 0, "batch"]]}]},
        {"steps": [{"name": "", "actions": [["tile", ["argument", "x"], 7, "batch"]]}]},
        {"steps": [{"name": "", "actions": [["tile", ["argument", "x"], 0, "nowhere"]]}]},
        {"steps": [{"name": "", "actions": [["tile", ["argument", "zz"], 0, "batch"]]}]},
        {"steps": [{"name": "", "actions": [["tile", ["argument", "x", 5], 0, "batch"]]}]},
        {"steps": [{"name": "", "actions": [["tile", [], 0, "batch"]]}]},
        {"steps": [{"name": "", "actions": [["tile", ["op", "", "dot", "f32[1]", 0, "", 0, 1], 0, "a"]]}]},
        {"steps": [{"name": "", "actions": [["tile", ["tag", "none", "", 0, 1], 0, "batch"]]}]},
        {"steps": [{"name": "", "actions": [["tile", ["output", "none"], 0, "batch"]]}]},
        {"steps": [{"name": "", "actions": [["explode", "batch"]]}]},
        {"steps": [{"name": "", "actions": [["share_gathers", -1]]}]},
        {"steps": [{"name": "", "actions": [], "rewrite": ["frobnicate", {}]}]},
        {"steps": [{"name": "", "actions": [], "rewrite": ["microbatch", {"inputs": 3, "steps": 2, "loops": 1}]}]},
        {"steps": [{"name": "", "actions": [], "rewrite": ["microbatch", {"inputs": {"x": 0}}]}]},
        {"options": {"share_within": -4}},
        {"options": {"nonsense": 1}},
        {"inputs": [["x", "f32[16,16]", [["nowhere"]]]], "program": "another"},
    ],
    ids=repr,
)  # fmt: skip
def test_a_forged_decision_is_a_plan_error_when_it_is_applied(changes):
    plan = ap.Plan.from_json(forged(**changes))
    with pytest.raises(ap.PlanError):
        ap.jit(matmul, MESH, plan).lower(X, X)


def test_hostile_names_stay_text(tmp_path):
    name = 'x"\n\u202e<script>'
    program = "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32> }"
    (tmp_path / "m.mlir").write_text(program)
    loaded = ap.load(tmp_path / "m.mlir", argument_names=[name])
    plan = ap.jit(loaded, MESH, [ap.ManualPartition({"%0": 0}, axis="batch", name=name)]).lower().plan
    assert ap.Plan.from_json(plan.to_json()) == plan
    assert len(str(plan).splitlines()) == len(str(plan).split("\n"))
    assert "\n\u202e" not in str(plan) + str(plan.diff(PLAN))
