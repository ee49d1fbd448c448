"""A partitioned function in a class is a method, as one of `jax.jit` is: what it is called on is its first argument.

class Model:
    @ap.jit(mesh=mesh, schedule=[BP], static_argnums=0)
    def step(self, state, batch): ...

model.step(state, batch)      Model.step(model, state, batch)
"""

from __future__ import annotations

from types import MethodType
from typing import Any


class Method:
    """What binds to an instance when it is looked up in its class."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Itself, or bound to the instance."""
        return self if instance is None else MethodType(self, instance)  # pyright: ignore[reportArgumentType]
