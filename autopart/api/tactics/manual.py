"""Tactics: what a schedule is made of. Each one issues the same few actions.

    ManualPartition({"x": 0}, axis="batch")
      ->  tile<x, 0, "batch">; propagate "batch"

    ManualPartition({"params": LARGEST_DIVISIBLE_DIM}, axis="batch")
      ->  tile<params/w, 2, "batch">          f32[16,512,2048]: a loop takes layers off dim 0, which is passed over
          and in the report: params/b         f32[16,3]: no dim that "batch" divides, so it is left whole

A tactic never undoes an earlier one: what that decided is already propagated when this one acts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from autopart.api.tactics.given_shardings import dims_by_axis
from autopart.api.tactics.tactic import TacticContext, TacticResult
from autopart.api.tracing.names import Named, Names, names_of_nothing, resolve, select
from autopart.base.arguments import ANYTHING, AXES, STRING, Kind, check_fields, check_once, mapping, shown, takes
from autopart.base.errors import TileError, UnknownNameError
from autopart.core.doors.user_function import called, name_of
from autopart.core.passes.padding.twins import twin_of
from autopart.core.table.actions import Action, Atomic, Propagate, Tile
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.priors import walked_dims


class Choice(Enum):
    """What a tactic may say about a value besides a dim."""

    REPLICATED = "replicated"
    FIRST_DIVISIBLE_DIM = "first divisible dim"
    LARGEST_DIVISIBLE_DIM = "largest divisible dim"
    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return f"ap.{self.name}"


REPLICATED = Choice.REPLICATED
"""Keep the value whole along the axis (an atomic action)."""

FIRST_DIVISIBLE_DIM = Choice.FIRST_DIVISIBLE_DIM
"""The first dim whose size, after what already tiles it, the axis divides; nothing where there is none.

Dims along which a loop takes slices of arrays of this shape, such as the layers of stacked parameters, are passed over:
tiled there, every device would receive each layer when its turn comes. A dim given as a number may be one of those.
"""

LARGEST_DIVISIBLE_DIM = Choice.LARGEST_DIVISIBLE_DIM
"""As `FIRST_DIVISIBLE_DIM`, but of those dims the one that is largest on a device, the first of equal ones: what is
left of it can be divided furthest by later tactics."""

UNKNOWN = Choice.UNKNOWN
"""No decision: propagation decides."""


INPUTS = mapping(STRING, ANYTHING, "a dict of names to decisions, such as {'x': 0}")
"""What a manual tactic is told about values."""

UNEVEN = Kind('"refuse" or "pad"', lambda v: isinstance(v, str) and v in ("refuse", "pad"))
"""What becomes of dims that an axis does not divide."""


@dataclass(frozen=True)
class ManualPartition:
    """Tiles named values along one mesh axis, or several, then propagates.

    inputs  maps an argument's name, a tag, "outputs", a glob over full names or, for other values, scope, op and line
            ("blocks_*/attn/dot_general@lm.py:52", as found schedules are printed) to a decision: a dim,
            `REPLICATED`, `FIRST_DIVISIBLE_DIM`, `LARGEST_DIVISIBLE_DIM`, `UNKNOWN`, a `PartitionSpec` of the axes
            (whole along those that it does not name), a callable `(path, shape) -> decision`, or a dict of globs over
            the pytree path below the key. With several axes, a tuple decides for each of them, anything else for all.
            Arrays without elements cannot be tiled; a key that
            names others too passes over them.
    axis    a mesh axis or a sequence of them, outermost first
    name    what the metadata calls the tactic
    uneven  what becomes of a dim, given as a number, that the axis does not divide: "refuse" is a `TileError`; "pad"
            makes it longer inside the program (see `ap.Pad`), and tiles that

    What a divisible dim was asked of and has none is left whole; the report's `left_whole` says which and why.

    Raises, when applied: `UnknownNameError` for a name, path or glob that matches nothing, `TileError` for a
    decision that is not legal, `MeshError` for an unknown axis.
    """

    inputs: Mapping[str, Any]
    axis: str | Sequence[str]
    name: str = ""
    uneven: str = "refuse"

    def __post_init__(self) -> None:
        check_fields(self, inputs=INPUTS, axis=AXES, name=STRING, uneven=UNEVEN)
        check_once("ManualPartition", self.axes)
        if not self.name:
            object.__setattr__(self, "name", f"ManualPartition[{','.join(self.axes)}]")

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes it acts on."""
        return (self.axis,) if isinstance(self.axis, str) else tuple(self.axis)

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        actions: list[Action] = []
        left: list[dict[str, str]] = []
        padded: dict[str, list[list[int]]] = {}
        for named, axis, asked in self.asked(partitioning):
            if isinstance(asked, str):
                left.append({"name": named.name, "axis": axis, "why": asked})
                continue
            self._apply(partitioning, asked)
            actions.append(asked)
            if self.uneven == "pad" and isinstance(asked, Tile) and asked.value != named.value:
                size = partitioning.program.type_of(asked.value).shape[asked.dim]
                padded.setdefault(named.name, []).append([asked.dim, size])
        partitioning.propagate(self.axes)
        report = ({"left_whole": left} if left else {}) | ({"pad": {"inputs": padded}} if padded else {})
        return TacticResult([*actions, *map(Propagate, self.axes)], report)

    def _apply(self, partitioning: Partitioning, asked: Action) -> None:
        try:
            partitioning.apply(asked)
        except TileError as error:
            if "is not a multiple of" not in error.why or self.uneven == "pad":
                raise
            raise TileError(error.what, why=error.why, hint=f'{error.hint}, or uneven="pad"'.lstrip(", ")) from None

    def tiles(self, partitioning: Partitioning) -> dict[tuple[int, int], tuple[str, ...]]:
        """(value, dim) -> axes, of what is to be tiled along a dim that is given as a number."""
        found: dict[tuple[int, int], tuple[str, ...]] = {}
        for value, _, decisions in self._decisions(partitioning):
            rank = len(partitioning.program.type_of(value).shape)
            for axis, dim in zip(self.axes, decisions, strict=True):
                if isinstance(dim, int) and -rank <= dim < rank:
                    found[value, dim % rank] = (*found.get((value, dim % rank), ()), axis)
        return found

    def asked(self, partitioning: Partitioning) -> Iterator[tuple[Named, str, Action | str]]:
        """(value, axis, the action asked for, or why a dim that may be chosen is none) in order.

        Each is made when it is its turn: a dim that is to be chosen depends on those applied until then.
        """
        for axis in self.axes:
            partitioning.mesh.index(axis)
        walked = _WalkedDims(partitioning)
        for value, named, decisions in self._decisions(partitioning):
            for axis, decision in zip(self.axes, decisions, strict=True):
                asked = _asked(partitioning, walked, value, axis, decision, named.exact)
                if asked is not None:
                    yield named, axis, asked

    def _decisions(self, partitioning: Partitioning) -> Iterator[tuple[int, Named, tuple[Any, ...]]]:
        names, nothing = Names.of(partitioning.program), names_of_nothing(partitioning.program)
        decided: dict[int, tuple[str, tuple[Any, ...]]] = {}
        for key, wanted in self.inputs.items():
            found = known_values(select(names, key, nothing), partitioning)
            for target, decision in resolve(found, wanted, key, nothing):
                each = self._per_axis(decision, target, partitioning)
                if target.value in decided and decided[target.value][1] != each:
                    raise TileError(
                        f"two decisions for {target.name}: {decided[target.value][1]} and {each}",
                        why="two keys of one tactic name it",
                        hint="narrow one of the globs, or use two tactics",
                    )
                if key != target.name and 0 in partitioning.program.type_of(target.value).shape:
                    continue
                if target.value not in decided:
                    decided[target.value] = (target.name, each)
                    yield target.value, target, each

    def _per_axis(self, decision: Any, target: Named, partitioning: Partitioning) -> tuple[Any, ...]:
        if takes(decision, 2):
            shape, what = partitioning.program.type_of(target.value).shape, f"{target.name}: {name_of(decision)}"
            decision = called(TileError, what, decision, target.below or target.name, shape)
        dims = dims_by_axis(target.name, decision, len(partitioning.program.type_of(target.value).shape), self.axes)
        if dims is not None:
            decision = tuple(REPLICATED if dim is None else dim for dim in dims)
        each = decision if isinstance(decision, tuple) else (decision,) * len(self.axes)
        each = tuple(int(one) if isinstance(one, np.integer) else one for one in each)
        if len(each) != len(self.axes):
            raise TileError(f"{target.name}: {len(each)} decisions for {len(self.axes)} axes {self.axes}")
        for one in each:
            if one is not None and not isinstance(one, Choice) and (isinstance(one, bool) or not isinstance(one, int)):
                raise TileError(
                    f"{target.name}: {shown(one)} is not a decision",
                    hint="a dim, ap.REPLICATED, ap.FIRST_DIVISIBLE_DIM, ap.LARGEST_DIVISIBLE_DIM, ap.UNKNOWN, a "
                    "PartitionSpec, a function (path, shape) -> one of these, or a dict of globs below the key",
                )
        return each


def known_values(found: list[tuple[Named, str]], partitioning: Partitioning) -> list[tuple[Named, str]]:
    """What was selected, unless it is a number that no value of the program has."""
    count = partitioning.program.value_count
    for named, _ in found:
        if named.value >= count:
            raise UnknownNameError(f'the program has no value "{named.name}"', hint=f'"%0" to "%{count - 1}"')
    return found


class _WalkedDims:
    """Shape -> dims along which loops take slices of arguments of that shape; looked for when first asked."""

    def __init__(self, partitioning: Partitioning):
        self._program = partitioning.program

    @functools.cached_property
    def _of(self) -> Mapping[tuple[int, ...], frozenset[int]]:
        return walked_dims(self._program, np.array(self._program.arguments, np.int32))

    def of(self, shape: tuple[int, ...]) -> frozenset[int]:
        """Those of a shape."""
        return self._of.get(shape, frozenset())


def _asked(
    partitioning: Partitioning, walked: _WalkedDims, value: int, axis: str, decision: Any, exact: bool
) -> Action | str | None:
    """The action that a decision asks for, why there is none, or None where nothing is asked.

    A name stands for the value and its longer twin, a number or a place in the code for exactly that value.
    """
    match decision:
        case None | Choice.UNKNOWN:
            return None
        case Choice.REPLICATED:
            return Atomic(value, axis)
        case Choice.FIRST_DIVISIBLE_DIM | Choice.LARGEST_DIVISIBLE_DIM:
            return _chosen(partitioning, walked, value, axis, decision is Choice.LARGEST_DIVISIBLE_DIM)
        case dim:
            shape = partitioning.program.type_of(value).shape
            dim = dim + len(shape) if -len(shape) <= dim < 0 else dim
            is_choice = dim in range(len(shape)) and not exact
            return Tile(_longer(partitioning, value, dim, axis) if is_choice else value, dim, axis)


def _longer(partitioning: Partitioning, value: int, dim: int, axis: str) -> int:
    """The value, or its longer twin where the axis does not divide the dim, or others tile the twin already."""
    twin = twin_of(partitioning.program, value, dim)
    if twin is not None and (partitioning.why_not_tile(value, dim, axis) or partitioning.ways(twin, dim) > 1):
        return twin
    return value


def _chosen(partitioning: Partitioning, walked: _WalkedDims, value: int, axis: str, largest: bool) -> Action | str:
    """tile<value, dim, axis> on the first or the largest dim that may be tiled; else why there is none."""
    shape = partitioning.program.type_of(value).shape
    why = {d: partitioning.why_not_tile(value, d, axis) for d in range(len(shape))}
    legal = [d for d, reason in why.items() if not reason]
    dims = [d for d in legal if d not in walked.of(shape)]
    if dims:
        size = {d: shape[d] // partitioning.ways(value, d) for d in dims}
        return Tile(value, max(dims, key=lambda d: (size[d], -d)) if largest else dims[0], axis)
    if legal:
        return f"a loop takes slices along dim {legal[0]}, and no other dim is divisible by {axis}"
    if partitioning.tiled_dim(value, axis) >= 0:
        return f"this axis already tiles its dim {partitioning.tiled_dim(value, axis)}"
    return "; ".join(dict.fromkeys(why.values())) or "it has no dims"
