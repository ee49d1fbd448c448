"""A step that changes its arguments in place, where nobody sees it: a traced program's arrays go in and come out.

def step(model, x): model.count += 1; return model(x)       MutationWarning: step changes model/count
def step(state, x): state["n"] += 1; return state           returned, so the caller sees it
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import jax

from autopart.base.errors import PartitionWarning
from autopart.base.user_line import warn


class MutationWarning(PartitionWarning):
    """A partitioned function changed an argument in place, and does not return what it put there."""


_WATCHED: weakref.WeakKeyDictionary[Callable, Callable] = weakref.WeakKeyDictionary()
"""What stands for each function, so that jax, which keeps traces by function, finds them again."""


def warning_of_changes(fun: Callable) -> Callable:
    """`fun`, which warns when it is traced if it leaves other arrays in its arguments that it does not return.

    The same for the same function, as long as that is alive.
    """
    try:
        known = _WATCHED.get(fun)
        if known is None:
            known = _WATCHED[fun] = _watched(fun, weakref.ref(fun))
    except TypeError:  # not hashable, or cannot be referred to weakly
        return _watched(fun, lambda: fun)
    return known


def _watched(fun: Callable, alive: Callable[[], Callable | None]) -> Callable:
    def watched(*args: Any, **kwargs: Any) -> Any:
        called = alive()
        assert called is not None
        before = {id(leaf) for leaf in jax.tree.leaves((args, kwargs))}
        out = called(*args, **kwargs)
        seen = before | {id(leaf) for leaf in jax.tree.leaves(out)}
        after = jax.tree_util.tree_flatten_with_path((args, kwargs))[0]
        changed = [path for path, leaf in after if id(leaf) not in seen]
        if changed:
            warn(_text(called, args, changed), MutationWarning)
        return out

    functools.update_wrapper(watched, fun)
    with contextlib.suppress(TypeError, ValueError):
        watched.__signature__ = inspect.signature(fun)
    watched.__dict__["__wrapped__"] = _defined(fun)
    return watched


def _defined(fun: Any) -> Any:
    """What jax reads the line of a function from for its errors, referred to weakly: `watched` keeps no function."""
    fun = inspect.unwrap(fun)
    if isinstance(fun, functools.partial):
        return _defined(fun.func)
    try:
        return weakref.proxy(fun)
    except TypeError:
        return fun


def _text(fun: Callable, args: tuple, changed: list[Any]) -> str:
    try:
        names = list(inspect.signature(fun).parameters)
    except (TypeError, ValueError):
        names = [f"argument {n}" for n in range(len(args))]
    paths = ["/".join([_head(path, names), *map(_part, path[2:])]) for path in changed]
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    name = getattr(fun, "__name__", type(fun).__name__)
    return (
        f"{name} changes {paths[0]}{more} in place, which its caller does not see"
        "\n  try  return what changes; ap.nnx.jit, for modules of Flax nnx"
    )


def _head(path: Any, names: list[str]) -> str:
    """The parameter that a path of (args, kwargs) begins in."""
    position = getattr(path[1], "idx", None)
    return _part(path[1]) if position is None else names[position] if position < len(names) else str(position)


def _part(entry: Any) -> str:
    return next((str(getattr(entry, a)) for a in ("key", "name", "idx") if hasattr(entry, a)), str(entry))
