"""`ap.nnx.jit`: a step over Flax nnx modules, whose changes its caller sees, as with `nnx.jit`.

    step(model, optimizer, x)      split: a graph, and arrays by name      {"model": {...}, "optimizer": {...}, "x": x}
      arrays on the mesh           "model/layers/0/kernel" is what tactics call them
    model, optimizer               get the arrays that the step left in them

Modules that share variables go on sharing them. What changes is values: a step that adds or removes parts is refused.
"""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from autopart.api.filter_jit import Static
from autopart.api.jit import PartitionedFunction
from autopart.api.jit import jit as partitioned_jit
from autopart.api.lowered import Lowered
from autopart.api.method import Method
from autopart.api.tactic import Tactic
from autopart.core.arguments import FUNCTION, check
from autopart.core.errors import ArgumentError, CallError
from autopart.core.mesh import Mesh


def jit(
    fun: Callable, mesh: Mesh | jax.sharding.Mesh, schedule: Sequence[Tactic] = (), **jit_options: Any
) -> ModuleFunction:
    """As `ap.jit`, for a function of nnx modules, optimizers and arrays that may change the modules it is given.

    Tactics name a leaf by its argument and path, "model/layers/0/kernel". Outputs are "outputs/0" for what `fun`
    returns, then one for each argument that holds modules. Give `donate_argnames` for those, so that they are updated
    in place and keep one layout. `jit_options` are those of `ap.jit`, but for the shardings.
    """
    check("ap.nnx.jit", fun=(fun, FUNCTION))
    for option in ("in_shardings", "out_shardings"):
        if jit_options.pop(option, None) is not None:
            raise ArgumentError(f"ap.nnx.jit takes no {option}", hint="tactics that name leaves, such as 'model/*'")
    return ModuleFunction(fun, mesh, schedule, jit_options)


class ModuleFunction(Method):
    """What `jit` returns: call it, or `lower` it without devices."""

    def __init__(
        self, fun: Callable, mesh: Mesh | jax.sharding.Mesh, schedule: Sequence[Tactic], options: dict[str, Any]
    ):
        self._fun, self._signature = fun, inspect.signature(fun)
        self._static = self._names(options, "static")
        donated = self._names(options, "donate")
        self._partitioned: PartitionedFunction = partitioned_jit(
            self._of_arrays(), mesh, schedule, donate_argnames=donated, **options
        )
        functools.update_wrapper(self, fun, updated=())

    def _names(self, options: dict[str, Any], kind: str) -> tuple[str, ...]:
        """The parameters that `static_*` or `donate_*` mean; the options are taken out."""
        numbers, names = options.pop(f"{kind}_argnums", ()), options.pop(f"{kind}_argnames", ())
        parameters = list(self._signature.parameters)
        try:
            numbered = [parameters[n] for n in ((numbers,) if isinstance(numbers, int) else numbers)]
        except (IndexError, TypeError):
            raise ArgumentError(f"ap.nnx.jit: {kind}_argnums is {numbers!r:.40}", why=str(self._signature)) from None
        return (*numbered, *((names,) if isinstance(names, str) else names))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs it on the mesh's devices; the modules among the arguments then hold what it left in them."""
        named, static = self._bound(args, kwargs)
        structure, arrays = _split(named, static)
        out, *after = self._partitioned(structure, **arrays)
        held = _holding_modules(named, arrays)
        modules = {name: named[name] for name in held}
        state = nnx.state(modules)
        leaves = jax.tree.leaves(dict(zip(held, after, strict=True)))
        nnx.update(modules, jax.tree.unflatten(jax.tree.structure(state), leaves))
        return out

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """The partitioned program for modules and arrays of these shapes, without devices."""
        structure, arrays = _split(*self._bound(args, kwargs))
        return self._partitioned.lower(structure, **arrays)

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """(arguments by parameter, the static ones)."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise CallError(f"{self._fun.__name__} cannot be called so: {error}") from None
        named = {n: jnp.asarray(v) if isinstance(v, (int, float, complex)) else v for n, v in bound.arguments.items()}
        static = {name: bound.arguments[name] for name in self._static if name in named}
        return {name: value for name, value in named.items() if name not in static}, static

    def _of_arrays(self) -> Callable[..., Any]:
        """`_on_arrays` as a function that jax's errors name by the lines of the user's."""

        def on_arrays(structure: Static, /, **arrays: Any) -> tuple[Any, ...]:
            return self._on_arrays(structure, **arrays)

        own: Any = on_arrays
        own.__signature__, own.__wrapped__ = inspect.signature(on_arrays), self._fun
        return on_arrays

    def _on_arrays(self, structure: Static, /, **arrays: Any) -> tuple[Any, ...]:
        graph, tree, static = structure.value
        named = nnx.merge(graph, jax.tree.unflatten(tree, jax.tree.leaves(arrays)))
        given = {**named, **dict(static)}
        ordered = OrderedDict((name, given[name]) for name in self._signature.parameters if name in given)
        bound = inspect.BoundArguments(self._signature, ordered)
        out = self._fun(*bound.args, **bound.kwargs)
        graph_after, after = nnx.split(named)
        if graph_after != graph:
            raise CallError(
                f"{self._fun.__name__} changes which parts a module has",
                why="its arrays go in and come out by the same names",
                hint="make layers, variables and caches before the step; inside, change their values",
            )
        values = nnx.to_pure_dict(after)
        return (out, *(values[name] for name in _holding_modules(named, values)))


def _split(named: dict[str, Any], static: dict[str, Any]) -> tuple[Static, dict[str, Any]]:
    graph, state = nnx.split(named)
    return Static((graph, jax.tree.structure(state), tuple(static.items()))), nnx.to_pure_dict(state)


def _holding_modules(named: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """The arguments with modules or variables, whose values can change; a shared variable belongs to its first."""
    kinds = (nnx.Pytree, nnx.Variable)
    found = {n: jax.tree.leaves(named[n], is_leaf=lambda x: isinstance(x, kinds)) for n in values}
    return sorted(n for n, leaves in found.items() if any(isinstance(leaf, kinds) for leaf in leaves))
