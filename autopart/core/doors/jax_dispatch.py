"""Calls that jax's C++ dispatch answers without Python: the fast path of `jax.jit`, over programs compiled elsewhere.

    call = Dispatcher("step", slow, capacity=4096).call
    call(state, x)      a signature never seen      ->  slow(state, x)  ->  (results, fast_path(compiled, ...))
    call(state, x)      the same signature again    ->  the executable, straight from C++

A signature is the pytree, each array's type and sharding, the static arguments, and jax's own state: whether it traces,
x64, the mesh that is set. So a tracer, and an array that is elsewhere, come to `slow` again.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

import jax

from autopart.core.doors.invalid_numbers import invalid_numbers_raise, raise_invalid
from autopart.core.doors.jax_private import ArrayImpl, jaxlib_jax, pjit, pxla, tree_util

FastPath = Any
"""What jax needs to run an executable from C++."""


class Dispatcher:
    """A function, `call`, that remembers `capacity` signatures, those called last, and asks `slow` about all others.

    `slow(*args, **kwargs)` returns (results, what `fast_path` gives for them, or None to be asked again). It is asked
    too where an array has been deleted, or is given twice and donated: jax's own dispatch ends Python there if several
    devices are to run. `donated(args, kwargs)` says which leaves a call donates; None where no call does.

    Under `jax_debug_nans` a call that returns such a number raises `FloatingPointError`. `fun` is then run op by op, to
    say which op makes it.
    """

    def __init__(
        self,
        name: str,
        slow: Callable[..., tuple[Any, FastPath | None]],
        *,
        static_argnums: Sequence[int] = (),
        static_argnames: Sequence[str] = (),
        donated: Callable[[tuple, dict], Sequence[Any]] | None = None,
        fun: Callable[..., Any] | None = None,
        capacity: int = 4096,
    ):
        def missed(*args: Any, **kwargs: Any) -> tuple[Any, FastPath | None, bool]:
            with invalid_numbers_raise(name, fun and functools.partial(fun, *args, **kwargs)):
                return *slow(*args, **kwargs), False

        def without_jit(*args: Any, **kwargs: Any) -> Any:
            return missed(*args, **kwargs)[0]

        def invalid(*args: Any, **kwargs: Any) -> NoReturn:
            raise_invalid("nan or inf", name, fun and functools.partial(fun, *args, **kwargs))

        dispatched: Any = jaxlib_jax.pjit(
            name,
            without_jit,
            missed,
            list(static_argnums),
            list(static_argnames),
            pxla.JitGlobalCppCacheKeys(),
            tree_util.dispatch_registry,
            pxla.cc_shard_arg,
            jaxlib_jax.PjitFunctionCache(capacity=capacity),
        )
        dispatched._fun = invalid  # what jax runs where a call that it answered from C++ returned such a number
        flatten, is_deleted = tree_util.dispatch_registry.flatten, ArrayImpl.is_deleted

        def donated_twice(leaves: list[Any], args: tuple, kwargs: dict) -> bool:
            if donated is None or len(set(map(id, leaves))) == len(leaves):
                return False
            times = Counter(map(id, leaves))
            return any(times[id(x)] > 1 for x in donated(args, kwargs) if isinstance(x, jax.Array))

        def call(*args: Any, **kwargs: Any) -> Any:
            leaves, _ = flatten((args, kwargs) if kwargs else args, None)
            try:
                deleted = any(map(is_deleted, leaves))
            except TypeError:  # not all of them are jax's arrays
                deleted = any(map(is_deleted, [x for x in leaves if type(x) is ArrayImpl]))
            slowly = deleted or donated_twice(leaves, args, kwargs)
            return (without_jit if slowly else dispatched)(*args, **kwargs)

        self.call: Callable[..., Any] = call
        """What `slow` would return, from C++ where it can be. A closure: no call looks anything up in the instance."""
        self._dispatched = dispatched

    def forget(self) -> None:
        """Lets all signatures go: the next call of each is a slow one."""
        self._dispatched._clear_cache()


def fast_path(
    compiled: jax.stages.Compiled, results: Any, arguments: int, before: Sequence[jax.Array] = ()
) -> FastPath | None:
    """How to run `compiled` from C++ for a call with so many arrays; `results` are what it returned, as their pytree.

    `before` are arrays that it takes in front of those of every call.

    None where that cannot be: the program has effects or calls the host.
    """
    executable = cast(Any, compiled)._executable
    run = getattr(executable, "unsafe_call", None)
    if compiled._params.const_args or getattr(run, "has_host_callbacks", True):  # type: ignore[attr-defined]
        return None
    leaves, tree = jax.tree.flatten(results)
    return pjit._get_fastpath_data(  # pyright: ignore[reportPrivateUsage]
        executable, tree, [None] * arguments, leaves, frozenset(), [], None, list(before)
    )


def static_arguments(jitted: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """(numbers, names) of the static arguments of what `jax.jit` returned, each given by the other where it can be."""
    info = jitted._jit_info
    return tuple(info.static_argnums), tuple(info.static_argnames)


def donated_arguments(jitted: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """(numbers, names) of the donated arguments of what `jax.jit` returned, each given by the other where it can be."""
    info = jitted._jit_info
    return tuple(info.donate_argnums), tuple(info.donate_argnames)
