"""The conflicts of a lowered program as a tuple that notebooks show as a table: ways out and their prices."""

from __future__ import annotations

from autopart.api.explained.priced_conflict import PricedConflict
from autopart.base.html import table_html
from autopart.base.quoting import short_place
from autopart.base.units import bytes_text, seconds_text


class Conflicts(tuple[PricedConflict, ...]):
    """Conflicts, in program order."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        rows = [
            [
                f"{conflict.count} x {conflict.kind}", conflict.axis, short_place(conflict.where), way.mapping,
                "-" if way.step_s is None else seconds_text(way.step_s),
                "-" if way.peak_bytes is None else bytes_text(way.peak_bytes),
            ]
            for conflict in self
            for way in conflict.ways
        ]  # fmt: skip
        return table_html(["op", "axis", "where", "way out", "step", "peak"], rows)
