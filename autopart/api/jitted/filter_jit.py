"""`ap.filter_jit`: arrays go to the devices, and whatever else is in the arguments chooses a program.

    model = eqx.nn.MLP(...)                  arrays, and functions such as jax.nn.relu, in one pytree
    step = ap.filter_jit(step, mesh, schedule)
    model, loss = step(model, batch)         relu goes in as part of the tree, and comes out again

It is made for Equinox, whose `filter_jit` does the same on one device, and needs nothing of it: any pytree will do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np

from autopart.api.jitted.jit import PartitionedFunction, jit
from autopart.api.jitted.lowered import Lowered
from autopart.api.jitted.method import Method
from autopart.api.tactics.schedule_named import Schedule
from autopart.api.tactics.tactic import Tactic
from autopart.api.tracing.trace import Traced
from autopart.base.arguments import FUNCTION, check, shown
from autopart.base.errors import CallError
from autopart.core.mesh import Mesh


@jax.tree_util.register_pytree_node_class
class Static:
    """A leaf that is no array, as a part of the tree's structure."""

    def __init__(self, value: Any):
        self.value = value

    def tree_flatten(self) -> tuple[tuple[()], Any]:
        """No children; the value is what trees are compared by."""
        return (), self.value

    @classmethod
    def tree_unflatten(cls, value: Any, children: Any) -> Static:
        """The reverse."""
        return cls(value)


class FilteredFunction(Method):
    """What `filter_jit` returns: call it, or `lower` it for abstract arguments."""

    def __init__(self, partitioned: PartitionedFunction):
        self._partitioned = partitioned
        functools.update_wrapper(self, cast(Callable, partitioned), updated=())

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs it on the mesh's devices, compiling once per input shape and per value of what is no array."""
        args, kwargs = _hidden(args, kwargs)
        return revealed(self._partitioned(*args, **kwargs))

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """The partitioned program for arguments of these shapes, without devices."""
        args, kwargs = _hidden(args, kwargs)
        return self._partitioned.lower(*args, **kwargs)

    def traced(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Traced:
        """See `PartitionedFunction.traced`."""
        return self._partitioned.traced(*_hidden(tuple(args), dict(kwargs)))

    def given(self, traced: Traced, mesh: Mesh) -> Sequence[Tactic]:
        """See `PartitionedFunction.given`."""
        return self._partitioned.given(traced, mesh)


def filter_jit(
    fun: Callable, mesh: Mesh | jax.sharding.Mesh | None = None, schedule: Schedule = (), **jit_options: Any
) -> FilteredFunction:
    """As `ap.jit`, for functions of pytrees in which not every leaf is an array, such as Equinox's modules.

    Arrays of jax and NumPy are traced; all other leaves, Python's numbers among them, are static and must be hashable.
    Results may hold such leaves too. `jit_options` are those of `ap.jit`. Raises `CallError` for a leaf that cannot be
    hashed, with its path.
    """
    check("ap.filter_jit", fun=(fun, FUNCTION))

    @functools.wraps(fun)
    def arrays_only(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = revealed((args, kwargs))
        return hidden(fun(*args, **kwargs))

    return FilteredFunction(jit(arrays_only, mesh, schedule, **jit_options))


def _hidden(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    for path, leaf in jax.tree_util.tree_flatten_with_path((args, kwargs))[0]:
        try:
            _ = _is_array(leaf) or hash(leaf)
        except TypeError:
            where = jax.tree_util.keystr(path[1:])
            raise CallError(
                f"the argument at {where} is {shown(leaf)}",
                why="what is no array chooses a program, so it must be hashable",
            ) from None
    return hidden((args, kwargs))


def hidden(tree: Any) -> Any:
    """The tree with each leaf that is no array as part of its structure."""
    return jax.tree.map(lambda leaf: leaf if _is_array(leaf) else Static(leaf), tree)


def revealed(tree: Any) -> Any:
    """What `hidden` was given."""
    is_static = lambda x: isinstance(x, Static)  # noqa: E731
    return jax.tree.map(lambda leaf: leaf.value if is_static(leaf) else leaf, tree, is_leaf=is_static)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct))
