"""What differs between two plans.

mesh      batch=8, model=4   ->   batch=16, model=2
input     params/w1   whole  ->   [batch | -]
all_reduce     12            ->   4
step      9.1 ms             ->   7.4 ms   (-18.7 %)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autopart.api.plan.plan_check import spec_text
from autopart.base.html import lines_html, table_html
from autopart.base.quoting import one_line
from autopart.base.units import bytes_text, seconds_text

if TYPE_CHECKING:
    from autopart.api.plan.plan import Plan, PlanArray

LINES = 40
"""Lines that a printed difference spends on arrays; `PlanDiff.rows` has all of them."""


@dataclass(frozen=True)
class Difference:
    """One thing that differs. what: "mesh", "device", "program", "options", "input", "output", "collective", "step_s",
    "peak_bytes" or "actions"; name: which one; before, after: as text, "-" where there is none."""

    what: str
    name: str
    before: str
    after: str


@dataclass(frozen=True)
class PlanDiff:
    """Everything in which two plans differ; false where they are alike."""

    rows: tuple[Difference, ...]

    def __bool__(self) -> bool:
        return bool(self.rows)

    def __str__(self) -> str:
        if not self.rows:
            return "no difference"
        arrays = [row for row in self.rows if row.what in ("input", "output")]
        dropped = set(arrays[LINES:])
        shown = [row for row in self.rows if row not in dropped]
        cells = [(row.what, one_line(row.name), one_line(row.before), "->", one_line(row.after)) for row in shown]
        widths = [max(len(row[i]) for row in cells) for i in range(5)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
        return "\n".join([*lines, *([f"and {len(dropped)} more inputs and outputs"] if dropped else [])])

    def _repr_html_(self) -> str:
        """For notebooks: a row for each."""
        rows = [(row.what, row.name, row.before, row.after) for row in self.rows]
        return table_html(["what", "name", "before", "after"], rows) if rows else lines_html([self])


def differences(before: Plan, after: Plan) -> PlanDiff:
    """What differs, in the order in which one asks: where, what program, which layouts, at what cost."""
    return PlanDiff(tuple(_rows(before, after)))


def _rows(before: Plan, after: Plan) -> Iterator[Difference]:
    yield from _text("mesh", "", _mesh(before), _mesh(after))
    yield from _text("device", "", before.device or "-", after.device or "-")
    yield from _text("program", "", before.program[:12], after.program[:12])
    for name in sorted({*before.options, *after.options}):
        yield from _text("options", name, str(before.options.get(name, "-")), str(after.options.get(name, "-")))
    arrays = [*_arrays("input", before.inputs, after.inputs), *_arrays("output", before.outputs, after.outputs)]
    yield from arrays
    if not arrays and [s.actions for s in before.steps] != [s.actions for s in after.steps]:
        yield Difference("actions", "", _actions(before), _actions(after))
    for kind in dict.fromkeys([*before.collectives, *after.collectives]):
        yield from _text("collective", kind, str(before.collectives.get(kind, 0)), str(after.collectives.get(kind, 0)))
    yield from _number("step_s", before.step_s, after.step_s, seconds_text)
    yield from _number("peak_bytes", before.peak_bytes, after.peak_bytes, bytes_text)


def _text(what: str, name: str, before: str, after: str) -> Iterator[Difference]:
    if before != after:
        yield Difference(what, name, before, after)


def _arrays(what: str, before: Sequence[PlanArray], after: Sequence[PlanArray]) -> Iterator[Difference]:
    old, new = _by_name(before), _by_name(after)
    for key in dict.fromkeys([*old, *new]):
        texts = [_array(side.get(key)) for side in (old, new)]
        if texts[0] == texts[1]:
            continue
        same_type = key in old and key in new and old[key].type == new[key].type
        shown = [_array(side.get(key), with_type=not same_type) for side in (old, new)]
        yield Difference(what, key[0], shown[0], shown[1])


def _by_name(arrays: Sequence[PlanArray]) -> dict[tuple[str, int], PlanArray]:
    """Arrays by name, and by their place among those of one name."""
    count: dict[str, Iterator[int]] = {}
    return {(a.name, next(count.setdefault(a.name, itertools.count()))): a for a in arrays}


def _array(array: PlanArray | None, with_type: bool = True) -> str:
    if array is None:
        return "-"
    return f"{array.type} {spec_text(array.spec)}" if with_type else spec_text(array.spec)


def _mesh(plan: Plan) -> str:
    return ", ".join(f"{name}={size}" for name, size in plan.axes)


def _actions(plan: Plan) -> str:
    return f"{sum(len(step.actions) for step in plan.steps)} in {len(plan.steps)} steps"


def _number(what: str, before: float | None, after: float | None, text: Callable[[float], str]) -> Iterator[Difference]:
    if before == after:
        return
    old, new = (text(n) if n is not None else "-" for n in (before, after))
    change = f" ({100 * (after / before - 1):+.1f} %)" if before and after is not None else ""
    yield Difference(what, "", old, new + change)
