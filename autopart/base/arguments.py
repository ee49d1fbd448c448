"""What a user may pass: one sentence for each argument that is of another kind.

Budget(evaluations="many")

ArgumentError: Budget: evaluations is 'many'
  try  an integer of at least 0, or None
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autopart.base.errors import ArgumentError, PartitionError


@dataclass(frozen=True)
class Kind:
    """What an argument may be: in words, and as a test."""

    says: str
    legal: Callable[[Any], bool]

    def __or__(self, other: Kind) -> Kind:
        return Kind(f"{self.says}, or {other.says}", lambda value: self.legal(value) or other.legal(value))


def check(owner: str, error: type[PartitionError] = ArgumentError, **arguments: tuple[Any, Kind]) -> None:
    """Raises `error`, naming the argument and what is legal, unless each (value, kind) fits."""
    for name, (value, kind) in arguments.items():
        if not kind.legal(value):
            raise error(f"{owner}: {name} is {shown(value)}", hint=kind.says)


def check_fields(value: Any, error: type[PartitionError] = ArgumentError, **kinds: Kind) -> None:
    """As `check`, for the fields of a dataclass."""
    check(type(value).__name__, error, **{name: (getattr(value, name), kind) for name, kind in kinds.items()})


def check_once(owner: str, axes: str | Sequence[str]) -> None:
    """Raises `ArgumentError` for axes of which one is there twice; a single one needs no list."""
    names = (axes,) if isinstance(axes, str) else tuple(axes)
    twice = [name for n, name in enumerate(names) if name in names[:n]]
    if twice:
        raise ArgumentError(
            f'{owner}: the axis "{twice[0]}" is there twice',
            why=f"the axes are {', '.join(names)}",
            hint="each axis once: what it tiles is tiled by all of its devices",
        )


def shown(value: Any) -> str:
    """A value in an error: short, and whatever its `repr` does."""
    try:
        text = repr(value)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}... (a {type(value).__name__})"


def whole(least: int, most: int = 2**63 - 1) -> Kind:
    """Integers."""
    says = f"an integer of at least {least}" if most == 2**63 - 1 else f"an integer from {least} to {most}"
    return Kind(says, lambda v: isinstance(v, int) and not isinstance(v, bool) and least <= v <= most)


def one_of(*names: str) -> Kind:
    """Strings that are listed."""
    return Kind(" or ".join(map(repr, names)), lambda v: isinstance(v, str) and v in names)


def number(least: float, most: float = math.inf, above: bool = False) -> Kind:
    """Finite numbers from `least`, or above it, to `most`."""
    says = f"a number {'above' if above else 'of at least'} {least:g}"
    says += f" and at most {most:g}" if most < math.inf else ""
    return Kind(says, lambda v: is_finite(v) and (least < v if above else least <= v) and v <= most)


def is_real(value: Any) -> bool:
    """True for a number that can be compared with others."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value  # NaN does not


def is_finite(value: Any) -> bool:
    """True for a number that a float64 can hold, infinity aside."""
    return is_real(value) and abs(value) <= sys.float_info.max


def instance(says: str, *types: type) -> Kind:
    """Objects of some types; `says` tells how to make one."""
    return Kind(says, lambda v: isinstance(v, types))


def having(says: str, *methods: str) -> Kind:
    """Objects, not classes, with these methods."""
    return Kind(says, lambda v: not isinstance(v, type) and all(callable(getattr(v, m, None)) for m in methods))


def sequence(of: Kind, says: str, least: int = 0) -> Kind:
    """Lists and tuples of a kind; text is none."""
    return Kind(says, lambda v: is_sequence(v) and len(v) >= least and all(map(of.legal, v)))


def is_sequence(value: Any) -> bool:
    """True for lists, tuples and the like, and not for text."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def mapping(key: Kind, to: Kind, says: str) -> Kind:
    """Dicts and the like."""
    return Kind(says, lambda v: isinstance(v, Mapping) and all(key.legal(k) and to.legal(w) for k, w in v.items()))


def function_of(count: int) -> Kind:
    """Functions, and instances with `__call__`, that take so many arguments."""
    return Kind(f"a function of {count} argument{'' if count == 1 else 's'}", lambda v: takes(v, count))


def maker(says: str, *methods: str) -> Kind:
    """Classes with these methods, and functions without arguments that make an instance of one."""
    return Kind(f"a class with {says}, or a function that makes such an object", lambda v: makes(v, methods))


def makes(value: Any, methods: Sequence[str]) -> bool:
    """True for a class that has the methods itself or inherits them, and for a function without arguments."""
    if not isinstance(value, type):
        return takes(value, 0)
    return all(any(m in vars(base) for base in value.__mro__[:-1]) for m in methods)


def takes(value: Any, count: int) -> bool:
    """True for a function, and no class, that can be called with so many arguments; where nobody knows, it can."""
    if isinstance(value, type) or not callable(value):
        return False
    try:
        inspect.signature(value).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not say
        return True
    return True


NONE = Kind("None", lambda v: v is None)
ANYTHING = Kind("anything", lambda v: True)
FLAG = instance("True or False", bool)
STRING = instance("a string", str)
TEXT = Kind("a string that is not empty", lambda v: isinstance(v, str) and v != "")
PATH = Kind("a path", lambda v: (isinstance(v, str) and v != "" and "\0" not in v) or isinstance(v, Path))
FUNCTION = having("a function, or an instance of a class with __call__", "__call__")
AXES = TEXT | sequence(TEXT, "a list of them", least=1)
