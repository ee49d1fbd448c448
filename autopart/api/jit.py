"""`ap.jit`: like `jax.jit`, with a mesh and a schedule.

step = ap.jit(train_step, mesh, [BP, MP], donate_argnums=(0, 1))
params, opt_state, loss = step(params, opt_state, batch)        compiled once per input shape
low = step.lower(*abstract_args)                                no devices needed
low.metadata, low.as_text("hlo"), low.compile()
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from autopart.api.metadata import Metadata
from autopart.api.schedule import Scheduled, run_schedule
from autopart.api.tactics import Tactic
from autopart.api.trace import LoadedProgram, Options, Traced, trace
from autopart.core.errors import CallError
from autopart.core.jax_internals import wrap_key
from autopart.core.layout import axes_by_dim
from autopart.core.mesh import Mesh
from autopart.core.text import core_text
from autopart.spmd.device_local import DeviceLocal, LoweringOptions
from autopart.spmd.export import export
from autopart.spmd.run import device_local_function
from autopart.spmd.text import hlo_text


def jit(
    fun: Callable | LoadedProgram,
    mesh: Mesh | jax.sharding.Mesh,
    schedule: Sequence[Tactic] = (),
    *,
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    options: LoweringOptions = LoweringOptions(),
) -> PartitionedFunction:
    """`fun`, partitioned over `mesh` by `schedule`: a callable like `jax.jit` returns.

    It takes NumPy arrays or jax Arrays of any sharding and returns jax Arrays sharded as the schedule decided. A
    donated argument and the output that updates it keep one layout. `mesh` may be a `jax.sharding.Mesh`,
    whose devices are then used; otherwise the first `mesh.size` of `jax.devices()` are, at the first call.
    """
    devices = None
    if isinstance(mesh, jax.sharding.Mesh):
        devices, mesh = mesh.devices, Mesh(dict(mesh.shape))
    trace_options = Options(
        static_argnums=_tuple(static_argnums),
        static_argnames=_tuple(static_argnames),
        donate_argnums=_tuple(donate_argnums),
        donate_argnames=_tuple(donate_argnames),
    )
    return PartitionedFunction(fun, mesh, tuple(schedule), trace_options, options, devices)


def partition(
    fun: Callable | LoadedProgram,
    mesh: Mesh | jax.sharding.Mesh,
    schedule: Sequence[Tactic],
    example_args: Sequence[Any] = (),
    **jit_options: Any,
) -> tuple[PartitionedFunction, Metadata]:
    """The paper's two results: the partitioned callable, and the metadata for `example_args` (abstract or concrete)."""
    partitioned = jit(fun, mesh, schedule, **jit_options)
    return partitioned, partitioned.lower(*example_args).metadata


def _tuple(one_or_many: Any) -> tuple:
    return (one_or_many,) if isinstance(one_or_many, (int, str)) else tuple(one_or_many)


class PartitionedFunction:
    """What `jit` returns: call it, or `lower` it for abstract arguments."""

    def __init__(
        self,
        fun: Callable | LoadedProgram,
        mesh: Mesh,
        schedule: tuple[Tactic, ...],
        trace_options: Options,
        options: LoweringOptions,
        devices: np.ndarray | None,
    ):
        self._fun, self.mesh, self.schedule = fun, mesh, schedule
        self._trace_options, self._options, self._devices = trace_options, options, devices
        self._compiled: dict[Any, Compiled] = {}
        functools.update_wrapper(self, cast(Callable, fun), updated=())

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The partitioned program for arguments (arrays or `jax.ShapeDtypeStruct`) of these shapes, without devices."""
        traced = trace(self._fun, self._trace_options, platform_of(self.mesh), args, kwargs)
        scheduled = run_schedule(traced.program, self.mesh, self.schedule, self._options)
        return Lowered(traced, scheduled, self.mesh, self._devices)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs it on the mesh's devices, compiling once per input shape."""
        key, dynamic = self._split(args, kwargs)
        if key not in self._compiled:
            self._compiled[key] = self.lower(*args, **kwargs).compile()
        return self._compiled[key](*dynamic[0], **dynamic[1])

    def _split(self, args: tuple, kwargs: dict) -> tuple[Any, tuple[tuple, dict]]:
        options = self._trace_options
        static_at = {n % len(args) for n in options.static_argnums if -len(args) <= n < len(args)}
        static_at |= {i for i, name in enumerate(self._positional) if name in options.static_argnames and i < len(args)}
        statics = tuple(args[i] for i in sorted(static_at))
        named = tuple((k, v) for k, v in sorted(kwargs.items()) if k in options.static_argnames)
        dynamic = tuple(a for i, a in enumerate(args) if i not in static_at)
        keywords = {k: v for k, v in kwargs.items() if k not in options.static_argnames}
        leaves, tree = jax.tree.flatten((dynamic, keywords))
        types = tuple((np.shape(x), jax.dtypes.result_type(x), _weak(x)) for x in leaves)
        return (statics, named, tree, types), (dynamic, keywords)

    @functools.cached_property
    def _positional(self) -> list[str]:
        try:
            return list(inspect.signature(cast(Callable, self._fun)).parameters)
        except (TypeError, ValueError):
            return []


def _weak(x: Any) -> bool:
    return getattr(x, "weak_type", isinstance(x, (int, float, complex)))


def platform_of(mesh: Mesh) -> str:
    """The platform a mesh's program is lowered for: its device's kind, else the default backend's."""
    kind = mesh.device or ""
    if kind.startswith("tpu"):
        return "tpu"
    if kind and not kind.startswith("cpu"):
        return "cuda"
    return "cpu" if kind else jax.default_backend().replace("gpu", "cuda")


@dataclass(frozen=True)
class Lowered:
    """A partitioned program, ahead of time. Needs no devices until it is compiled."""

    traced: Traced
    scheduled: Scheduled
    mesh: Mesh
    devices: np.ndarray | None = None

    @property
    def program(self) -> DeviceLocal:
        """The device-local program: what cost models take."""
        return self.scheduled.device_local

    @functools.cached_property
    def metadata(self) -> Metadata:
        """One report per tactic, and where inputs and outputs live."""
        program = self.traced.program
        outputs = [f"outputs/{n}".rstrip("/") for n in program.output_names]
        return Metadata(
            mesh=self.mesh.shape,
            device=self.mesh.device,
            tactics=self.scheduled.reports,
            in_specs=dict(zip(program.argument_names, map(self._axes, self._input_layouts), strict=True)),
            out_specs=dict(zip(outputs, map(self._axes, self._output_layouts), strict=True)),
        )

    @property
    def in_shardings(self) -> Any:
        """NamedShardings of the inputs, as the pytree `(args, kwargs)`."""
        return jax.tree.unflatten(self.traced.in_tree, self._shardings(self._input_layouts, self.traced.in_avals))

    @property
    def out_shardings(self) -> Any:
        """NamedShardings of the outputs, in their pytree."""
        return jax.tree.unflatten(self.traced.out_tree, self._shardings(self._output_layouts, self.traced.out_avals))

    def as_jax_shardings(self) -> tuple[Any, Any]:
        """(in_shardings, out_shardings) on real devices, for plain `jax.jit`: XLA's partitioner does the rest.

        The inputs' shardings are one pytree per positional argument, as `jax.jit` takes them.
        """
        mesh = concrete_mesh(self.mesh, self.devices)
        inputs = self._shardings(self._input_layouts, self.traced.in_avals, mesh)
        outputs = self._shardings(self._output_layouts, self.traced.out_avals, mesh)
        args, kwargs = jax.tree.unflatten(self.traced.in_tree, inputs)
        if kwargs:
            raise CallError(
                f"jax.jit takes no shardings for keyword arguments ({', '.join(kwargs)})",
                hint="lower with positional arguments",
            )
        return args, jax.tree.unflatten(self.traced.out_tree, outputs)

    def as_text(self, form: str = "hlo") -> str:
        """As text: "core" (PartIR:Core), "hlo" (device-local, collectives over axes) or "stablehlo" (what runs)."""
        match form:
            case "core":
                return core_text(self.scheduled.partitioning)
            case "hlo":
                return hlo_text(self.program)
            case "stablehlo":
                return self.exported.operation.get_asm(large_elements_limit=16)
        raise ValueError(f'no text form "{form}"; there are "core", "hlo" and "stablehlo"')

    @functools.cached_property
    def exported(self) -> Any:
        """The device-local StableHLO module."""
        return export(self.program)

    def compile(self) -> Compiled:
        """Compiles for the mesh's devices. Raises `CallError`, saying how many are missing, where there are too few."""
        mesh = concrete_mesh(self.mesh, self.devices)
        program = self.traced.program
        inputs = self._shardings(self._input_layouts, self.traced.in_avals, mesh)
        outputs = self._shardings(self._output_layouts, self.traced.out_avals, mesh)
        run = device_local_function(
            self.program, self.exported, mesh, self._specs(self._input_layouts), self._specs(self._output_layouts)
        )
        donated = tuple(sorted(program.donated))
        return Compiled(
            jax.jit(run, in_shardings=inputs, out_shardings=outputs, donate_argnums=donated),
            self.traced,
            inputs,
            outputs,
        )

    @property
    def _input_layouts(self) -> list[int]:
        return [int(self.program.settled[v]) for v in self.traced.program.arguments]

    @property
    def _output_layouts(self) -> list[int]:
        program, ties = self.traced.program, self.traced.program.ties
        sources = [program.arguments[ties[i]] if i in ties else v for i, v in enumerate(program.outputs)]
        return [int(self.program.settled[v]) for v in sources]

    def _axes(self, layout: int) -> tuple[tuple[str, ...], ...]:
        names = self.mesh.axis_names
        dims = [tuple(names[a] for a in dim) for dim in axes_by_dim(layout, len(names), 16)]
        while dims and not dims[-1]:
            dims.pop()
        return tuple(dims)

    def _specs(self, layouts: list[int]) -> list[PartitionSpec]:
        return [PartitionSpec(*(d or None for d in self._axes(layout))) for layout in layouts]

    def _shardings(self, layouts: list[int], avals: Sequence[Any], mesh: Any = None) -> list[NamedSharding]:
        mesh = mesh or AbstractMesh(
            self.mesh.axis_sizes, self.mesh.axis_names, (AxisType.Auto,) * len(self.mesh.axis_names)
        )
        return [
            NamedSharding(mesh, PartitionSpec(*spec[: len(aval.shape)]))
            for spec, aval in zip(self._specs(layouts), avals, strict=True)
        ]


class Compiled:
    """A partitioned program on its devices."""

    def __init__(self, run: Any, traced: Traced, in_shardings: list, out_shardings: list):
        self._run, self._traced = run, traced
        self._in_shardings, self._out_shardings = in_shardings, out_shardings

    @property
    def in_shardings(self) -> Any:
        """NamedShardings of the inputs, as the pytree `(args, kwargs)`."""
        return jax.tree.unflatten(self._traced.in_tree, self._in_shardings)

    @property
    def out_shardings(self) -> Any:
        """NamedShardings of the outputs, in their pytree."""
        return jax.tree.unflatten(self._traced.out_tree, self._out_shardings)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs it. Raises `CallError` where the arguments are not those it was lowered for."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self._traced.in_tree:
            raise CallError(
                "called with another pytree than it was lowered for", why=f"{tree} is not {self._traced.in_tree}"
            )
        program = self._traced.program
        for leaf, aval, name in zip(leaves, self._traced.in_avals, program.argument_names, strict=True):
            if np.shape(leaf) != aval.shape or not _castable(leaf, aval.dtype):
                raise CallError(
                    f"{name} has shape {list(np.shape(leaf))} of {jax.dtypes.result_type(leaf)}",
                    why=f"it was lowered for {list(aval.shape)} of {aval.dtype}",
                    hint="call the jitted function, which lowers anew for each shape",
                )
        flat = [
            jax.device_put(_raw(x), sharding) if not isinstance(x, jax.Array) or x.sharding != sharding else _raw(x)
            for x, sharding in zip(leaves, self._in_shardings, strict=True)
        ]
        results = self._run(*flat)
        avals = self._traced.out_avals
        return jax.tree.unflatten(self._traced.out_tree, [_wrapped(r, a) for r, a in zip(results, avals, strict=True)])

    def lower(self) -> Any:
        """The `jax.stages.Lowered` of the program that runs."""
        raws = [_raw_aval(a) for a in self._traced.in_avals]
        return self._run.lower(*raws)


def concrete_mesh(mesh: Mesh, devices: np.ndarray | None) -> jax.sharding.Mesh:
    """The mesh on real devices, with Auto axes. Raises `CallError` where devices are missing."""
    if devices is None:
        available = jax.devices()
        if len(available) < mesh.size:
            missing = mesh.size - len(available)
            raise CallError(
                f"the mesh {mesh} needs {mesh.size} devices, and {len(available)} are here: {missing} missing",
                hint="XLA_FLAGS=--xla_force_host_platform_device_count=N simulates N on a CPU; lower() needs none",
            )
        devices = np.array(available[: mesh.size]).reshape(mesh.axis_sizes)
    return jax.sharding.Mesh(devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def _is_key(dtype: Any) -> bool:
    return jax.numpy.issubdtype(dtype, jax.dtypes.prng_key)


def _castable(leaf: Any, dtype: Any) -> bool:
    found = jax.dtypes.result_type(leaf)
    return found == dtype


def _raw(x: Any) -> Any:
    """PRNG keys as their bits; everything else as it is."""
    return jax.random.key_data(x) if isinstance(x, jax.Array) and _is_key(x.dtype) else x


def _raw_aval(aval: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    if not _is_key(aval.dtype):
        return aval
    return jax.eval_shape(jax.random.key_data, aval)


def _wrapped(x: jax.Array, aval: jax.ShapeDtypeStruct) -> jax.Array:
    return wrap_key(x, aval.dtype) if _is_key(aval.dtype) else x
