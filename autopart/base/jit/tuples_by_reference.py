"""How kernels pass named tuples of arrays to each other: as one pointer each.

    Numba      kernel(program, k)    call @kernel(ptr, ptr, i64, i64, ptr, i64, i64, ..., i64)     7 or 9 words an array
    here                             call @kernel(%program*, i64)

Written out, each function is given hundreds of words by each that calls it, puts them together and takes them apart
again: a tenth of the seconds that kernels take to compile. A tuple that a kernel was given goes on by the same pointer.
"""

# pyright: reportAttributeAccessIssue=false, reportUnknownMemberType=false
# (llvmlite's classes carry no types)
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from numba.core import cgutils, types
from numba.core.datamodel.packer import ArgPacker

UNCHANGED = ("noalias", "captures(none)")
"""Of a pointer to a tuple: nobody writes what it points at, so it is read once and not after each write to an array."""


class References:
    """The tuples that the functions of one compilation are given, and by which pointers."""

    def __init__(self, context: Any):
        self._context = context
        self._given: dict[int, tuple[Any, Any]] = {}

    def packer(self, types_: Sequence[Any]) -> Packer:
        """What Numba asks for where arguments of these types are passed or taken."""
        models, named = self._context.data_model_manager, [is_named(t) for t in types_]
        return Packer(
            self,
            [models.lookup(t).get_value_type().as_pointer() if n else None for t, n in zip(types_, named, strict=True)],
            [ArgPacker(models, () if n else (t,)) for t, n in zip(types_, named, strict=True)],
        )

    def taken(self, builder: Any, pointer: Any) -> Any:
        """The tuple behind a pointer that a function is given."""
        value = builder.load(pointer)
        self._given[id(value)] = value, pointer
        return value

    def passed(self, builder: Any, value: Any) -> Any:
        """A pointer to a tuple: the one by which this function was given it, else to a copy."""
        pointer = self._pointer_of(value) or self._pointer_of(_only_value(builder.function, value))
        if pointer is not None and pointer.parent is builder.function:
            return pointer
        return cgutils.alloca_once_value(builder, value)

    def _pointer_of(self, value: Any) -> Any:
        return self._given.get(id(value), (None, None))[1]


class Packer:
    """Numba's `ArgPacker`, with a pointer for each named tuple.

    `pointers` has the type of each, None for other arguments, which `others` pack.
    """

    def __init__(self, references: References, pointers: list[Any], others: list[Any]):
        self._references, self._pointers, self._others = references, pointers, others

    @property
    def argument_types(self) -> tuple[Any, ...]:
        """The types of the words that are passed."""
        pairs = zip(self._pointers, self._others, strict=True)
        return tuple(t for pointer, other in pairs for t in ((pointer,) if pointer else other.argument_types))

    def as_arguments(self, builder: Any, values: Sequence[Any]) -> tuple[Any, ...]:
        """The words for some arguments."""
        words: list[Any] = []
        for pointer, other, value in zip(self._pointers, self._others, values, strict=True):
            words += [self._references.passed(builder, value)] if pointer else other.as_arguments(builder, (value,))
        return tuple(words)

    def from_arguments(self, builder: Any, words: Sequence[Any]) -> list[Any]:
        """The arguments for some words."""
        values: list[Any] = []
        for is_tuple, other, mine in self._shared_out(words):
            values += [self._references.taken(builder, mine[0])] if is_tuple else other.from_arguments(builder, mine)
        return values

    def assign_names(self, words: Sequence[Any], names: Sequence[str]) -> None:
        """Names the words after the arguments."""
        for (is_tuple, other, mine), name in zip(self._shared_out(words), names, strict=True):
            if is_tuple:
                mine[0].name = name
                for attribute in UNCHANGED:
                    with contextlib.suppress(ValueError):  # older versions of llvmlite have another word for it
                        mine[0].add_attribute(attribute)
            else:
                other.assign_names(mine, [name])

    def _shared_out(self, words: Sequence[Any]) -> Iterator[tuple[bool, Any, list[Any]]]:
        """For each argument whether it is a named tuple, what packs it otherwise, and its words."""
        begin, every = 0, list(words)
        for pointer, other in zip(self._pointers, self._others, strict=True):
            end = begin + (1 if pointer else len(other.argument_types))
            yield pointer is not None, other, every[begin:end]
            begin = end


def is_named(type_: Any) -> bool:
    """True for Numba's types of named tuples."""
    return isinstance(type_, (types.NamedTuple, types.NamedUniTuple))


def _only_value(function: Any, value: Any) -> Any:
    """What a variable that is read holds whenever it is, or None: arguments stand in variables that never change."""
    if getattr(value, "opname", None) != "load":
        return None
    stored = [
        each.operands[0]
        for block in function.blocks
        for each in block.instructions
        if each.opname == "store" and each.operands[1] is value.operands[0]
    ]
    kept = [each for each in stored if not hasattr(each, "constant")]  # Numba clears what is read no more
    return kept[0] if len(kept) == 1 else None
