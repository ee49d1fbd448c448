"""Are these arguments that the function takes, and that jax can trace?

step("a string")      CallError: step was called with x = 'a string'
step(x, x, x)         CallError: step cannot be called so: too many positional arguments
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

import jax

from autopart.api.tracing.trace import LoadedProgram, Options, jitted, key_of
from autopart.base.arguments import shown
from autopart.base.errors import ArgumentError, CallError
from autopart.core.doors import jax_dispatch
from autopart.core.doors.jax_internals import is_array
from autopart.core.importer.mutable_refs import is_reference


def check_numbers(fun: Callable | LoadedProgram, options: Options) -> None:
    """Raises `ArgumentError` where `fun` has no parameters of these numbers and names, or one is static and donated."""
    if isinstance(fun, LoadedProgram):
        return
    try:
        jitted(fun, options)
    except (TypeError, ValueError) as error:
        what = f"ap.jit: the static or donated arguments are not those of {_name(fun)}"
        raise ArgumentError(what, why=str(error), hint=f"{_name(fun)}{_signature(fun) or '(...)'}") from None


def static_arguments(fun: Callable | LoadedProgram, options: Options) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """(numbers, names) of the static arguments as `jax.jit` infers them: a name from its number and the other way."""
    return ((), ()) if isinstance(fun, LoadedProgram) else jax_dispatch.static_arguments(jitted(fun, options))


def donated_arguments(fun: Callable | LoadedProgram, options: Options) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """(numbers, names) of the donated arguments, as `static_arguments` has those of the static ones."""
    return ((), ()) if isinstance(fun, LoadedProgram) else jax_dispatch.donated_arguments(jitted(fun, options))


def check_call(fun: Callable | LoadedProgram, options: Options, args: tuple, kwargs: dict) -> None:
    """Raises `CallError` where `fun` takes others, a static argument cannot be hashed, or another is no array."""
    signature = _signature(fun)
    if signature is not None:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise CallError(f"{_name(fun)} cannot be called so: {error}", hint=f"{_name(fun)}{signature}") from None
    names = list(signature.parameters) if signature is not None else []
    static = {n % len(args) for n in options.static_argnums if -len(args) <= n < len(args)}
    for place, value in [*enumerate(args), *kwargs.items()]:
        name = names[place] if isinstance(place, int) and place < len(names) else str(place)
        if place in static or name in options.static_argnames:
            _check_static(fun, name, value)
        else:
            _check_arrays(fun, name, value)


def _check_static(fun: Any, name: str, value: Any) -> None:
    try:
        hash(value)
    except TypeError:
        raise CallError(
            f"{_name(fun)} was called with the static argument {name} = {shown(value)}",
            why="a program is kept for each static argument, so it must be hashable",
        ) from None


def _check_arrays(fun: Any, name: str, value: Any) -> None:
    try:
        leaves = jax.tree_util.tree_flatten_with_path(value)[0]
    except (TypeError, ValueError) as error:
        raise CallError(f"{_name(fun)} was called with {name}, which is no pytree", why=str(error)) from None
    for path, leaf in leaves:
        if is_reference(leaf):
            raise CallError(
                f"{_name(fun)} was called with {'/'.join([name, *map(key_of, path)])}, a mutable reference of jax",
                why="arguments are read and results written; a reference is both",
                hint="an array in its place, and its new value among the results",
            )
        if not is_array(leaf):
            static = f"static_argnames={name!r} if it is to choose a program"
            raise CallError(
                f"{_name(fun)} was called with {'/'.join([name, *map(key_of, path)])} = {shown(leaf)}",
                why="an argument is an array, a number, or a pytree of them",
                hint=f"ap.filter_jit, for which what is no array is static; or {static}" if path else static,
            )


def _signature(fun: Any) -> inspect.Signature | None:
    if isinstance(fun, LoadedProgram):
        return None
    try:
        return inspect.signature(cast(Callable, fun))
    except (TypeError, ValueError):
        return None


def _name(fun: Any) -> str:
    return getattr(fun, "__name__", type(fun).__name__)
