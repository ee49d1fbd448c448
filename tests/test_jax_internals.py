"""Is what the one door to jax's internals relies on still there? The first test to read after a jax upgrade."""

from __future__ import annotations

import importlib

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

RELIED_ON = {
    "jax.extend.core": ["Primitive", "jaxprs_in_params"],
    "jax.extend.mlir.ir": [
        "Context", "DenseElementsAttr", "DenseI64ArrayAttr", "FlatSymbolRefAttr", "InsertionPoint", "IntegerAttr",
        "Location", "MLIRError", "Module", "Operation", "RankedTensorType", "StringAttr", "UnitAttr",
    ],
    "jax.extend.mlir.dialects.func": ["CallOp", "FuncOp", "ReturnOp"],
    "jax.extend.mlir.dialects.stablehlo": [
        "ChannelHandle", "CaseOp", "IfOp", "WhileOp", "constant", "convert", "divide", "dynamic_slice", "multiply",
        "optimization_barrier", "partition_id", "remainder", "reshape", "return_", "transpose",
    ],
    "jax": ["Ref"],
    "jax.lax": ["convert_element_type_p"],
    "jax.interpreters.mlir": [
        "LoweringParameters", "aval_to_ir_type", "dtype_to_ir_type", "ir_tree_registry", "lower_fun", "make_ir_context",
        "merge_mlir_modules", "register_lowering",
    ],
    "jax._src.core": ["trace_state_clean"],
    "jax._src.distributed": ["global_state"],
    "jaxlib.mlir.dialects.sdy": ["ManualAxesAttr", "MeshAttr", "MeshAxisAttr", "TensorShardingAttr"],
    "jax._src.api_util": ["InternalFloatingPointError"],
    "jax._src.array": ["ArrayImpl"],
    "jax._src.interpreters.pxla": ["JitGlobalCppCacheKeys", "cc_shard_arg"],
    "jax._src.lib": ["_jax"],
    "jax._src.mesh": ["get_concrete_mesh", "thread_resources"],
    "jax._src.source_info_util": ["user_frames"],
    "jax._src.pjit": ["_get_fastpath_data"],
    "jax._src.tree_util": ["dispatch_registry"],
    "jax._src.callback": ["io_callback_p", "pure_callback_p"],
    "jax._src.debugging": ["debug_callback_p", "debug_print_p"],
    "jax._src.effects": ["ordered_effects"],
    "jax.interpreters.ad": ["deflinear2", "primitive_jvps"],
    "jax.interpreters.batching": ["primitive_batchers"],
}  # fmt: skip


@pytest.mark.parametrize("module", RELIED_ON)
def test_names_relied_on_exist(module):
    found = importlib.import_module(module)
    gone = [name for name in RELIED_ON[module] if not hasattr(found, name)]
    assert not gone, f"jax {jax.__version__} has no {module}.{gone}: adapt autopart/core/doors/jax_private.py"


def test_a_device_local_module_runs_in_shard_map_and_knows_its_device():
    """Parsing, bytecode, merging, the call, and partition_id as the row-major position in the mesh."""
    from autopart.core.doors.jax_internals import device_local_call, parse_module

    module = parse_module("""
        func.func public @main(%x: tensor<1x1xi32>) -> tensor<1x1xi32> {
          %device = stablehlo.partition_id : tensor<ui32>
          %number = stablehlo.convert %device : (tensor<ui32>) -> tensor<i32>
          %tile = stablehlo.broadcast_in_dim %number, dims = [] : (tensor<i32>) -> tensor<1x1xi32>
          %y = stablehlo.add %x, %tile : tensor<1x1xi32>
          return %y : tensor<1x1xi32>
        }""")
    call = device_local_call(module, [((1, 1), np.dtype("int32"))])
    mesh = Mesh(np.array(jax.devices()[:8])[::-1].reshape(2, 4), ("a", "b"))
    run = jax.shard_map(lambda x: call(x)[0], mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"), check_vma=False)
    says = f"jax {jax.__version__} no longer runs a merged module inside shard_map: see device_local_call"
    assert np.array_equal(jax.jit(run)(np.zeros((2, 4), np.int32)), np.arange(8).reshape(2, 4)), says


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "bfloat16", "float32", "complex64"])
def test_element_types_go_to_mlir_and_back(dtype):
    from autopart.core.doors.jax_internals import element_type, ir, make_context, numpy_dtype

    with make_context(), ir.Location.unknown():
        assert numpy_dtype(str(element_type(jax.numpy.dtype(dtype)))) == jax.numpy.dtype(dtype)
