"""A partitioned program on its devices: arrays of any placement in, sharded arrays out."""

from __future__ import annotations

import textwrap
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType

from autopart.api.trace import Traced
from autopart.core.errors import CallError
from autopart.core.jax_internals import wrap_key
from autopart.core.mesh import Mesh


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
            found, wanted = (textwrap.shorten(str(t), 300) for t in (tree, self._traced.in_tree))
            raise CallError("called with another pytree than it was lowered for", why=f"{found} is not {wanted}")
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
