"""A named schedule: what our people write first, the `acme_spread` of one axis."""

from collections.abc import Iterator
from dataclasses import dataclass

from autopart.search.space import Decision, DecisionSpace, Named, NamedSchedule, register_named_schedule


@register_named_schedule("AcmeHalves")
@dataclass(frozen=True)
class Halves(NamedSchedule):
    """On each axis."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            yield Named(f"AcmeHalves({axis})", (Decision("acme_spread", 0, -1, axis),), (axis,))
