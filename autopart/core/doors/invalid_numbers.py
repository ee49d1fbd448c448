"""`jax_debug_nans` and `jax_debug_infs`: a call that returns such a number raises, and says which op made it.

    jax.config.update("jax_debug_nans", True)
    step(x)      FloatingPointError: invalid value (nan) encountered in log

jax looks at what a compiled program returned, and says so by an error of its own. What it says of `jax.jit` it finds by
running the function once more, op by op; so does this, on the whole arrays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, NoReturn

from autopart.core.doors.jax_private import InternalFloatingPointError


@contextlib.contextmanager
def invalid_numbers_raise(name: str, op_by_op: Callable[[], Any] | None = None) -> Generator[None]:
    """Makes jax's own error a `FloatingPointError`, that of `op_by_op` where it has one too."""
    try:
        yield
    except InternalFloatingPointError as error:
        raise_invalid(error.ty, name, op_by_op)


def raise_invalid(kind: str, name: str, op_by_op: Callable[[], Any] | None = None) -> NoReturn:
    """Raises `FloatingPointError` for a number of a kind ("nan", "inf") among the results of `name`."""
    said = f"invalid value ({kind}) among the results of {name}"
    if op_by_op is None:
        raise FloatingPointError(said) from None
    try:
        op_by_op()
    except (FloatingPointError, ZeroDivisionError) as found:
        raise found from None
    except Exception as why:  # an argument has been donated, or the function runs under jax.jit only
        raise FloatingPointError(f"{said}; it cannot be run op by op: {why}") from why
    raise FloatingPointError(f"{said}; run op by op on whole arrays, it has none") from None
