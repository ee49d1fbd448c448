"""A partitioned program on its devices: arrays of any placement in, sharded arrays out.

    compiled = ap.jit(step, mesh, schedule).lower(state, batch).compile()      XLA has compiled it
    compiled.memory_analysis().temp_size_in_bytes                              what jax's ahead-of-time surface has
    state = compiled(state, batch)                                             state is placed once, batch at each call

The first call looks at each argument: whether it has the shape and type that the program was lowered for, and where it
is. After that jax's own dispatch knows the call by its arguments' types and shardings and runs it from C++, as it does
for `jax.jit`; a call with arguments of other types or in other places is looked at again.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.core import Tracer
from jax.experimental.layout import Format
from jax.sharding import NamedSharding

from autopart.api.jitted.donated import apart, check_donated, leaves_donated
from autopart.api.tracing.leaves import bits_of, check_leaf, leaves_of, results_of
from autopart.api.tracing.trace import Traced
from autopart.base.errors import ArgumentError, CallError
from autopart.base.own_lock import OwnLock
from autopart.core.doors.jax_dispatch import Dispatcher, FastPath, fast_path
from autopart.core.doors.jax_internals import context_mesh, is_tracing
from autopart.core.doors.xla_options import is_refused
from autopart.core.mesh import Mesh
from autopart.spmd.run import OnMesh, jax_mesh


class Compiled:
    """A partitioned program on its devices, as XLA compiled it."""

    def __init__(self, placed: OnMesh, traced: Traced, options: Mapping[str, Any] | None = None):
        self._placed, self._traced, self._options = placed, traced, options
        self._lock, self._executable = OwnLock(), None

    @property
    def executable(self) -> jax.stages.Compiled:
        """jax's own object, of flat lists of arrays, with PRNG keys as their bits. Compiled once."""
        if self._executable is None:
            with self._lock:
                if self._executable is None:
                    self._executable = self._compile()
        return self._executable

    def _compile(self) -> jax.stages.Compiled:
        try:
            return self._placed.compile(self._options)
        except jax.errors.JaxRuntimeError as error:
            if not is_refused(error):
                raise
            raise ArgumentError("XLA does not take these compiler_options", why=str(error)) from None

    @property
    def in_shardings(self) -> Any:
        """NamedShardings of the inputs, as the pytree `(args, kwargs)`."""
        return jax.tree.unflatten(self._traced.in_tree, self._traced.of_leaves(self._placed.in_shardings))

    @property
    def out_shardings(self) -> Any:
        """NamedShardings of the outputs, in their pytree."""
        return jax.tree.unflatten(self._traced.out_tree, self._placed.out_shardings)

    @property
    def in_formats(self) -> Any:
        """jax's `Format` of each input, layout and sharding, as the pytree `(args, kwargs)`: `jax.device_put` takes
        them."""
        return jax.tree.unflatten(self._traced.in_tree, self._traced.of_leaves(self._formats))

    @functools.cached_property
    def _formats(self) -> Sequence[Any]:
        return self.executable.input_formats[0]

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

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs it. Raises `CallError` where the arguments are not those it was lowered for."""
        return self._dispatch.call(*args, **kwargs)

    @functools.cached_property
    def _dispatch(self) -> Dispatcher:
        donated = functools.partial(leaves_donated, self._traced) if self._traced.program.donated else None
        return Dispatcher("a partitioned program", lambda *args, **kwargs: self.run(args, kwargs), donated=donated)

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, FastPath | None]:
        """What a call returns, and how jax runs calls like it from C++; None where each is to be looked at."""
        leaves = leaves_of(self._traced, args, kwargs)
        if not is_tracing():
            leaves[: len(self._closed_over)] = self._closed_over
        flat, elsewhere = self._placed_leaves(leaves)
        traced = is_tracing() or any(isinstance(x, Tracer) for x in flat)
        if not traced:
            check_donated(self._traced.program, leaves)
            flat = apart(self._traced.program, flat)
        with jax.disable_jit(False):  # there is no function here that could run op by op
            results = results_of(self._traced, self._run_traced(flat) if traced else self.executable(*flat))
        quick = not traced and all(map(_is_placed_by_jax, (leaves[i] for i in elsewhere)))
        if not quick or self._placed.free:  # jax's dispatch does not look at layouts
            return results, None
        return results, fast_path(self.executable, results, len(flat) - len(self._closed_over), self._closed_over)

    @functools.cached_property
    def _closed_over(self) -> list[jax.Array]:
        """What the function closes over, on the devices for good."""
        arrays = self._traced.closed_over
        with jax.enable_x64(True):
            places = self._formats if self._placed.free else self._placed.in_shardings
            return [jax.device_put(a, place) for a, place in zip(arrays, places, strict=False)]

    def _placed_leaves(self, leaves: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The leaves in their shardings, keys as bits, and the positions of those that had to move there.

        What the program is not passed stays where it is.
        """
        names, avals = self._traced.program.argument_names, self._traced.in_avals
        for name, leaf, aval in self._traced.of_leaves(list(zip(names, leaves, avals, strict=True))):
            check_leaf(name, leaf, aval)
        flat, shardings = [bits_of(leaf) for leaf in leaves], self._placed.in_shardings
        passed = self._traced.program.passed_arguments
        if self._placed.free and not any(isinstance(x, Tracer) for x in flat):
            shardings = self._formats
        elsewhere = [i for i in passed if not _is_in_place(flat[i], shardings[i])]
        moved = jax.device_put([flat[i] for i in elsewhere], [shardings[i] for i in elsewhere])
        for position, array in zip(elsewhere, moved, strict=True):
            flat[position] = array
        return flat, elsewhere

    def _run_traced(self, flat: list[Any]) -> Sequence[Any]:
        own = self._placed.mesh
        traced = [jax.typeof(x).sharding.mesh for x in flat]
        others = {mesh for mesh in [jax.sharding.get_abstract_mesh(), *traced] if not mesh.empty}
        if others <= {own.abstract_mesh}:
            return self._placed.traced(*flat)
        raise CallError(
            f"traced for the mesh {dict(others.pop().shape)}",
            why=f"the partitioned function runs on its own mesh {dict(own.shape)}",
            hint="call it outside of jax.set_mesh and jax.shard_map, with arrays that no other mesh shards",
        )


def _is_in_place(raw: Any, sharding: NamedSharding | Format) -> bool:
    """True for a tracer, which has no place yet, and for an array that is where the program takes it."""
    if isinstance(raw, Tracer):
        return True
    if isinstance(sharding, Format):
        at_home = isinstance(raw, jax.Array) and raw.committed and cast(Any, raw).format.layout == sharding.layout
        return at_home and raw.sharding.is_equivalent_to(cast(Any, sharding.sharding), raw.ndim)
    return isinstance(raw, jax.Array) and raw.committed and raw.sharding.is_equivalent_to(sharding, raw.ndim)


def _is_placed_by_jax(leaf: Any) -> bool:
    """True if jax's dispatch moves such an argument by itself: it is NumPy's, a number, or on no device for good."""
    return not leaf.committed if isinstance(leaf, jax.Array) else not hasattr(leaf, "__jax_array__")


def concrete_mesh(mesh: Mesh, devices: jax.sharding.Mesh | None) -> jax.sharding.Mesh:
    """The mesh on real devices: the one that is set where it has these axes, on the given devices if there are any.

    So results of a call have the types of what is around it: those of explicit axes where these are. Raises `CallError`
    where devices are missing.
    """
    around = context_mesh()
    if around is not None and dict(around.shape) == dict(mesh.shape) and _on_devices(around, devices):
        return around
    if devices is not None:
        return devices
    available = jax.devices()
    if len(available) < mesh.size:
        missing = mesh.size - len(available)
        raise CallError(
            f"the mesh {mesh} needs {mesh.size} devices, and {len(available)} are here: {missing} missing",
            hint="XLA_FLAGS=--xla_force_host_platform_device_count=N simulates N on a CPU; lower() needs none",
        )
    return jax_mesh(mesh, available)


def _on_devices(mesh: jax.sharding.Mesh, other: jax.sharding.Mesh | None) -> bool:
    return other is None or np.array_equal(mesh.devices, other.devices)


def platform_of_devices(mesh: jax.sharding.Mesh) -> str:
    """The platform that a program must be lowered for to run on a mesh: "cpu", "tpu", "cuda" or "rocm"."""
    return platform_of(mesh.devices.flat[0])


def platform_of(device: Any) -> str:
    """As `platform_of_devices`, for one device."""
    if device.platform != "gpu":
        return device.platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"
