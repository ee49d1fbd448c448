"""`ap.nnx.jit`: a step over Flax nnx modules, whose changes its caller sees, as with `nnx.jit`.

    step(model, optimizer, x)      split: a graph, and arrays by name      {"model": {...}, "optimizer": {...}, "x": x}
      arrays on the mesh           "model/layers/0/kernel" is what tactics call them
    model, optimizer               get the arrays that the step left in them

Modules that share variables go on sharing them. What changes is values: a step that adds or removes parts is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from autopart.api.explained.metadata import Metadata
from autopart.api.jitted.compiled import concrete_mesh
from autopart.api.jitted.filter_jit import Static
from autopart.api.jitted.jit import PartitionedFunction
from autopart.api.jitted.jit import jit as partitioned_jit
from autopart.api.jitted.lowered import Lowered
from autopart.api.jitted.method import Method
from autopart.api.tactics.flax_shardings import FlaxNames, names_asked, unread
from autopart.api.tactics.schedule_named import Schedule
from autopart.api.tactics.tactic import Tactic
from autopart.api.tracing.leaves import is_key
from autopart.api.tracing.trace import Traced
from autopart.base.arguments import FUNCTION, check
from autopart.base.errors import ArgumentError, CallError, PartitionWarning
from autopart.base.user_line import warn
from autopart.core.doors.jax_internals import wrap_key
from autopart.core.mesh import Mesh


def jit(
    fun: Callable, mesh: Mesh | jax.sharding.Mesh | None = None, schedule: Schedule = (), **jit_options: Any
) -> ModuleFunction:
    """As `ap.jit`, for a function of nnx modules, optimizers and arrays that may change the modules it is given.

    Tactics name a leaf by its argument and path, "model/layers/0/kernel". Outputs are "outputs/0" for what `fun`
    returns, then one for each argument that holds modules. Give `donate_argnames` for those, so that they are updated
    in place and keep one layout. `jit_options` are those of `ap.jit`, but for the shardings: `in_shardings="flax"`, or
    logical axis rules, reads the metadata of variables (`nnx.with_partitioning`).
    """
    check("ap.nnx.jit", fun=(fun, FUNCTION))
    names = names_asked(jit_options.pop("in_shardings", None))
    for option, given in (("in_shardings", names), ("out_shardings", jit_options.pop("out_shardings", None))):
        if given is not None and not isinstance(given, FlaxNames):
            hint = "tactics that name leaves, such as 'model/*', or in_shardings=\"flax\" for metadata of variables"
            raise ArgumentError(f"ap.nnx.jit takes no {option} but names of flax", hint=hint)
    if names is not None:
        jit_options["in_shardings"] = names
    return ModuleFunction(fun, mesh, schedule, jit_options)


@dataclass(frozen=True)
class _Form:
    """An argument's pytree, whose leaves are modules, variables and arrays; the tree of each module's state."""

    tree: Any
    states: tuple[Any, ...]

    def of_shardings(self, name: str, leaves: Sequence[Any]) -> Any:
        """The shardings of its arrays in its form. Raises `CallError` where other arguments have some of them."""
        counts = [1 if state is None else state.num_leaves for state in self.states]
        if sum(counts) != len(leaves):
            raise CallError(
                f"{name} shares variables with an argument before it",
                why="each variable has one sharding, that of the argument which comes first",
            )
        rest = iter(leaves)
        parts = [list(itertools.islice(rest, count)) for count in counts]
        made = [
            part[0] if state is None else nnx.StateSharding(jax.tree.unflatten(state, part))
            for state, part in zip(self.states, parts, strict=True)
        ]
        return jax.tree.unflatten(self.tree, made)


def _form_of(value: Any) -> _Form:
    leaves, tree = jax.tree.flatten(value, is_leaf=_is_module)
    states = (jax.tree.structure(nnx.state(x)) if isinstance(x, nnx.Pytree) else None for x in leaves)
    return _Form(tree, tuple(states))


@dataclass(frozen=True, repr=False)
class ModuleLowered(Lowered):
    """What `lower` returns: a partitioned program, whose shardings come in the modules' form."""

    forms: tuple[tuple[str, _Form], ...] = field(default=(), repr=False)
    unread: tuple[str, ...] = field(default=(), repr=False)

    @functools.cached_property
    def metadata(self) -> Metadata:
        """See `Lowered.metadata`; with a remark about metadata of variables that nobody asked for."""
        found = Lowered.metadata.func(self)
        more = (unread(dict.fromkeys(self.unread)),) if self.unread else ()
        return dataclasses.replace(found, remarks=(*found.remarks, *more))

    def as_jax_shardings(self) -> tuple[tuple[Any, ...], Any]:
        """(in_shardings, out_shardings) on real devices, as `nnx.jit` takes them.

        The inputs' are one for each argument of the function: an `nnx.StateSharding` where a module or optimizer is,
        which is also one of `out_shardings` for the function that makes it. The outputs' are those of what it returns.
        Raises `CallError` where two arguments share variables.
        """
        inputs, outputs = self.shardings_on(concrete_mesh(self.mesh, self.devices))
        (_, *arrays), _ = inputs
        args = (
            form.of_shardings(name, jax.tree.leaves(slot))
            for slot, (name, form) in zip(arrays, self.forms, strict=True)
        )
        return tuple(args), outputs[0]


class ModuleFunction(Method):
    """What `jit` returns: call it, or `lower` it without devices."""

    def __init__(
        self, fun: Callable, mesh: Mesh | jax.sharding.Mesh | None, schedule: Schedule, options: dict[str, Any]
    ):
        self._fun, self._signature = fun, inspect.signature(fun)
        self._names_asked: FlaxNames | None = options.get("in_shardings")
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
        structure, state, arrays = self._split(named, static)
        out, *after = self._partitioned(structure, *arrays)
        held = set(_holding_modules(named))
        before = nnx.State({n: state[n] for n, name in enumerate(named) if name in held and n in state})
        nnx.update(list(named.values()), jax.tree.unflatten(jax.tree.structure(before), jax.tree.leaves(after)))
        return out

    def lower(self, /, *args: Any, **kwargs: Any) -> ModuleLowered:
        """The partitioned program for modules and arrays of these shapes, without devices.

        Arrays may be `jax.ShapeDtypeStruct`s, also those in modules, as `nnx.eval_shape` makes them.
        """
        named, structure, arrays = self._of_shapes(args, kwargs)
        low = self._partitioned.lower(structure, *arrays)
        fields = {field.name: getattr(low, field.name) for field in dataclasses.fields(low)}
        forms = [(name, _form_of(named.get(name, {}))) for name in self._slots]
        unread = {} if self._names_asked is not None else _names_of_dims(named, nnx.split(list(named.values()))[1])
        return ModuleLowered(**fields, forms=tuple(forms), unread=tuple(unread))

    def traced(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Traced:
        """See `PartitionedFunction.traced`."""
        _, structure, arrays = self._of_shapes(args, kwargs)
        return self._partitioned.traced((structure, *arrays), {})

    def given(self, traced: Traced, mesh: Mesh) -> Sequence[Tactic]:
        """See `PartitionedFunction.given`."""
        return self._partitioned.given(traced, mesh)

    def _of_shapes(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], Static, list[Any]]:
        """(arguments by parameter, what is no array, shapes in each slot)."""
        named, static = self._bound(args, kwargs)
        structure, _, arrays = self._split(
            {n: jax.tree.map(_array_like, v, is_leaf=_is_module) for n, v in named.items()}, static
        )
        _warn_of_aliases(self._fun.__name__, named)
        return named, structure, arrays

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

        def on_arrays(structure: Static, /, *arrays: Any) -> tuple[Any, ...]:
            return self._on_arrays(structure, arrays)

        own: Any = on_arrays
        first = inspect.Parameter("_structure", inspect.Parameter.POSITIONAL_ONLY)
        slots = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self._slots]
        own.__signature__, own.__wrapped__ = inspect.Signature([first, *slots]), self._fun
        return on_arrays

    @property
    def _slots(self) -> list[str]:
        """The parameters that arrays are passed for, in the signature's order, which is that of their names."""
        return [name for name in self._signature.parameters if name not in self._static]

    def _split(self, named: dict[str, Any], static: dict[str, Any]) -> tuple[Static, Any, list[Any]]:
        """(what is no array, nnx's state, its arrays in each slot): a shared variable belongs to its first argument."""
        graph, state = nnx.split(list(named.values()))
        if self._names_asked is not None:
            self._names_asked.by_path.update(_names_of_dims(named, state))
        tree = jax.tree.structure(state)
        arrays = dict(zip(named, _by_position(state, len(named)), strict=True))
        structure = Static((graph, tree, tuple(named), tuple(static.items())))
        return structure, state, [arrays.get(name, {}) for name in self._slots]

    def _on_arrays(self, structure: Static, arrays: Sequence[Any]) -> tuple[Any, ...]:
        graph, tree, names, static = structure.value
        values = nnx.merge(graph, jax.tree.unflatten(tree, jax.tree.leaves(arrays)))
        named = dict(zip(names, values, strict=True))
        given = {**named, **dict(static)}
        ordered = OrderedDict((name, given[name]) for name in self._signature.parameters if name in given)
        bound = inspect.BoundArguments(self._signature, ordered)
        out = self._fun(*bound.args, **bound.kwargs)
        graph_after, after = nnx.split(list(named.values()))
        if graph_after != graph:
            raise CallError(
                f"{self._fun.__name__} changes which parts a module has",
                why="its arrays go in and come out by the same names",
                hint="make layers, variables and caches before the step; inside, change their values",
            )
        values = dict(zip(named, _by_position(after, len(named)), strict=True))
        return (out, *(values[name] for name in _holding_modules(named)))


def run_both(
    fun: Callable, partitioned: Callable, args: Sequence[Any], fill: Callable[[Any], Any], static: Mapping[str, Any]
) -> tuple[Any, Any]:
    """What `fun`, whole and partitioned, returns for equal arguments, each with what it leaves in the modules.

    `fill` makes arrays of shapes.
    """
    arrays = jax.tree.map(lambda leaf: leaf if _is_module(leaf) else fill(leaf), list(args), is_leaf=_is_module)
    graph, state = nnx.split(arrays)
    state = jax.tree.map(fill, state)

    def run(step: Callable) -> Any:
        given = nnx.merge(graph, jax.tree.map(jnp.copy, state))
        out = step(*given)
        return out, nnx.to_pure_dict(nnx.state(given))

    return run(nnx.jit(fun, **static)), run(partitioned)


def _names_of_dims(named: Mapping[str, Any], state: Any) -> dict[str, tuple[Any, ...]]:
    """Full name -> names of dims, of the variables that have some in their metadata."""
    arguments, found = list(named), dict[str, tuple[Any, ...]]()
    for path, variable in nnx.to_flat_state(state):
        said = variable.get_metadata() if isinstance(variable, nnx.Variable) else {}
        dims = said.get("out_sharding") or said.get("sharding_names") or said.get("sharding")
        if dims and any(dims):
            found["/".join([arguments[cast(int, path[0])], *map(str, path[1:])])] = tuple(dims)
    return found


def _by_position(state: Any, count: int) -> list[Any]:
    """The arrays of each of `count` arguments, by name; none where other arguments have them all."""
    arrays: dict[Any, Any] = nnx.to_pure_dict(state)
    return [arrays.get(position, {}) for position in range(count)]


def _holding_modules(named: Mapping[str, Any]) -> list[str]:
    """The arguments with modules or variables, whose values can change."""
    return [n for n, value in named.items() if any(map(_is_module, jax.tree.leaves(value, is_leaf=_is_module)))]


def _warn_of_aliases(fun: str, named: Mapping[str, Any]) -> None:
    """Warns of an argument whose variables are all those of others, such as an average that is no copy yet."""
    first: dict[int, str] = {}
    for name, value in named.items():
        variables = [
            (f"{name}/{'/'.join(map(str, path))}", variable)
            for path, variable in nnx.iter_graph(value)
            if isinstance(variable, nnx.Variable)
        ]
        if variables and all(id(variable) in first for _, variable in variables):
            own, variable = variables[0]
            warn(
                f"{fun}: {name} has no arrays of its own: {own} is {first[id(variable)]}, and a step that changes one "
                f"changes both; jax.tree.map(jnp.copy, {name}) is a copy",
                PartitionWarning,
            )
        for path, variable in variables:
            first.setdefault(id(variable), path)


def _is_module(x: Any) -> bool:
    return isinstance(x, (nnx.Pytree, nnx.Variable))


def _array_like(x: Any) -> Any:
    """A shape as an array of it, without memory, since nnx takes only arrays as what changes from call to call."""
    if not isinstance(x, jax.ShapeDtypeStruct):
        return x
    if is_key(x.dtype):
        bits = jax.eval_shape(jax.random.key_data, x)
        return wrap_key(jnp.zeros(bits.shape, bits.dtype), x.dtype)
    return np.broadcast_to(np.zeros((), x.dtype), x.shape)
