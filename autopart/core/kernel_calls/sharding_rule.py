"""How a kernel may be sliced: factors in the notation of `jax.experimental.custom_partitioning`, and two clauses.

    b h s d, b h t d, b h t d -> b h s d; tile b=4 h=8; reduce t:sum=512

    tile b=4        every array with a dim b is sliced there, up to 4 ways; each result has the dim
    reduce t:sum    so is it; a result without the dim is in parts, which are added up
    reduce t:any    so is it; any device computes the whole of a result without the dim
    d               in neither clause: whole on every device
    @s              in an operand's place: a number, to which each device adds where its slice of s starts

An array's dims stand in order, one name each; `_` is a dim of no factor, and `...` leads as many dims as are left. Of a
compound `(b n)` the first name is the major factor, the one that tiles. A dim of one element is whole, whatever its
name. Without `tile`, all names are factors that every result has, and `reduce` names those that some result lacks. A
number says into how many slices at most; without one, as many as all dims of the name allow.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autopart.base.errors import ArgumentError
from autopart.core.op import ANY, REDUCTION_NAMES, SUM, WHOLE, TileMapping

NONE = "_"
"""A dim of no factor."""

START = "@"
"""Before the name of a factor: the number where a slice of it starts."""

_NAMES = {**REDUCTION_NAMES, ANY: "any"}
_CODES = {name: code for code, name in _NAMES.items()}
_DIM = re.compile(r"\([^()]*\)|\.\.\.\d*|[^\s()]+")
_FACTOR = re.compile(r"(?P<name>\w+)(?::(?P<code>\w+))?(?:=(?P<ways>\d+))?")

Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Factor:
    """A factor that tiles: what it leaves of results without the dim, and into how many slices at most."""

    name: str
    ways: int
    code: int | None = None


@dataclass(frozen=True)
class Factors:
    """Names of dims per operand and per result, and which of them are sliced."""

    operands: tuple[tuple[str, ...], ...]
    results: tuple[tuple[str, ...], ...]
    sliced: tuple[Factor, ...]

    def mappings(self) -> tuple[TileMapping, ...]:
        """A tile mapping for each factor that is sliced, in their order."""
        return tuple(
            TileMapping(
                tuple(_dim(names, f.name) for names in self.operands),
                tuple(_dim(names, f.name) if f.name in names else f.code or SUM for names in self.results),
                f.ways,
            )
            for f in self.sliced
        )

    @property
    def starts(self) -> dict[int, int]:
        """Operands that say where a slice of a factor starts: number of the operand -> that of the factor."""
        numbers = {START + factor.name: n for n, factor in enumerate(self.sliced)}
        return {k: numbers[names[0]] for k, names in enumerate(self.operands) if names and names[0] in numbers}

    def after(self, ways: Mapping[str, int]) -> Factors:
        """Of one slice, where factors are cut so many ways already."""
        left = tuple(Factor(f.name, f.ways // ways.get(f.name, 1), f.code) for f in self.sliced)
        return Factors(self.operands, self.results, left)

    def only(self, sliced: Sequence[Factor]) -> Factors:
        """With some of the factors."""
        left = {factor.name for factor in sliced}

        def kept(side: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
            return tuple(tuple(n if n.removeprefix(START) in left else NONE for n in dims) for dims in side)

        return Factors(kept(self.operands), kept(self.results), tuple(sliced))

    def reading(self, results: Sequence[int]) -> Factors:
        """Of some of the results."""
        return Factors(self.operands, tuple(self.results[r] for r in results), self.sliced)

    def mapped(self, has_dim: Sequence[bool], size: int) -> Factors:
        """With one more dim in front of some operands, and of all results."""
        taken = {name for names in (*self.operands, *self.results) for name in names}
        name = next(name for n in itertools.count() if (name := f"v{n}") not in taken)
        operands = tuple((name, *n) if has else n for n, has in zip(self.operands, has_dim, strict=True))
        sliced = (Factor(name, size), *self.sliced) if size > 1 else self.sliced
        return Factors(operands, tuple((name, *n) for n in self.results), sliced)

    def slices(self, avals: Sequence[Any], ways: Mapping[str, int], of_results: bool = False) -> list[Any]:
        """Abstract values of operands, or of results, where factors are cut so many ways."""
        return [
            type(a)(tuple(size // ways.get(n, 1) for size, n in zip(a.shape, names, strict=False)), a.dtype)
            for a, names in zip(avals, self.results if of_results else self.operands, strict=True)
        ]

    def ways(self, whole: Shapes, local: Shapes) -> dict[str, int]:
        """How often each factor is cut where operands of these whole shapes have those local ones."""
        found: dict[str, int] = {}
        for names, before, now in zip(self.operands, whole, local, strict=True):
            found.update(
                (n, b // max(1, a)) for n, b, a in zip(names, before, now, strict=False) if n != NONE and b > 1
            )
        return {f.name: found[f.name] for f in self.sliced if f.name in found}

    def __str__(self) -> str:
        sides = " -> ".join(", ".join(" ".join(names) for names in side) for side in (self.operands, self.results))
        tiles = [f"{f.name}={f.ways}" for f in self.sliced if f.code is None]
        sums = [f"{f.name}:{_NAMES[f.code]}={f.ways}" for f in self.sliced if f.code is not None]
        return f"{sides}; tile {' '.join(tiles) or '-'}; reduce {' '.join(sums) or '-'}"


def factors_of(text: str, operands: Shapes, results: Shapes) -> Factors:
    """Reads a rule for arrays of these shapes. Raises `ArgumentError` where it does not fit them."""
    sides, *clauses = (part.strip() for part in text.split(";"))
    before, arrow, behind = sides.partition("->")
    if not arrow:
        raise _wrong(text, "there is no ->")
    named = [_names(text, side, shapes) for side, shapes in ((before, operands), (behind, results))]
    sizes: dict[str, int] = {}
    for names, shape in zip((*named[0], *named[1]), (*operands, *results), strict=True):
        for name, size in zip(names, shape, strict=False):
            sizes[name] = math.gcd(sizes.get(name, 0), size)
    known = [name for name in sizes if name != NONE]
    asked = dict(_clauses(text, clauses))
    everywhere = [n for n in known if all(n in names for names in named[1])]
    tiles = asked.get("tile", [(n, None, None) for n in everywhere])
    sliced: list[Factor] = []
    for name, code, ways in (*tiles, *((n, c or "sum", w) for n, c, w in asked.get("reduce", ()))):
        if name not in sizes:
            if _is_singleton(text, name):
                continue
            raise _wrong(
                text, f"no array of more than one element along it has a dim {name}; there are {', '.join(known)}"
            )
        if code is not None and code not in _CODES:
            raise _wrong(text, f"{code} is no reduction; there are {', '.join(_CODES)}")
        if code is None and name not in everywhere:
            raise _wrong(text, f"a result has no dim {name}: its parts would have to be combined (reduce {name})")
        if ways is not None and sizes[name] % int(ways):
            raise _wrong(text, f"{name} has {sizes[name]} elements, which {ways} does not divide")
        sliced.append(Factor(name, int(ways or sizes[name]), None if code is None else _CODES[code]))
    sliced = [factor for factor in sliced if factor.ways > 1]
    return Factors(tuple(named[0]), tuple(named[1]), tuple(sliced))


def _dim(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else WHOLE


def _is_singleton(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text.partition(";")[0]) is not None


def _names(text: str, side: str, shapes: Shapes) -> list[tuple[str, ...]]:
    """Of each array of one side the names of its dims."""
    arrays = [part.strip() for part in side.split(",")] if side.strip() or shapes else []
    if len(arrays) != len(shapes):
        raise _wrong(text, f"it has {len(arrays)} arrays where the call has {len(shapes)}")
    return [_dims(text, array, shape) for array, shape in zip(arrays, shapes, strict=True)]


def _dims(text: str, array: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    names = [part.strip("()").split()[0] if part.startswith("(") else part for part in _DIM.findall(array)]
    if names and names[0].startswith("..."):
        group, lead = names[0][3:], len(shape) - len(names) + 1
        names = [*(f"batch{group}_{i}" for i in range(lead)), *names[1:]]
    if not shape and array.startswith(START):
        return (array,)
    if len(names) != len(shape):
        raise _wrong(text, f"[{array}] has {len(names)} names for an array of shape {list(shape)}")
    return tuple(NONE if size == 1 else name for name, size in zip(names, shape, strict=True))


def _clauses(text: str, clauses: Sequence[str]) -> Iterator[tuple[str, list[tuple[str, str | None, str | None]]]]:
    for clause in clauses:
        word, _, rest = clause.partition(" ")
        found = [_FACTOR.fullmatch(part) for part in rest.split() if part != "-"]
        if word not in ("tile", "reduce") or None in found:
            raise _wrong(text, f'"{clause}" is no clause')
        yield word, [(m["name"], m["code"], m["ways"]) for m in found if m is not None]


def _wrong(text: str, why: str) -> ArgumentError:
    return ArgumentError(f'the rule "{text}" does not fit', why=why, hint='"b s d, d -> b s d; tile b s; reduce -"')
