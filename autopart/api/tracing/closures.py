"""Large arrays that a function closes over: what they are called, and a warning of them.

    table = jnp.ones((8192, 8192))                       closed_over/table      f32[8192,8192]
    step = ap.jit(lambda x: x @ table, mesh, [BP])       ClosedOverWarning: <lambda> closes over 268 MB of arrays ...

They are arguments of the program already (`core/importer/large_constants.py`), the first ones.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from autopart.base.errors import PartitionWarning
from autopart.base.quoting import short_place
from autopart.base.units import bytes_text
from autopart.base.user_line import warn
from autopart.core.importer.large_constants import CLOSED_OVER, LARGE_BYTES
from autopart.core.program import Program

WARNED_BYTES = 10e6
"""What a function closes over in all before it is warned of."""

WARNED_LINES = 4
"""Arrays that the warning lists, the largest first."""


class ClosedOverWarning(PartitionWarning):
    """A function closes over large arrays, which each lowering writes into a module."""


def names_of_closures(fun: Any, arrays: Sequence[np.ndarray]) -> list[str]:
    """A name for each array: the variable that the function finds it in, and the path there; else its number."""
    names, held = list[str](), list(_held(fun))
    for number, array in enumerate(arrays):
        found = (f"{CLOSED_OVER}/{path}" for path, leaf in held if _is_equal(leaf, array))
        names.append(next((name for name in found if name not in names), f"{CLOSED_OVER}/{number}"))
    return names


def _held(fun: Any) -> Iterator[tuple[str, Any]]:
    """(path, array) of the large arrays in the variables that a function closes over, or reads of its module."""
    fun = inspect.unwrap(fun)
    while isinstance(fun, functools.partial):
        fun = inspect.unwrap(fun.func)
    try:
        variables = inspect.getclosurevars(fun)
    except (TypeError, ValueError):
        return
    for name, value in {**variables.globals, **variables.nonlocals}.items():
        for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
            if isinstance(leaf, (np.ndarray, jax.Array)) and leaf.nbytes >= LARGE_BYTES:
                yield jax.tree_util.keystr((jax.tree_util.GetAttrKey(name), *path), simple=True, separator="/"), leaf


def _is_equal(leaf: Any, array: np.ndarray) -> bool:
    if leaf.shape != array.shape or leaf.dtype != array.dtype:
        return False
    if isinstance(leaf, jax.Array) and (leaf.is_deleted() or not leaf.is_fully_addressable):
        return False
    return np.array_equal(np.asarray(leaf).view(np.uint8), np.ascontiguousarray(array).view(np.uint8))


def warn_of_closures(name: str, program: Program, count: int) -> None:
    """Warns where the first `count` arguments of a function's program, the arrays that it closes over, are large."""
    rows = [(program.type_of(v), v, n) for v, n in zip(program.arguments[:count], program.argument_names, strict=False)]
    total = sum(type_.bytes for type_, _, _ in rows)
    if total <= WARNED_BYTES:
        return
    rows.sort(key=lambda row: -row[0].bytes)
    lines = [
        f"{name.removeprefix(f'{CLOSED_OVER}/')} {type_}, {bytes_text(type_.bytes)}{_read_at(program, value)}"
        for type_, value, name in rows
    ]
    more = [f"and {len(lines) - WARNED_LINES} more"] if len(lines) > WARNED_LINES else []
    what = (
        f"{name} closes over {bytes_text(total)} of arrays, which count as arguments and are written into each module"
    )
    warn("\n  ".join([what, *lines[:WARNED_LINES], *more, f"try  pass them as arguments of {name}"]), ClosedOverWarning)


def _read_at(program: Program, value: int) -> str:
    pointer, uses = program.users
    where = (program.where(int(program.use_op[use])) for use in uses[pointer[value] : pointer[value + 1]])
    return next((f", read at {short_place(line)}" for line in where if line), "")
