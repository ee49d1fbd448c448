"""A device-local program on a mesh's devices: one jitted function of whole arrays, and what XLA compiles of it.

    local                      PartIR:HLO, x tiled [{"B"},{}]
    on_mesh(local, ...)        jax.jit(jax.shard_map(module, in_specs=P("B"), ...), in_shardings=..., ...)
      .function                traced into the program around it, under jax.jit and the like
      .lower()                 a jax.stages.Lowered: the module that XLA is given
      .compile()               a jax.stages.Compiled: what runs, its memory, its cost, its text

This is the one way from a device-local program to XLA: `Lowered.compile`, the compiler as cost model and experiments
all come here. A layout becomes a `PartitionSpec` here alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from autopart.core.doors.jax_internals import device_local_call, ir, numpy_dtype
from autopart.core.doors.xla_options import for_devices
from autopart.core.layout import axes_by_dim
from autopart.core.mesh import Mesh
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.for_xla.compiled_right import compile_right_on_cpu

_MOST_DIMS = 16


@dataclass(frozen=True)
class OnMesh:
    """A device-local program for the devices of a mesh. Arguments and results are flat lists of whole arrays."""

    function: Any
    """The function as `jax.jit` wraps it; with `free`, a function of formats that returns that."""
    traced: Any
    """What goes into a program around it: the same, or the function itself if that is to be inline."""
    avals: list[jax.ShapeDtypeStruct]
    in_shardings: list[NamedSharding]
    out_shardings: list[NamedSharding]
    mesh: jax.sharding.Mesh
    updated: Mapping[int, int]
    """Output -> the argument that it is the next value of."""
    free: bool = False
    """XLA chooses the layouts of all arguments, and of their next values."""

    def compile(self, options: Mapping[str, Any] | None = None) -> jax.stages.Compiled:
        """What XLA makes of it, with its own errors where it cannot. `options` are XLA's, by name.

        Layouts that are free are chosen by a first compilation; where it has another for an argument than for its next
        value, a second one has the argument's for both.
        """
        asked: dict[str, Any] = {**for_devices(list(self.mesh.devices.flat)), **(options or {})}
        if not self.free:
            return self.lower().compile(compiler_options=asked or None)
        inputs: list[Any] = [Format(Layout.AUTO, sharding) for sharding in self.in_shardings]
        compiled = self._lowered(inputs, self._outputs(inputs)).compile(compiler_options=asked or None)
        chosen, left = compiled.input_formats[0], compiled.output_formats
        if all(chosen[i].layout == left[o].layout for o, i in self.updated.items()):
            return compiled
        return self._lowered(list(chosen), self._outputs(chosen)).compile(compiler_options=asked or None)

    def _outputs(self, inputs: Sequence[Any]) -> list[Any]:
        return [inputs[self.updated[n]] if n in self.updated else s for n, s in enumerate(self.out_shardings)]

    def lower(self) -> jax.stages.Lowered:
        """What XLA is given, in the usual layouts."""
        return self._lowered(self.in_shardings, self.out_shardings)

    def _lowered(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> jax.stages.Lowered:
        function = self.function if not self.free else self.function(inputs, outputs)
        around = jax.sharding.get_abstract_mesh()
        own_mesh = around.empty or around == self.mesh.abstract_mesh
        # 64-bit types are the program's own here, whatever jax makes of arrays outside.
        with contextlib.nullcontext() if own_mesh else jax.set_mesh(self.mesh), jax.enable_x64(True):
            return function.lower(*self.avals)


def on_mesh(
    local: DeviceLocal,
    module: ir.Module,
    mesh: jax.sharding.Mesh,
    in_shardings: Sequence[NamedSharding] | None = None,
    out_shardings: Sequence[NamedSharding] | None = None,
    inline: bool = False,
    weak: Collection[int] = (),
    free: bool = False,
) -> OnMesh:
    """The exported `module` of `local` on `mesh`.

    Whole arrays come in and go out in the given shardings; without them, in those that `local` works with. With
    `inline`, a program around it has no call. The types of the outputs at the positions `weak` are weak, as jax says
    of Python's numbers and what is computed of them. XLA chooses the layouts of arguments that are `free`.
    """
    in_specs = [spec_of(local.mesh, layout) for layout in input_layouts(local)]
    out_specs = [spec_of(local.mesh, layout) for layout in output_layouts(local)]
    inputs = list(in_shardings) if in_shardings is not None else [NamedSharding(mesh, s) for s in in_specs]
    outputs = list(out_shardings) if out_shardings is not None else [NamedSharding(mesh, s) for s in out_specs]
    plain = device_local_function(local, module, mesh, in_specs, out_specs, weak)

    def jitted(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        return jax.jit(
            plain,
            in_shardings=list(inputs),
            out_shardings=list(outputs),
            donate_argnums=tuple(sorted(local.program.donated & set(local.program.passed_arguments))),
            keep_unused=local.program.keep_unused,
        )

    function = jitted(inputs, outputs)
    kinds = [local.program.type_of(v) for v in local.program.arguments]
    explicit = AxisType.Explicit in mesh.axis_types
    avals = [
        jax.ShapeDtypeStruct(k.shape, numpy_dtype(k.dtype), sharding=sharding if explicit else None)
        for k, sharding in zip(kinds, inputs, strict=True)
    ]
    traced = plain if inline else function
    return OnMesh(jitted if free else function, traced, avals, inputs, outputs, mesh, local.program.ties, free)


def device_local_function(
    local: DeviceLocal,
    module: ir.Module,
    mesh: jax.sharding.Mesh,
    in_specs: Sequence[PartitionSpec],
    out_specs: Sequence[PartitionSpec],
    weak: Collection[int] = (),
) -> Callable[..., list[jax.Array]]:
    """A function of whole arrays (flat, in argument order) that runs `module` on each device's part of them.

    An argument that the module does not take is not read, so that `jax.jit` leaves it where it is.
    """
    program, passed = local.program, local.program.passed_arguments
    kinds = [local.local_type(v, layout) for v, layout in zip(program.outputs, output_layouts(local), strict=True)]
    types = [(k.shape, numpy_dtype(k.dtype)) for k in kinds]
    call = device_local_call(module, types, program.source.bodies, weak, compile_right_on_cpu)
    in_specs = tuple(in_specs[i] for i in passed)
    on_devices = jax.shard_map(call, mesh=mesh, in_specs=in_specs, out_specs=list(out_specs), check_vma=False)
    return lambda *arrays: on_devices(*(_on_device(arrays[i]) for i in passed))


def _on_device(array: Any) -> Any:
    """The array, brought in from the host's memory if it is there."""
    at = jax.typeof(array).memory_space
    return jax.device_put(array, jax.memory.Space.Device) if at == jax.memory.Space.Host else array


# ---- meshes and layouts in jax's terms


def jax_mesh(mesh: Mesh, devices: Sequence[Any] | np.ndarray) -> jax.sharding.Mesh:
    """The mesh on its first `mesh.size` devices, in their order, with Auto axes."""
    placed = np.array(devices).reshape(-1)[: mesh.size].reshape(mesh.axis_sizes)
    return jax.sharding.Mesh(placed, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def named_axes(mesh: Mesh, layout: int) -> tuple[tuple[str, ...], ...]:
    """Names of the axes that tile each dim, outermost first, up to the last dim that is tiled."""
    names = mesh.axis_names
    dims = [tuple(names[a] for a in dim) for dim in axes_by_dim(layout, len(names), _MOST_DIMS)]
    while dims and not dims[-1]:
        dims.pop()
    return tuple(dims)


def spec_of(mesh: Mesh, layout: int) -> PartitionSpec:
    """The layout of a value as jax writes it."""
    return PartitionSpec(*(dim or None for dim in named_axes(mesh, layout)))


def input_layouts(local: DeviceLocal) -> list[int]:
    """The layout of each argument."""
    return [int(local.settled[v]) for v in local.program.arguments]


def output_layouts(local: DeviceLocal) -> list[int]:
    """The layout of each output: its argument's where it is tied to one, else as the value settled."""
    program = local.program
    sources = [program.arguments[program.ties[i]] if i in program.ties else v for i, v in enumerate(program.outputs)]
    return [int(local.settled[v]) for v in sources]
