"""A partitioned program on its devices: arrays of any placement in, sharded arrays out.

    compiled = ap.jit(step, mesh, schedule).lower(state, batch).compile()      XLA has compiled it
    compiled.memory_analysis().temp_size_in_bytes                              what jax's ahead-of-time surface has
    state = compiled(state, batch)                                             state is placed once, batch at each call

A call looks at each argument once: whether it has the shape and type that the program was lowered for, and where it is.
An argument that came as the last one did, as a step's own results do, is passed on without another look.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from autopart.api.leaves import bits_of, check_leaf, is_key, leaves_of, results_of
from autopart.api.trace import Traced
from autopart.core.errors import CallError
from autopart.core.jax_internals import is_tracing
from autopart.core.mesh import Mesh
from autopart.spmd.run import OnMesh, jax_mesh


class Compiled:
    """A partitioned program on its devices, as XLA compiled it."""

    def __init__(self, placed: OnMesh, traced: Traced, options: Mapping[str, Any] | None = None):
        self._placed, self._traced, self._options = placed, traced, options
        self._lock, self._executable = threading.Lock(), None
        names = traced.program.argument_names
        self._parameters = [_Parameter(*each) for each in zip(names, traced.in_avals, placed.in_shardings, strict=True)]

    @property
    def executable(self) -> jax.stages.Compiled:
        """jax's own object, of flat lists of arrays, with PRNG keys as their bits. Compiled once."""
        if self._executable is None:
            with self._lock:
                if self._executable is None:
                    self._executable = self._placed.compile(self._options)
        return self._executable

    @property
    def in_shardings(self) -> Any:
        """NamedShardings of the inputs, as the pytree `(args, kwargs)`."""
        return jax.tree.unflatten(self._traced.in_tree, self._placed.in_shardings)

    @property
    def out_shardings(self) -> Any:
        """NamedShardings of the outputs, in their pytree."""
        return jax.tree.unflatten(self._traced.out_tree, self._placed.out_shardings)

    def memory_analysis(self) -> Any:
        """Bytes of one device: arguments, outputs, temporaries, code; None where the backend does not say."""
        return self.executable.memory_analysis()

    def cost_analysis(self) -> Any:
        """Flop and bytes of one device as XLA counts them, loops once; None where the backend does not say."""
        return self.executable.cost_analysis()

    def as_text(self) -> str | None:
        """The optimised HLO; None where the backend does not show it."""
        return self.executable.as_text()

    def runtime_executable(self) -> Any:
        """The backend's loaded executable, for debugging."""
        return self.executable.runtime_executable()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs it. Raises `CallError` where the arguments are not those it was lowered for."""
        results = self._run(self._arguments(leaves_of(self._traced, args, kwargs)))
        return results_of(self._traced, results)

    def _arguments(self, leaves: Sequence[Any]) -> list[Any]:
        """The leaves in their shardings; those that are elsewhere move together."""
        flat, elsewhere = list(leaves), []
        for position, (leaf, parameter) in enumerate(zip(leaves, self._parameters, strict=True)):
            if parameter.is_as_before(leaf):
                continue
            check_leaf(parameter.name, leaf, parameter.aval)
            flat[position] = raw = bits_of(leaf)
            if not isinstance(raw, Tracer) and not parameter.is_in_place(raw):
                elsewhere.append(position)
        if elsewhere:
            targets = [self._parameters[i].sharding for i in elsewhere]
            moved = jax.device_put([flat[i] for i in elsewhere], targets)
            for position, array in zip(elsewhere, moved, strict=True):
                flat[position] = array
        return flat

    def _run(self, flat: list[Any]) -> Sequence[Any]:
        """Runs what XLA compiled; where jax traces, the program becomes part of the one around it instead."""
        if is_tracing() or any(isinstance(x, Tracer) for x in flat):
            return self._run_traced(flat)
        return self.executable(*flat)

    def _run_traced(self, flat: list[Any]) -> Sequence[Any]:
        own = self._placed.mesh
        traced = [jax.typeof(x).sharding.mesh for x in flat]
        others = {mesh for mesh in [jax.sharding.get_abstract_mesh(), *traced] if not mesh.empty}
        if others <= {own.abstract_mesh}:
            return self._placed.function(*flat)
        raise CallError(
            f"traced for the mesh {dict(others.pop().shape)}",
            why=f"the partitioned function runs on its own mesh {dict(own.shape)}",
            hint="call it outside of jax.set_mesh and jax.shard_map, with arrays that no other mesh shards",
        )


class _Parameter:
    """What one argument must be, and the (class, aval, sharding) of the last one that was right as it came."""

    def __init__(self, name: str, aval: jax.ShapeDtypeStruct, sharding: Any):
        self.name, self.aval, self.sharding = name, aval, sharding
        self._last: tuple[Any, Any, Any] = (None, None, None)

    def is_as_before(self, leaf: Any) -> bool:
        """True if the array is of the very aval and sharding of one that was right."""
        kind, aval, sharding = self._last
        same = leaf.__class__ is kind and leaf.aval is aval and leaf.sharding is sharding
        return same and not leaf.is_deleted()

    def is_in_place(self, raw: Any) -> bool:
        """True if a checked leaf, keys as bits, is an array in its sharding; what it is like is remembered."""
        if not isinstance(raw, jax.Array) or raw.sharding != self.sharding:
            return False
        if not is_key(self.aval.dtype):
            self._last = (raw.__class__, raw.aval, raw.sharding)
        return True


def concrete_mesh(mesh: Mesh, devices: np.ndarray | None) -> jax.sharding.Mesh:
    """The mesh on real devices, with Auto axes. Raises `CallError` where devices are missing."""
    if devices is not None:
        return jax_mesh(mesh, devices)
    available = jax.devices()
    if len(available) < mesh.size:
        missing = mesh.size - len(available)
        raise CallError(
            f"the mesh {mesh} needs {mesh.size} devices, and {len(available)} are here: {missing} missing",
            hint="XLA_FLAGS=--xla_force_host_platform_device_count=N simulates N on a CPU; lower() needs none",
        )
    return jax_mesh(mesh, available)


def platform_of_devices(mesh: jax.sharding.Mesh) -> str:
    """The platform that a program must be lowered for to run on a mesh: "cpu", "tpu", "cuda" or "rocm"."""
    return platform_of(mesh.devices.flat[0])


def platform_of(device: Any) -> str:
    """As `platform_of_devices`, for one device."""
    if device.platform != "gpu":
        return device.platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"
