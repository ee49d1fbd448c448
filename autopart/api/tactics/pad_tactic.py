"""Dims that axes do not divide: a tactic that pads them, and the one pass that all such tactics of a schedule share.

[ap.Pad({"params": {"wte": (0, 128)}}), ...]                        50,257 tokens become 50,304 inside the program
[ap.ManualPartition({"params": {"wte": 0}}, "model", uneven="pad")] as many as the axes that tile the dim ask for

Arguments and outputs keep their sizes, and are stored whole along the dim, since a `NamedSharding` divides evenly. What
is computed of them, such as logits, is longer, so it tiles; nothing that counts ever reads what was added.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from autopart.api.tactics.manual import ManualPartition
from autopart.api.tactics.tactic import Tactic, TacticContext, TacticResult
from autopart.api.tracing.names import Named, Names, names_of_nothing, resolve, select
from autopart.base.arguments import ANYTHING, STRING, check_fields, mapping, shown
from autopart.base.errors import PartitionError, TileError
from autopart.core.mesh import Mesh
from autopart.core.passes import Pass
from autopart.core.passes.padding import Padding
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning

_INPUTS = mapping(STRING, ANYTHING, "a dict of names to (dim, multiple), such as {'wte': (0, 128)}")


@dataclass(frozen=True)
class Pad:
    """Makes dims of arguments, and of what is computed of them, longer inside the program.

    inputs  maps an argument's name, a tag or a glob, as in `ManualPartition`, to (dim, multiple): the dim is made the
            next whole multiple long; a list of such pairs for several dims; or a dict of globs below the key
    name    what the metadata calls the tactic

    Numbers are those of the unpadded program. A dim that is a multiple already stays as it is. Tactics that tile such a
    dim of the argument tile what is longer. Raises, when applied: `UnknownNameError` for a name that is not there,
    `TileError` for a decision that is no (dim, multiple) of the array.
    """

    inputs: Mapping[str, Any]
    name: str = "Pad"

    def __post_init__(self) -> None:
        check_fields(self, inputs=_INPUTS, name=STRING)

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`: the program is another already."""
        return TacticResult([], self.report)

    @property
    def report(self) -> dict[str, Any]:
        """What it says of itself in a report, as plain values."""
        return {"pad": {"inputs": _plain(self.inputs)}}

    def asked(self, program: Program) -> Iterator[tuple[int, int, int]]:
        """(value, dim, multiple) of what is to be longer."""
        names, nothing = Names.of(program), names_of_nothing(program)
        for key, wanted in self.inputs.items():
            for target, decision in resolve(select(names, key, nothing), wanted, key, nothing):
                pairs = decision if isinstance(decision, list) else [decision]
                for dim, multiple in (_checked(pair, target, program) for pair in pairs):
                    yield target.value, dim, multiple


def pads(tactic: Tactic) -> bool:
    """True if it asks for longer dims."""
    return isinstance(tactic, Pad) or (isinstance(tactic, ManualPartition) and tactic.uneven == "pad")


def _plain(decision: Any) -> Any:
    if isinstance(decision, Mapping):
        return {str(key): _plain(below) for key, below in decision.items()}
    return [list(pair) for pair in (decision if isinstance(decision, list) else [decision])]


def _checked(pair: Any, target: Named, program: Program) -> tuple[int, int]:
    """(dim, multiple) of a value."""
    shape = program.type_of(target.value).shape
    match pair:
        case (int(dim), int(multiple)) if -len(shape) <= dim < len(shape) and multiple > 0:
            return dim % len(shape), multiple
        case _:
            raise TileError(
                f"{target.name}: {shown(pair)} says nothing about {list(shape)}",
                hint=f"(dim, multiple), with a dim from 0 to {len(shape) - 1}" if shape else "an array with dims",
            )


@dataclass(frozen=True)
class PaddingAsked(Pass):
    """What all tactics of a schedule ask to be padded, at once.

    tactics  those that ask, each with its place in the schedule
    tiling   the manual tactics of the schedule: along one dim, all their axes count
    sizes    of the mesh's axes
    """

    tactics: tuple[tuple[Tactic, TacticContext], ...]
    tiling: tuple[ManualPartition, ...]
    sizes: Mapping[str, int] = field(hash=False)

    def __repr__(self) -> str:
        return f"Padding({', '.join(tactic.name for tactic, _ in self.tactics)})"

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        multiples: dict[tuple[int, int], int] = {}
        for tactic, context in self.tactics:
            try:
                for value, dim, multiple in self._asked(program, tactic):
                    multiples[value, dim] = math.lcm(multiples.get((value, dim), 1), multiple)
            except PartitionError as error:
                raise context.blamed(error, tactic) from None
        shapes = {value: program.type_of(value).shape for value, _ in multiples}
        wanted = [
            (value, dim, -(-shapes[value][dim] // multiple) * multiple)
            for (value, dim), multiple in multiples.items()
            if shapes[value][dim] % multiple
        ]
        return Padding(tuple(wanted)).apply(program)

    def _asked(self, program: Program, tactic: Tactic) -> Iterator[tuple[int, int, int]]:
        if isinstance(tactic, Pad):
            yield from tactic.asked(program)
        elif isinstance(tactic, ManualPartition):
            partitioning = Partitioning(program, Mesh(dict(self.sizes)))
            axes = [other.tiles(partitioning) for other in self.tiling]
            for place in tactic.tiles(partitioning):
                names = {name for tiles in axes for name in tiles.get(place, ())}
                if place[0] not in program.output_place or place[0] in program.argument_place:
                    yield *place, math.prod(self.sizes[name] for name in names)
