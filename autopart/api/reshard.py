"""Arrays from one sharding to another by our own redistribution, as a drop-in for `jax.device_put`.

    y = ap.reshard(x, NamedSharding(mesh, P(None, "x")))       x: jax.Array, or a pytree of them
    print(ap.redistribution_plan(P("x"), P(None, "x"), (8, 8), "float32", ap.Mesh({"x": 4})))

        [2{x}8, 8] -> [8, 2{x}8] on {x:4}: cost 16, height 1
          all_to_all {0 -> 1} <"x">  [8, 2{x}8]

Where XLA gathers the whole array and slices it again, this never holds more on a device than the larger of source and
target. The plan is emitted by the emitter of the compiler, and runs inside `jax.shard_map`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.custom_derivatives import linear_call
from jax.sharding import NamedSharding, PartitionSpec

from autopart.base.arguments import FLAG, Kind, check, instance, sequence, whole
from autopart.base.errors import CallError
from autopart.core.doors.jax_internals import device_local_call, element_type, func, ir, make_context, wrap_key
from autopart.core.mesh import Mesh
from autopart.spmd.device_local import COST
from autopart.spmd.emission.emitter import Emitter
from autopart.spmd.redistribution import CollectiveCost, DistributedType, DistributedTypeError, Plan, plan


def _is_dtype(value: Any) -> bool:
    if not isinstance(value, (str, type, np.dtype)) and not hasattr(value, "dtype"):
        return False
    try:
        return np.dtype(value).itemsize > 0
    except (TypeError, ValueError, SyntaxError):
        return False


_SPEC = instance("a jax.sharding.PartitionSpec", PartitionSpec)
_SHAPE = sequence(whole(0), "a shape, such as (8, 8)")
_MESH = instance("an ap.Mesh({...})", Mesh)
_DTYPE = Kind("an element type, such as 'float32'", _is_dtype)


def redistribution_plan(
    source: PartitionSpec,
    target: PartitionSpec,
    shape: tuple[int, ...],
    dtype: Any,
    mesh: Mesh,
    *,
    cost: str | CollectiveCost = "elements",
) -> Plan:
    """The sequence of collectives from one PartitionSpec to another; `print` shows it.

    shape  global shape; dtype anything NumPy takes; mesh an `ap.Mesh`, for which no devices are needed
    cost   "elements" (default), or an object with `step_cost`, such as `AlphaBeta`
    `.steps` are typed collectives, `.cost` is in elements per device (or in the unit of `cost`), and `.height` is the
    largest local size on the way over the larger of source's and target's. Raises `DistributedTypeError` where a dim
    is not divisible or an axis is unknown.

    >>> from jax.sharding import PartitionSpec as P
    >>> redistribution_plan(P("x"), P(None, "x"), (8, 8), "float32", Mesh({"x": 4})).cost
    16
    """
    owner = "redistribution_plan"
    check(owner, source=(source, _SPEC), target=(target, _SPEC), shape=(shape, _SHAPE), mesh=(mesh, _MESH))
    check(owner, dtype=(dtype, _DTYPE), cost=(cost, COST))
    sizes = mesh.shape
    return plan(
        _distributed(shape, source, sizes),
        _distributed(shape, target, sizes),
        element_bytes=np.dtype(dtype).itemsize,
        cost=cost,
    )


def reshard(
    x: Any,
    target: Any,
    *,
    source: Any = None,
    donate: bool = False,
    cost: str | CollectiveCost = "elements",
) -> Any:
    """`x` with the sharding `target`, moved by a memory-efficient sequence of collectives.

    x       a jax.Array sharded by a `NamedSharding`, or a pytree of such
    target  a `NamedSharding` on the same mesh, or a pytree of them that is a prefix of x's
    source  the sharding x has inside `jax.jit`, where arrays do not carry one (a prefix pytree too); XLA brings x into
            it first if it is laid out differently. Not needed outside jit, nor on meshes with explicit axes
    donate  give up x's buffers

    Raises `CallError` where x's sharding is unknown or not a NamedSharding, or the meshes differ, and
    `DistributedTypeError` where a dim is not divisible. Plans and programs are cached.
    """
    check("ap.reshard", donate=(donate, FLAG), cost=(cost, COST))
    leaves, tree = jax.tree.flatten(x)
    targets = _broadcast(target, x, "target")
    sources = [None] * len(leaves) if source is None else _broadcast(source, x, "source")
    triples = zip(leaves, sources, targets, strict=True)
    return jax.tree.unflatten(tree, [_reshard(leaf, before, after, donate, cost) for leaf, before, after in triples])


def _broadcast(prefix: Any, x: Any, name: str) -> list[Any]:
    def is_sharding(node: Any) -> bool:
        return isinstance(node, jax.sharding.Sharding)

    try:
        whole = jax.tree.broadcast(prefix, x, is_leaf=is_sharding)
    except ValueError as error:
        raise CallError(f"the pytree of {name} shardings does not fit the arrays", why=str(error)) from None
    return jax.tree.leaves(whole, is_leaf=is_sharding)


def _distributed(shape: tuple[int, ...], spec: PartitionSpec, sizes: dict[str, int]) -> DistributedType:
    if len(spec) > len(shape):
        raise DistributedTypeError(f"{spec} has {len(spec)} entries", why=f"the array {tuple(shape)} has {len(shape)}")
    dims: list[tuple[str, ...]] = [()] * len(shape)
    for dim, entry in enumerate(spec):
        if entry is PartitionSpec.UNCONSTRAINED:
            raise DistributedTypeError(f"{spec} leaves dim {dim} open", hint="None, or the axes that cut it")
        dims[dim] = () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
    return DistributedType.of(shape, dims, sizes)


def _reshard(x: Any, before: Any, after: Any, donate: bool, cost: str | CollectiveCost) -> Any:
    before = _source_of(x) if before is None else before
    for name, sharding in (("source", before), ("target", after)):
        if not isinstance(sharding, NamedSharding):
            raise CallError(
                f"the {name} is a {type(sharding).__name__}",
                why="a redistribution is between two ways to cut an array along the axes of one mesh",
                hint="a jax.sharding.NamedSharding; jax.device_put brings an array onto a mesh",
            )
    if not _same_mesh(before.mesh, after.mesh):
        raise CallError(
            f"source and target are on different meshes: {dict(before.mesh.shape)} and {dict(after.mesh.shape)}",
            hint="the same mesh for both; jax.device_put moves arrays between meshes",
        )
    if before.memory_kind != after.memory_kind and isinstance(before.mesh, jax.sharding.Mesh):
        raise CallError(
            f"source and target are in different memories: {before.memory_kind} and {after.memory_kind}",
            hint="jax.device_put moves arrays between memories",
        )
    mesh = after.mesh if isinstance(after.mesh, jax.sharding.Mesh) else before.mesh
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
        bits = jax.random.key_data(x)
        return wrap_key(_program(bits.shape, bits.dtype, mesh, before.spec, after.spec, donate, cost)(bits), x.dtype)
    return _program(tuple(x.shape), np.dtype(x.dtype), mesh, before.spec, after.spec, donate, cost)(x)


def _source_of(x: Any) -> Any:
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise CallError(f"cannot reshard a {type(x).__name__}", hint="a jax.Array, or a pytree of them")
    if not isinstance(x, Tracer):
        return getattr(x, "sharding", None)
    known = getattr(jax.typeof(x), "sharding", None)
    if known is None or not any(t == jax.sharding.AxisType.Explicit for t in known.mesh.axis_types):
        raise CallError(
            "inside jax.jit an array does not carry its sharding",
            hint="reshard(x, target, source=NamedSharding(mesh, PartitionSpec(...)))",
        )
    return known


def _same_mesh(one: Any, other: Any) -> bool:
    """Equal axes, and equal devices in the same order where both meshes have devices (an abstract mesh has none)."""
    concrete = [m for m in (one, other) if isinstance(m, jax.sharding.Mesh)]
    orders = {tuple(d.id for d in m.devices.flat) for m in concrete}
    return one.shape_tuple == other.shape_tuple and len(orders) <= 1


@functools.lru_cache(maxsize=4096)
def _program(
    shape: tuple[int, ...],
    dtype: np.dtype,
    mesh: jax.sharding.Mesh,
    before: PartitionSpec,
    after: PartitionSpec,
    donate: bool,
    cost: str | CollectiveCost,
) -> Callable[[jax.Array], jax.Array]:
    there, back = (_sharded(shape, dtype, mesh, *specs, cost) for specs in ((before, after), (after, before)))

    def run(x: jax.Array) -> jax.Array:
        """Linear: a tangent moves as x does, and a cotangent moves back."""
        return linear_call(lambda _, x: there()(x), lambda _, y: back()(y), (), x)

    return jax.jit(run, donate_argnums=(0,) if donate else ())


def _sharded(
    shape: tuple[int, ...],
    dtype: np.dtype,
    mesh: jax.sharding.Mesh,
    before: PartitionSpec,
    after: PartitionSpec,
    cost: str | CollectiveCost,
) -> Callable[[], Callable[[jax.Array], jax.Array]]:
    """Makes the function from `before` to `after` when it is asked for."""

    def make() -> Callable[[jax.Array], jax.Array]:
        source, target = (_distributed(shape, spec, dict(mesh.shape)) for spec in (before, after))
        local = device_local_plan(plan(source, target, element_bytes=dtype.itemsize, cost=cost), dtype)
        return jax.shard_map(lambda x: local(x)[0], mesh=mesh, in_specs=before, out_specs=after, check_vma=False)

    return make


def device_local_plan(steps: Plan, dtype: np.dtype) -> Callable[[jax.Array], list[jax.Array]]:
    """What each device does for `steps`, as a function of its tile; call it inside `jax.shard_map`."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.create()
        ends = (steps.source.local_shape, steps.target.local_shape)
        types = [ir.RankedTensorType.get(list(shape), element_type(dtype)) for shape in ends]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(types[:1], types[1:]), visibility="public")
            block = main.add_entry_block()
        with ir.InsertionPoint(block):
            emitter = Emitter(Mesh(dict(steps.source.mesh)))
            emitter.begin()
            value = block.arguments[0]
            for step in steps.steps:
                value = emitter.emit(step, value)
            func.ReturnOp([value])
        return device_local_call(module, [(steps.target.local_shape, dtype)])
