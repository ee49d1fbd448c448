"""Is every bad input met by an error that says what is wrong and what is legal instead?"""

from __future__ import annotations

import gzip

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"batch": 4, "model": 2})
X = jax.ShapeDtypeStruct((8, 6), "float32")
PARAMS = {"blocks": [{"w": jax.ShapeDtypeStruct((6, 10), "float32"), "b": jax.ShapeDtypeStruct((10,), "float32")}]}


def model(params, x):
    block = params["blocks"][0]
    return ap.tag("hidden", x @ block["w"]) + block["b"]


def lower(*schedule, mesh=MESH, fun=model):
    return ap.jit(fun, mesh, schedule).lower(PARAMS, X)


def tactic(inputs, axis="batch"):
    return ap.ManualPartition(inputs, axis=axis, name="T")


def test_unknown_argument_names_the_closest():
    with pytest.raises(ap.UnknownNameError, match=r'no argument, tag or output matches the name "parms"[\s\S]*params'):
        lower(tactic({"parms": 0}))


def test_unknown_path_names_the_closest():
    with pytest.raises(
        ap.UnknownNameError, match=r'no path below "params" matches the path "blocks/0/ww"[\s\S]*blocks/0/w'
    ):
        lower(tactic({"params": {"blocks/0/ww": 0}}))


def test_glob_that_matches_nothing_is_an_error():
    with pytest.raises(ap.UnknownNameError, match='the glob "\\*/kernel"'):
        lower(tactic({"params": {"*/kernel": 0}}))


def test_dim_out_of_range_says_the_rank():
    with pytest.raises(ap.TileError, match=r"cannot tile x: f32\[8,6\] on dim 2[\s\S]*it has 2 dims"):
        lower(tactic({"x": 2}))


def test_axis_not_in_mesh_names_the_closest():
    with pytest.raises(ap.MeshError, match=r'axis "modle" is not in the mesh \{batch:4, model:2\}[\s\S]*model'):
        lower(tactic({"x": 0}, axis="modle"))


def test_dim_not_divisible_says_which_dims_and_axes_would_do():
    with pytest.raises(ap.TileError) as error:
        lower(tactic({"x": 1}))
    text = str(error.value)
    assert 'cannot tile x: f32[8,6] on dim 1 along mesh axis "batch" (size 4)' in text
    assert 'by   ManualPartition "T" (tactic 1 of 1)' in text
    assert "why  6 is not a multiple of 4" in text
    assert 'try  dim 0 (8 = 4 * 2), or axis "model" (size 2 divides 6)' in text


def test_axis_already_used_on_the_value_is_an_error():
    with pytest.raises(ap.TileError, match="this axis already tiles its dim 0"):
        lower(tactic({"x": 0}, axis="model"), tactic({"x": 1}, axis="model"))


def test_keeping_whole_what_an_earlier_tactic_tiled_is_an_error():
    with pytest.raises(ap.TileError, match="an earlier tactic tiled its dim 0"):
        lower(tactic({"x": 0}), tactic({"x": ap.REPLICATED}))


def test_two_values_for_one_path_is_an_error():
    with pytest.raises(ap.TileError, match="two decisions for params/blocks/0/w"):
        lower(tactic({"params": {"*/w": 1, "blocks/*": 0}}, axis="model"))


def test_value_that_is_no_decision_is_an_error():
    with pytest.raises(ap.TileError, match="'rows' is not a decision"):
        lower(tactic({"x": "rows"}))


def test_wrong_number_of_decisions_for_the_axes_is_an_error():
    with pytest.raises(ap.TileError, match="3 decisions for 2 axes"):
        lower(tactic({"x": (0, 1, 1)}, axis=("batch", "model")))


def test_something_else_than_a_tactic_in_the_schedule_is_an_error():
    with pytest.raises(ap.ArgumentError, match=r"schedule is [\s\S]*a list of tactics"):
        lower({"x": 0})


def test_empty_schedule_replicates():
    lowered = lower()
    assert lowered.metadata.tactics == ()
    assert set(lowered.metadata.in_specs.values()) == {()}


def test_mesh_larger_than_the_devices_says_how_many_are_missing():
    step = ap.jit(model, ap.Mesh({"batch": 2048}), [])
    assert step.lower(PARAMS, X).metadata.mesh == {"batch": 2048}
    with pytest.raises(ap.CallError, match="needs 2048 devices, and 8 are here: 2040 missing"):
        step({"blocks": [{"w": np.ones((6, 10), "f4"), "b": np.ones(10, "f4")}]}, np.ones((8, 6), "f4"))


@pytest.mark.parametrize(
    "data",
    [b"not a module", gzip.compress(b"func.func @main(", mtime=0), b"\x00\x01"],
    ids=["words", "gzip", "bytes"],
)
def test_malformed_file_is_an_error(tmp_path, data):
    path = tmp_path / "model.mlir"
    path.write_bytes(data)
    with pytest.raises(ap.ProgramError, match="is not a StableHLO module"):
        ap.load(path)


def test_a_file_of_jax_export_is_loaded_and_a_damaged_one_is_said(tmp_path):
    path = tmp_path / "function.bin"
    written = jax.export.export(jax.jit(lambda x: jnp.tanh(x) @ x))(jax.ShapeDtypeStruct((8, 8), "float32")).serialize()
    path.write_bytes(written)
    loaded = ap.load(path)
    x = np.eye(8, dtype="f4")
    (found,) = ap.jit(loaded, ap.Mesh({"a": 2}), [ap.ManualPartition({loaded.argument_names[0]: 0}, "a")])(x)
    np.testing.assert_allclose(found, np.tanh(x) @ x, rtol=1e-6)
    path.write_bytes(bytes(written[:-40]))
    with pytest.raises(ap.ProgramError, match=r"no function that jax\.export wrote"):
        ap.load(path)


def test_dynamic_shape_is_an_error(tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text("func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> { return %a : tensor<?xf32> }")
    with pytest.raises(ap.ProgramError, match="dynamic shape"):
        ap.load(path)


def test_module_that_already_communicates_is_an_error(tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(
        """func.func @main(%a: tensor<4xf32>) -> tensor<8xf32> {
        %0 = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
             : (tensor<4xf32>) -> tensor<8xf32>
        return %0 : tensor<8xf32> }"""
    )
    with pytest.raises(ap.ProgramError, match="already partitioned"):
        ap.load(path)


def test_compiled_program_called_with_other_shapes_names_the_argument():
    compiled = ap.jit(model, MESH, []).lower(PARAMS, X).compile()
    params = {"blocks": [{"w": jnp.ones((6, 10)), "b": jnp.ones(10)}]}
    with pytest.raises(ap.CallError, match=r"x has shape \[4, 6\][\s\S]*lowered for \[8, 6\]"):
        compiled(params, jnp.ones((4, 6)))
    with pytest.raises(ap.CallError, match="another pytree"):
        compiled(params, jnp.ones((8, 6)), jnp.ones(3))


def test_loaded_program_called_with_other_arguments_says_what_it_takes(tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }")
    step = ap.jit(ap.load(path), MESH, [])
    with pytest.raises(ap.CallError, match=r"takes 1 arrays, got 2"):
        step(np.ones(4, "f4"), np.ones(4, "f4"))


@pytest.mark.parametrize("axes", [{"batch": 0}, {"batch": -2}, {"batch": 2.0}, {"": 2}, {"batch": True}])
def test_malformed_mesh_is_an_error(axes):
    with pytest.raises(ap.MeshError):
        ap.Mesh(axes)


def test_unknown_text_form_lists_the_known():
    with pytest.raises(ValueError, match='"core", "hlo" and "stablehlo"'):
        lower().as_text("html")


def test_strict_mode_raises_at_a_conflict_with_its_line():
    def gram(x):
        return x @ x.T

    step = ap.jit(gram, MESH, [tactic({"x": 0})], strict=True)
    with pytest.raises(
        ap.BlockedError, match=r"1 places where propagation stops[\s\S]*dot_general[\s\S]*test_bad_input.py"
    ):
        step.lower(X)


def test_what_jax_exports_is_loaded_and_refused_where_it_is_damaged(tmp_path):
    data = jax.export.export(jax.jit(lambda x: jnp.tanh(x)))(jnp.ones(8)).mlir_module_serialized
    file = tmp_path / "exported.bin"
    file.write_bytes(data)
    low = ap.jit(ap.load(file, argument_names=["x"]), ap.Mesh({"batch": 8})).lower()
    assert "tanh(%x)" in low.as_text("program")
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(ap.ProgramError):
        ap.load(file)
