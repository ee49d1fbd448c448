"""A conflict with what each way out of it would cost, as a value; `resolutions.py` makes them."""

from __future__ import annotations

from dataclasses import dataclass

from autopart.base.quoting import one_line, short_place
from autopart.base.units import bytes_text, seconds_text


@dataclass(frozen=True)
class Resolution:
    """One way out of a conflict.

    mapping              which dims of the operands are sliced, and what the results become: "(0, _) -> tile 0"
    step_s, peak_bytes   estimates of the whole program then; None where nothing prices it, or it was not tried
    tried                False where the metadata's bound was reached before
    """

    mapping: str
    step_s: float | None
    peak_bytes: float | None
    tried: bool


@dataclass(frozen=True)
class PricedConflict:
    """Conflicts of one kind of op at one line: what they are, how many, and what each way out would cost.

    op       the op with its types
    step_s   estimate of the program as it stands, with nothing settled
    """

    kind: str
    axis: str
    op: str
    where: str
    count: int
    step_s: float | None
    ways: tuple[Resolution, ...]

    def lines(self) -> list[str]:
        """The conflict, and a line per way out."""
        count = f", {self.count} x" if self.count > 1 else ""
        where = f"  at {short_place(self.where)}" if self.where else ""
        return [f'{self.kind} on "{one_line(self.axis)}"{count}{where}', *(f"  {self._way(way)}" for way in self.ways)]

    def _way(self, way: Resolution) -> str:
        if not way.tried:
            return f"{way.mapping}  not priced here: Lowered.conflicts does"
        if way.step_s is None or way.peak_bytes is None or self.step_s is None:
            return way.mapping
        delta = way.step_s - self.step_s
        more = f"{'+' if delta >= 0 else '-'}{seconds_text(abs(delta))}"
        return f"{way.mapping}  {seconds_text(way.step_s)} ({more}), {bytes_text(way.peak_bytes)}"

    def __str__(self) -> str:
        return "\n".join(self.lines())
