"""Runs a device-local module on a mesh: one call inside `jax.shard_map`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
from jax.sharding import Mesh, PartitionSpec

from autopart.core.jax_internals import device_local_call, ir, numpy_dtype
from autopart.spmd.device_local import DeviceLocal


def device_local_function(
    local: DeviceLocal,
    module: ir.Module,
    mesh: Mesh,
    in_specs: Sequence[PartitionSpec],
    out_specs: Sequence[PartitionSpec],
) -> Callable[..., list[jax.Array]]:
    """A function of whole arrays (flat, in argument order) that runs `module` on each device's part of them."""
    program = local.program
    kinds = [local.local_type(v, layout) for v, layout in zip(program.outputs, output_layouts(local), strict=True)]
    call = device_local_call(module, [(k.shape, numpy_dtype(k.dtype)) for k in kinds], program.source.callbacks)
    return jax.shard_map(call, mesh=mesh, in_specs=tuple(in_specs), out_specs=list(out_specs), check_vma=False)


def input_layouts(local: DeviceLocal) -> list[int]:
    """The layout of each argument."""
    return [int(local.settled[v]) for v in local.program.arguments]


def output_layouts(local: DeviceLocal) -> list[int]:
    """The layout of each output: its argument's where it is tied to one, else as the value settled."""
    program = local.program
    sources = [program.arguments[program.ties[i]] if i in program.ties else v for i, v in enumerate(program.outputs)]
    return [int(local.settled[v]) for v in sources]
