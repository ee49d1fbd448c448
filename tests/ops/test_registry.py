"""What the registry promises to those who write rules and to those who ask it."""

from __future__ import annotations

import numpy as np
import pytest

from autopart.base.registry import RegistryError
from autopart.core.manual_regions import KINDS
from autopart.core.op import ANY, MAX, OR, SUM, WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.ops.rule import (
    CUSTOM_CALLS,
    Rule,
    known_kinds,
    mappings_of,
    register_custom_call,
    rule,
    rules,
)
from autopart.core.ops.traits import Elementwise


def tensor(*shape: int, dtype: str = "f32") -> TensorType:
    return TensorType(shape, dtype)


def custom_call(target: str, *operands: TensorType, results: tuple[TensorType, ...], batch: str = "") -> OpSpec:
    attributes = {"call_target_name": target}
    if batch:
        attributes["mhlo.frontend_attributes"] = {"num_batch_dims": batch}
    return OpSpec("custom_call", attributes, operands, results)


@pytest.fixture
def attention():
    """A custom call registered for the length of a test."""

    with CUSTOM_CALLS.restored():

        @register_custom_call("test_attention")
        def rule_of_attention(spec):
            return [TileMapping((d, d), (d,), spec.operands[0].shape[d]) for d in (0, 1)]

        yield rule_of_attention


def test_a_second_registration_names_the_first():
    with pytest.raises(
        RegistryError, match=r"(?s)op rule \"transpose\".*first by autopart\..*transpose, now again by .*test_registry"
    ):
        rule("transpose", traits=Elementwise(0))(lambda spec: ())


def test_a_second_rule_for_a_custom_call_names_the_first(attention):
    with pytest.raises(RegistryError, match=r"custom call \"test_attention\""):
        register_custom_call("test_attention")(lambda spec: ())


def test_an_unknown_kind_has_no_rule_and_a_blocked_one_has_no_mappings():
    assert mappings_of(OpSpec("nobody_knows", {}, (tensor(4),), (tensor(4),))) is None
    assert mappings_of(OpSpec("rng", {}, (tensor(), tensor()), (tensor(4),))) == ()


def test_an_unregistered_custom_call_has_no_rule():
    assert mappings_of(custom_call("mystery", tensor(4), results=(tensor(4),))) is None


def test_a_registered_custom_call_has_its_mappings(attention):
    spec = custom_call("test_attention", tensor(4, 2, 8), tensor(4, 2, 8), results=(tensor(4, 2, 8),))
    assert mappings_of(spec) == (TileMapping((0, 0), (0,), 4), TileMapping((1, 1), (1,), 2))
    assert "custom_call @test_attention" in known_kinds()


def test_a_custom_call_that_declares_batch_dims_tiles_on_them():
    spec = custom_call("cusolver_getrf_ffi", tensor(4, 2, 3, 3), results=(tensor(4, 2, 3, 3), tensor(4, 2)), batch="2")
    matrix = (0, 2), (0, 3)
    assert mappings_of(spec) == (
        TileMapping((0,), (0, 0), 4, drawn_by=matrix),
        TileMapping((1,), (1, 1), 2, drawn_by=matrix),
    )


@pytest.mark.parametrize(
    ("mapping", "why"),
    [
        (TileMapping((0,), (0,), 4), "2 operands and 1 results"),
        (TileMapping((2, WHOLE), (0,), 4), r"operand 0 is f32\[4,6\]"),
        (TileMapping((1, 1), (1,), 4), "must exist and be a multiple of 4"),
        (TileMapping((0, 0), (5,), 4), r"result 0 is f32\[4,6\]"),
        (TileMapping((0, 0), (OR,), 4), r"result 0 is f32\[4,6\]: no collective combines numbers by or"),
    ],
)
def test_a_rule_whose_mapping_does_not_fit_the_op_is_told_why(mapping: TileMapping, why: str):
    bad = Rule("custom_call @bad", "here", lambda spec: [mapping])
    with CUSTOM_CALLS.temporarily("bad", bad), pytest.raises(RegistryError, match=why):
        mappings_of(custom_call("bad", tensor(4, 6), tensor(4, 6), results=(tensor(4, 6),)))


def test_a_dim_in_two_mappings_is_refused():
    mappings = [TileMapping((0,), (0,), 4), TileMapping((0,), (1,), 2)]
    twice = Rule("custom_call @twice", "here", lambda spec: mappings)
    why = "sliced by another mapping already"
    with CUSTOM_CALLS.temporarily("twice", twice), pytest.raises(RegistryError, match=why):
        mappings_of(custom_call("twice", tensor(4, 6), results=(tensor(4, 6),)))


@pytest.mark.parametrize("name", [r.kind for r in rules() if r.structural and r.kind not in KINDS])
def test_structural_kinds_are_identities(name: str):
    spec = OpSpec(name, {}, (tensor(4, 6), tensor(4, 6)), (tensor(4, 6), tensor(4, 6)))
    expected = [TileMapping((d, d), (d, d), n) for d, n in ((0, 4), (1, 6))]
    marks = ("while", "case", "if", "condition")
    assert mappings_of(spec) == (() if name in marks else tuple(expected))


def test_the_edge_of_a_region_loops_over_what_it_cuts_and_tiles_the_rest():
    attributes = {"axes": ("a", "b"), "dims": ((), ("a", "b")), "mesh": (("a", 2), ("b", 3), ("c", 2))}
    whole, part = tensor(4, 12), tensor(4, 2)
    assert mappings_of(OpSpec("to_local", attributes, (whole,), (part,))) == (
        TileMapping((1,), (ANY,), 6),
        TileMapping((0,), (0,), 4),
    )
    assert mappings_of(OpSpec("to_global", attributes, (part,), (whole,))) == (
        TileMapping((WHOLE,), (1,), 6),
        TileMapping((0,), (0,), 4),
    )


def test_an_argument_without_a_tied_output_tiles_on_every_dim():
    assert mappings_of(OpSpec("argument", {}, (), (tensor(4, 1, 6),))) == (
        TileMapping((), (0,), 4),
        TileMapping((), (2,), 6),
    )


def test_every_registered_kind_is_tested_or_says_why_it_blocks():
    of_passes = ["roll"]  # no text has it: tests/passes/test_rolls.py
    assert [r.kind for r in rules() if not (r.examples or r.blocked_because or r.structural)] == of_passes


def test_dims_of_size_one_are_in_no_mapping():
    spec = OpSpec("add", {}, (tensor(1, 3, 6),) * 2, (tensor(1, 3, 6),))
    assert mappings_of(spec) == (TileMapping((1, 1), (1,), 3), TileMapping((2, 2), (2,), 6))


def test_values_without_elements_are_in_no_mapping():
    assert mappings_of(OpSpec("add", {}, (tensor(4, 0, 6),) * 2, (tensor(4, 0, 6),))) == ()
    parts = OpSpec("concatenate", {"dimension": 1}, (tensor(4, 0), tensor(4, 3)), (tensor(4, 3),))
    assert mappings_of(parts) == ()


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ((16,), (4, 4), [(0, 0, 4, None), (0, 1, 4, 0)]),
        ((8, 12, 64), (96, 64), [(0, 0, 8, None), (1, 0, 12, 0), (WHOLE, 0, 96, None), (2, 1, 64, None)]),
        ((8, 768), (8, 12, 64), [(0, 0, 8, None), (1, 1, 12, None), (1, 2, 64, 1)]),
        ((1, 8, 1, 6), (8, 6), [(1, 0, 8, None), (3, 1, 6, None)]),
        ((6, 4), (4, 6), [(0, 0, 2, None)]),
        ((3, 4), (2, 6), []),
        ((0, 4), (4, 0), []),
    ],
)
def test_reshape_slices_the_factors_of_each_group_major_first(source, target, expected):
    """(operand dim, result dim, extent, the mapping that has to be used up before) of each."""
    spec = OpSpec("reshape", {}, (tensor(*source),), (tensor(*target),))
    found = mappings_of(spec)
    rows = [(m.operands[0], m.results[0], m.extent, found.index(m.after) if m.after else None) for m in found]
    assert rows == expected


def test_what_reshape_merges_is_drawn_to_the_major_end_or_read_whole():
    found = mappings_of(OpSpec("reshape", {}, (tensor(8, 12, 64),), (tensor(96, 64),)))
    assert [m.drawn_by for m in found] == [((0, 1),), (), ((0, 1),), ()]


def test_a_boolean_reduction_combines_by_or_and_a_maximum_by_max():
    over = {"dimensions": (0,)}
    booleans = OpSpec("reduce", over, (tensor(4, dtype="i1"), tensor(dtype="i1")), (tensor(dtype="i1"),), "add")
    floats = OpSpec("reduce", over, (tensor(4), tensor()), (tensor(),), "max")
    assert mappings_of(booleans) == (TileMapping((0, WHOLE), (OR,), 4),)
    assert mappings_of(floats) == (TileMapping((0, WHOLE), (MAX,), 4),)


def test_a_vocabulary_sharded_embedding_is_a_sum_and_so_is_its_gradient_over_tokens():
    lookup = {
        "dimension_numbers": {
            "offset_dims": (1,),
            "collapsed_slice_dims": (0,),
            "operand_batching_dims": (),
            "start_indices_batching_dims": (),
            "start_index_map": (0,),
            "index_vector_dim": 1,
        },
        "slice_sizes": (1, 8),
    }
    gather = OpSpec("gather", lookup, (tensor(100, 8), tensor(16, 1, dtype="i32")), (tensor(16, 8),))
    assert TileMapping((0, WHOLE), (SUM,), 100) in (mappings_of(gather) or ())
    update = {
        "scatter_dimension_numbers": {
            "update_window_dims": (1,),
            "inserted_window_dims": (0,),
            "input_batching_dims": (),
            "scatter_indices_batching_dims": (),
            "scattered_dims_to_operand_dims": (0,),
            "index_vector_dim": 1,
        }
    }
    operands = (tensor(100, 8), tensor(16, 1, dtype="i32"), tensor(16, 8))
    scatter = OpSpec("scatter", update, operands, (tensor(100, 8),), "add")
    assert mappings_of(scatter) == (
        TileMapping((WHOLE, 0, 0), (SUM,), 16),
        TileMapping((0, WHOLE, WHOLE), (0,), 100),
        TileMapping((1, WHOLE, 1), (1,), 8),
    )


def test_specs_with_splat_constants_are_equal_only_if_the_value_is():
    one, two = (OpSpec("constant", {"value": np.float32(v)}, (), (tensor(4),)) for v in (1, 2))
    assert one != two
