"""A partitioned program on its devices: arrays of any placement in, sharded arrays out."""

from __future__ import annotations

import textwrap
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType

from autopart.api.trace import Traced
from autopart.core.arguments import shown
from autopart.core.errors import CallError
from autopart.core.jax_internals import is_array, wrap_key
from autopart.core.mesh import Mesh


class Compiled:
    """A partitioned program on its devices."""

    def __init__(self, run: Any, traced: Traced, in_shardings: list, out_shardings: list, mesh: jax.sharding.Mesh):
        self._run, self._traced, self._mesh = run, traced, mesh
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
            found, wanted = (textwrap.shorten(str(t), 300) for t in (tree, self._traced.in_tree))
            raise CallError("called with another pytree than it was lowered for", why=f"{found} is not {wanted}")
        program = self._traced.program
        for leaf, aval, name in zip(leaves, self._traced.in_avals, program.argument_names, strict=True):
            if not is_array(leaf):
                raise CallError(
                    f"{name} is {shown(leaf)}", why=f"it was lowered for {list(aval.shape)} of {aval.dtype}"
                )
            if np.shape(leaf) != aval.shape or not _castable(leaf, aval.dtype):
                raise CallError(
                    f"{name} has shape {list(np.shape(leaf))} of {jax.dtypes.result_type(leaf)}",
                    why=f"it was lowered for {list(aval.shape)} of {aval.dtype}",
                    hint="call the jitted function, which lowers anew for each shape",
                )
        flat = [_placed(_raw(x), sharding) for x, sharding in zip(leaves, self._in_shardings, strict=True)]
        results = self._in_own_mesh(flat)
        avals = self._traced.out_avals
        return jax.tree.unflatten(self._traced.out_tree, [_wrapped(r, a) for r, a in zip(results, avals, strict=True)])

    def _in_own_mesh(self, flat: list[Any]) -> Any:
        """Runs it; jax takes a mesh that was set around the call for the program's own."""
        traced = [jax.typeof(x).sharding.mesh for x in flat if isinstance(x, Tracer)]
        others = {mesh for mesh in [jax.sharding.get_abstract_mesh(), *traced] if not mesh.empty}
        if others <= {self._mesh.abstract_mesh}:
            return self._run(*flat)
        if traced:
            raise CallError(
                f"traced for the mesh {dict(others.pop().shape)}",
                why=f"the partitioned function runs on its own mesh {dict(self._mesh.shape)}",
                hint="call it outside of jax.set_mesh and jax.shard_map, with arrays that no other mesh shards",
            )
        with jax.set_mesh(self._mesh):
            return self._run(*flat)

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


def _placed(x: Any, sharding: Any) -> Any:
    """`x` in its sharding; a traced array is left to the program that it is traced for."""
    if isinstance(x, Tracer) or (isinstance(x, jax.Array) and x.sharding == sharding):
        return x
    return jax.device_put(x, sharding)


def platform_of_devices(mesh: jax.sharding.Mesh) -> str:
    """The platform that a program must be lowered for to run on a mesh: "cpu", "tpu", "cuda" or "rocm"."""
    device = mesh.devices.flat[0]
    if device.platform != "gpu":
        return device.platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"


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
