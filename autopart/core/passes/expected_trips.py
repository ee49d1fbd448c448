"""The pass `ExpectedTrips`: how often loops whose length the data decide are expected to run.

    while (not every sequence ended) { one more token }        counts once        ->      as often as it is told

Nothing that is computed changes. What is in such a loop is priced, and a reduction moved out of it or not, by how often
it runs; a loop that ends when the data say so counts as one run unless somebody knows better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from autopart.base.arguments import STRING, check_fields, mapping, whole
from autopart.base.errors import UnknownNameError
from autopart.base.name_patterns import matches
from autopart.core.passes.program_pass import Pass
from autopart.core.program import Program, Scope


@dataclass(frozen=True)
class ExpectedTrips(Pass):
    """Counts loops of unknown length as so many runs.

    trips  runs of every such loop, or a dict of patterns over source lines and scopes, such as
           `{"*decode.py:80 *": 64, "*/beam/*": 16}`; the first that matches decides, and a loop that none matches stays

    For `ap.jit(..., passes=[ap.ExpectedTrips(64)])`. Raises, when applied, `UnknownNameError` for a pattern that
    matches no loop of unknown length. Loops of a length that is known keep it.
    """

    trips: int | Mapping[str, int] = field(default=1, hash=False)

    def __post_init__(self) -> None:
        runs = whole(1, 2**31)
        check_fields(self, trips=runs | mapping(STRING, runs, "a dict of patterns to numbers of runs"))

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        asked = {"*": self.trips} if isinstance(self.trips, int) else dict(self.trips)
        places = {scope.op: program.where(scope.op) for scope in program.scopes[1:] if _is_open(scope)}
        if not isinstance(self.trips, int):
            _check(asked, places.values())
        runs = {op: next((n for p, n in asked.items() if matches(at, p)), 1) for op, at in places.items()}
        if not runs:
            return program
        scopes = [replace(s, trips=runs[s.op] + (s.kind == "condition")) if _is_open(s) else s for s in program.scopes]
        return replace(program, scopes=scopes)


def _is_open(scope: Scope) -> bool:
    """The body or the condition of a loop whose length is not known."""
    return not scope.trips_known


def _check(asked: Mapping[str, int], places: Iterable[str]) -> None:
    known = sorted(set(places))
    for pattern in asked:
        if not any(matches(place, pattern) for place in known):
            raise UnknownNameError(
                f'no loop of unknown length matches "{pattern}"',
                why="; ".join(known[:4]) or "the program has none: its loops run as often as constants say",
                hint="a pattern over lines and scopes, such as '*decode.py:80 *'",
            )
