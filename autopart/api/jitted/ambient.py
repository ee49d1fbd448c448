"""The mesh of the context, where none is given: `with jax.set_mesh(mesh):`, or `with mesh:`.

step = ap.jit(train_step, schedule="FSDP(data)")
with jax.set_mesh(mesh):
    step(state, batch)              partitioned over `mesh`; in another context over another
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from autopart.api.jitted.method import Method
from autopart.api.tracing.trace import Traced
from autopart.base.errors import ArgumentError
from autopart.core.doors.jax_internals import context_mesh
from autopart.core.mesh import Mesh


def ambient_mesh(owner: str) -> jax.sharding.Mesh:
    """The mesh that is set. Raises `ArgumentError` where none is."""
    mesh = context_mesh()
    if mesh is None:
        raise ArgumentError(
            f"{owner}: on which mesh?",
            why="none is given, and none is set",
            hint="mesh=ap.Mesh({...}), a jax.sharding.Mesh, or a call inside `with jax.set_mesh(mesh):`",
        )
    return mesh


class AmbientFunction(Method):
    """A function that is partitioned over whatever mesh is set where it is called or lowered."""

    def __init__(self, owner: str, fun: Callable[..., Any], over: Callable[[Any], Any]):
        self._owner, self._over = owner, functools.lru_cache(maxsize=None)(over)
        functools.update_wrapper(self, fun, updated=())

    @property
    def here(self) -> Any:
        """The function partitioned over the mesh that is set."""
        return self._over(ambient_mesh(self._owner))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """See `PartitionedFunction`."""
        return self.here(*args, **kwargs)

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """See `PartitionedFunction.lower`."""
        return self.here.lower(*args, **kwargs)

    def traced(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Traced:
        """See `PartitionedFunction.traced`."""
        return self.here.traced(args, kwargs)

    def given(self, traced: Traced, mesh: Mesh) -> Any:
        """See `PartitionedFunction.given`."""
        return self.here.given(traced, mesh)
