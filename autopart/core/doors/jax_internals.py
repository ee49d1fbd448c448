"""MLIR bindings, and primitives that lower to modules of our own.

What it needs of jax's private modules comes by `jax_private.py`.

    parse_module(text | bytecode)      a StableHLO module in a fresh context
    device_local_call(module, types)   runs a device-local module inside jax.shard_map
    xla_flop(module, types)            how many flop XLA counts in it
    tag_p, tagged                      the identity that carries a name into StableHLO, and its op
"""

from __future__ import annotations

import functools
import io
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import chlo, func, stablehlo
from jax.interpreters import ad, batching, mlir

from autopart.base.errors import CallError, ProgramError
from autopart.core.doors.host_callbacks import Body, emit_bodies, operations
from autopart.core.doors.jax_private import get_concrete_mesh, global_state, sdy, thread_resources, trace_state_clean
from autopart.core.doors.xla_options import QUICK_ON_CPU, known
from autopart.core.op import TensorType

__all__ = [
    "TAG_ATTRIBUTE",
    "barrier",
    "chlo",
    "compiled_alone",
    "device_local_call",
    "func",
    "ir",
    "is_array",
    "is_complex",
    "is_tracing",
    "least_number",
    "make_context",
    "module_text",
    "numpy_dtype",
    "parse_module",
    "register_lapack",
    "sdy",
    "stablehlo",
    "tag_p",
    "tagged",
    "weakly_typed",
    "wrap_key",
    "xla_flop",
]

TAG_ATTRIBUTE = "autopart.tag"
"""Key of the frontend attribute under which an op carries a tag's name."""


def make_context() -> ir.Context:
    """A context that knows the dialects jax emits (func, stablehlo, chlo, sdy, ...)."""
    return mlir.make_ir_context()


def parse_module(source: str | bytes, name: str = "module") -> ir.Module:
    """A module from MLIR text or bytecode, or from StableHLO's portable bytecode, as `jax.export` writes it.

    Raises `ProgramError` with MLIR's message if it is malformed.
    """
    context = make_context()
    try:
        with context:
            if isinstance(source, bytes) and b"StableHLO_v" in source[:64]:
                return stablehlo.deserialize_portable_artifact(context, source)
            return ir.Module.parse(source)
    except (ir.MLIRError, ValueError) as error:
        raise ProgramError(f"{name} is not a StableHLO module", why=" ".join(str(error).split())[:300]) from None


@functools.cache
def _dtypes() -> dict[str, np.dtype]:
    names = [n for n in dir(jax.numpy) if n.startswith(("float", "bfloat", "int", "uint", "complex", "bool"))]
    types = [getattr(jax.numpy.__dict__[n], "dtype", None) for n in names]
    known = [t for t in types if isinstance(t, np.dtype)]
    with make_context(), ir.Location.unknown():
        found = {str(mlir.dtype_to_ir_type(dtype)): dtype for dtype in known}
    return {**found, "i1": np.dtype(bool)}


def numpy_dtype(dtype: str) -> np.dtype:
    """The NumPy dtype of a StableHLO element type (bf16, f32, i1, ui8, complex<f32>)."""
    if dtype not in _dtypes():
        raise ProgramError(f"element type {dtype} has no NumPy counterpart", hint=", ".join(sorted(_dtypes())))
    return _dtypes()[dtype]


def least_number(dtype: np.dtype) -> float:
    """The least finite number of a float type, also of those that NumPy does not know."""
    return float(jax.numpy.finfo(dtype).min)


def element_type(dtype: Any) -> ir.Type:
    """The MLIR element type of a NumPy dtype, in the current context."""
    return mlir.dtype_to_ir_type(np.dtype(dtype))


def wrap_key(bits: jax.Array, dtype: Any) -> jax.Array:
    """PRNG keys of a key dtype from their raw bits."""
    return jax.random.wrap_key_data(bits, impl=dtype._impl.name)


def weakly_typed(array: jax.Array) -> jax.Array:
    """The array with a weak type: its dtype gives way to that of an array that it is combined with."""
    return jax.lax.convert_element_type_p.bind(array, new_dtype=array.dtype, weak_type=True, sharding=None)


def is_tracing() -> bool:
    """True while jax traces the code around the call: what is called becomes part of a program, and runs with it."""
    return not trace_state_clean()


def context_mesh() -> jax.sharding.Mesh | None:
    """The mesh of devices that `jax.set_mesh` or `with mesh:` has set; None where none is."""
    meshes = get_concrete_mesh(), thread_resources.env.physical_mesh
    return next((mesh for mesh in meshes if not mesh.empty), None)


def distributed_processes() -> tuple[Any, int, int] | None:
    """(key-value store, number of this process, number of processes) of `jax.distributed`; None where there is one.

    No backend is started by asking.
    """
    if global_state.client is None or global_state.num_processes < 2:
        return None
    return global_state.client, global_state.process_id, global_state.num_processes


def register_lapack() -> None:
    """Lets XLA's CPU backend find the LAPACK kernels, which jax registers when it first lowers a call to one."""
    jax.jit(jax.numpy.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), np.float32))


def is_array(value: Any) -> bool:
    """True for what jax takes as an array: arrays of numbers or keys, numbers, abstract values."""
    if isinstance(value, int):
        return value.bit_length() <= (63 if jax.config.jax_enable_x64 else 31)  # pyright: ignore
    if isinstance(value, (float, complex, np.generic, np.ndarray, jax.Array)):
        return not isinstance(value, (np.generic, np.ndarray)) or value.dtype.kind not in "OUSMm"
    return isinstance(value, jax.ShapeDtypeStruct) or hasattr(value, "__jax_array__")


# ---- calling a device-local module

_call_p = Primitive("autopart_call")
_call_p.multiple_results = True


@_call_p.def_effectful_abstract_eval
def _call_abstract(*operands: Any, module: _Module) -> tuple[Sequence[Any], set[Any]]:
    return module.result_avals, {effect for body in module.bodies for effect in body.effects}


def _call_lowering(
    ctx: mlir.LoweringRuleContext, *operands: ir.Value, module: _Module, on_cpu: bool = False
) -> Sequence[ir.Value]:
    context = ctx.module_context.module.context
    with context:
        copy = ir.Module.parse(module.bytecode)
    if on_cpu and module.on_cpu is not None:
        module.on_cpu(copy)
    main = next(op for op in copy.body.operations if str(op.attributes["sym_name"]) == '"main"')
    results = cast(Any, main).type.results
    name = mlir.merge_mlir_modules(
        ctx.module_context.module, "autopart_device_local", copy, dst_symtab=ctx.module_context.symbol_table
    )
    if module.bodies:
        emit_bodies(ctx, ctx.module_context.symbol_table[name].operation, module.bodies)
    return func.CallOp(results, ir.FlatSymbolRefAttr.get(name), list(operands)).results


mlir.register_lowering(_call_p, _call_lowering)
mlir.register_lowering(_call_p, functools.partial(_call_lowering, on_cpu=True), platform="cpu")


def _not_differentiable(*_: Any, **__: Any) -> Any:
    raise CallError(
        "a partitioned function cannot be differentiated",
        why="partitioning has turned it into one program for each device, of which no derivative is known",
        hint="transform first, then partition: ap.jit(jax.grad(f), mesh, schedule)",
    )


def _not_batched(*_: Any, **__: Any) -> Any:
    raise CallError(
        "a partitioned function cannot be mapped over a batch",
        why="partitioning has turned it into one program for each device, for arrays of fixed rank",
        hint="transform first, then partition: ap.jit(jax.vmap(f), mesh, schedule)",
    )


ad.primitive_jvps[_call_p] = _not_differentiable
ad.primitive_transposes[_call_p] = _not_differentiable
batching.primitive_batchers[_call_p] = _not_batched


class _Module:
    """A module as a parameter of the primitive: equal by identity, so that jit caches by module."""

    def __init__(
        self,
        module: ir.Module,
        result_avals: Sequence[Any],
        bodies: Sequence[Body],
        on_cpu: Callable[[ir.Module], None] | None,
    ):
        self.bytecode, self.on_cpu = _bytecode(module), on_cpu
        self.result_avals = tuple(result_avals)
        self.bodies = tuple(bodies)


def _bytecode(module: ir.Module) -> bytes:
    out = io.BytesIO()
    module.operation.write_bytecode(out)
    return out.getvalue()


def device_local_call(
    module: ir.Module,
    result_types: Sequence[tuple[tuple[int, ...], Any]],
    bodies: Sequence[Body] = (),
    weak: Collection[int] = (),
    on_cpu: Callable[[ir.Module], None] | None = None,
) -> Any:
    """A function of device-local arrays that runs `module`'s main, for `jax.shard_map(..., check_vma=False)`.

    `result_types` gives (local shape, dtype) of each result; `bodies` are what the module calls by index.
    The type of each result whose position is in `weak` is weak: it gives way to the types of arrays. `on_cpu` rewrites
    the copy of the module that CPUs run.
    """
    avals = [ShapedArray(shape, dtype, weak_type=n in weak) for n, (shape, dtype) in enumerate(result_types)]
    wrapped = _Module(module, avals, bodies, on_cpu)
    return lambda *operands: _call_p.bind(*operands, module=wrapped)


Types = Sequence[tuple[tuple[int, ...], Any]]
"""(shape, dtype) per array."""


def compiled_alone(
    module: ir.Module, operands: Types, results: Types, bodies: Sequence[Body] = ()
) -> Callable[..., list[np.ndarray]]:
    """`module`'s main on NumPy arrays, as XLA compiles it for one device: jax's default one.

    `bodies` are the host callbacks and kernels that the module calls by index.
    """
    call = device_local_call(module, results, bodies)
    if bodies:
        everywhere = jax.sharding.PartitionSpec()
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
        call = jax.shard_map(call, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False)
    with jax.enable_x64(True):
        lowered = jax.jit(call, keep_unused=True).lower(*itertools.starmap(jax.ShapeDtypeStruct, operands))
        run = lowered.compile(known(QUICK_ON_CPU) if jax.default_backend() == "cpu" else None)

    def on_host(*arrays: np.ndarray) -> list[np.ndarray]:
        with jax.enable_x64(True):
            return [np.asarray(x) for x in run(*arrays)]

    return on_host


def xla_flop(module: ir.Module, operands: Sequence[TensorType], results: Sequence[TensorType]) -> float:
    """Floating-point operations and transcendentals of `module`'s main as XLA counts them, before it optimises it.

    -1 where XLA does not know. Nothing is compiled and nothing runs.
    """
    call = device_local_call(module, [(t.shape, numpy_dtype(t.dtype)) for t in results])
    with jax.enable_x64(True):
        avals = [jax.ShapeDtypeStruct(t.shape, numpy_dtype(t.dtype)) for t in operands]
        found = jax.jit(call).lower(*avals).cost_analysis()
    if found is None:
        return -1.0
    return float(found.get("flops", 0.0) + found.get("transcendentals", 0.0))


LARGE_CONSTANT = 16
"""Elements of a constant that a module's text still shows."""


def module_text(module: ir.Module) -> str:
    """A module as text that parses again.

    A constant of more than `LARGE_CONSTANT` elements is `dense_resource<__elided__>`. Replica groups and the like are
    written out: an op cannot do without them.
    """
    with module.context, ir.Location.unknown():
        copy = module.operation.clone()
        for op in operations(copy):
            if op.name == "stablehlo.constant" and "__elided__" in op_text(op, LARGE_CONSTANT):
                op.attributes["value"] = ir.Attribute.parse(f"dense_resource<__elided__> : {op.results[0].type}")
        return str(copy.get_asm(large_elements_limit=None))


def op_text(op: ir.Operation, most_elements: int | None = None) -> str:
    """An op as text, without the elements of constants that have more than `most_elements`.

    A copy is printed that stands in no function: to print an op, MLIR numbers all values of the function around it.
    """
    alone: ir.Operation = op.clone(ip=cast(Any, False))
    return str(alone.get_asm(large_elements_limit=most_elements))


def barrier(*values: ir.Value) -> list[ir.Value]:
    """The values, none of which the compiler computes with before all of them are there."""
    op = ir.Operation.create("stablehlo.optimization_barrier", [v.type for v in values], list(values))
    return list(op.results)


def is_complex(value: ir.Value) -> bool:
    """Whether a value is an array of complex numbers."""
    return isinstance(ir.RankedTensorType(value.type).element_type, ir.ComplexType)


def row_major(value: ir.Value) -> ir.Value:
    """The value as an array of its own, laid out row by row: what `with_layout_constraint` of jax lowers to.

    Complex numbers are laid out by their parts: the TPU compiler knows no constraint of a complex array.
    """
    if is_complex(value):
        return stablehlo.complex(row_major(stablehlo.real(value)), row_major(stablehlo.imag(value)))
    rank = ir.RankedTensorType(value.type).rank
    order = ir.Attribute.parse(f"dense<{list(range(rank))[::-1]}> : tensor<{rank}xindex>")
    attributes: dict[str, ir.Attribute] = {
        "call_target_name": ir.StringAttr.get("LayoutConstraint"),
        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
        "operand_layouts": ir.ArrayAttr.get([order]),
        "result_layouts": ir.ArrayAttr.get([order]),
    }
    op = ir.Operation.create("stablehlo.custom_call", [value.type], [value], attributes)
    return op.results[0]


# ---- tag

tag_p = Primitive("autopart_tag")
tag_p.def_impl(lambda x, *, name: x)
tag_p.def_abstract_eval(lambda x, *, name: x)
ad.deflinear2(tag_p, lambda cotangent, x, *, name: [tag_p.bind(cotangent, name=name)])
batching.primitive_batchers[tag_p] = lambda args, dims, *, name: (tag_p.bind(args[0], name=name), dims[0])


def tagged(x: ir.Value, name: str) -> ir.Value:
    """The op that gives a value a tag."""
    op = stablehlo.ReshapeOp(x.type, x)
    op.operation.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get({TAG_ATTRIBUTE: ir.StringAttr.get(name)})
    return op.result


mlir.register_lowering(tag_p, lambda ctx, x, *, name: [tagged(x, name)])
