"""A function that a user brings, called: what it raises, as an error that names the function and its line.

called(ArgumentError, "the cost model price", price, local, mesh)

ArgumentError: the cost model price raised ZeroDivisionError('division by zero')
  why  train.py:31
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from autopart.base.arguments import shown
from autopart.base.errors import PartitionError

Result = TypeVar("Result")


def called(
    error: type[PartitionError],
    what: str,
    function: Callable[..., Result],
    *args: Any,
    beside: str = "",
    hint: str = "",
) -> Result:
    """What the function returns. An error of autopart's own goes through as it is."""
    try:
        return function(*args)
    except (MemoryError, PartitionError):
        raise
    except Exception as raised:
        where = traceback.extract_tb(raised.__traceback__)[-1]
        why = f"{where.filename}:{where.lineno}{beside}"
        raise error(f"{what} raised {raised!r}", why=why, hint=hint) from raised


def name_of(function: object) -> str:
    """What errors call a function."""
    return str(getattr(function, "__qualname__", shown(function)))
