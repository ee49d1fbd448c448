"""The best schedules of a search, each with what sets it apart: for whoever chooses, a person or a script.

    1  found                      1.05 s   61 GB  compute 81 % of the step, all_gather 12 %
    2  FSDP(data)+Megatron(model) 1.10 s   59 GB  +4.8 %: all_reduce +61 ms, all_gather -12 ms
    3  FSDP(data)                 1.31 s   80 GB  does not fit: h100 holds 80 GB, 0.4 GB less than needed

What was found comes first; the named schedules that the search costed follow, by memory that is missing, then seconds.
Each is lowered once more for its reasons.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autopart.api.jitted.lowered import Lowered
from autopart.api.tactics.parallelism import Parallelism
from autopart.api.tactics.tactic import TacticContext
from autopart.base.errors import ArgumentError
from autopart.base.quoting import one_line
from autopart.base.units import bytes_text, seconds_text
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.estimate import Estimate
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.search.space.several_axes import REPLICATED

FOUND = "found"
"""What the search's own result is called."""

LEAST_SHARE = 0.005
"""Of a step: a difference below it is no reason."""


@dataclass(frozen=True)
class Ranked:
    """A schedule with its costs.

    schedule   what `--schedule` or `ap.Parallelism` takes; "" for what was found and has no name: its plan has it
    seconds    compute, and each kind of collective that is there
    reasons    what takes its time, or what sets it apart from the first
    """

    rank: int
    name: str
    schedule: str
    step_s: float
    peak_bytes: float
    fits: bool
    seconds: Mapping[str, float]
    reasons: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """As plain values."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        cost = f"{seconds_text(self.step_s):>8}  {bytes_text(self.peak_bytes):>8}"
        return f"{self.rank:>2}  {one_line(self.name):<32}  {cost}  {'; '.join(self.reasons)}"


def ranking(low: Lowered, top: int) -> list[Ranked]:
    """The so many best schedules of the last search in a lowered program's schedule.

    Raises `ArgumentError` where there was none, or where another model than the simulator priced it.
    """
    first = low.estimate
    place = next((n for n, row in reversed([*enumerate(low.metadata.tactics)]) if "baselines" in row.report), None)
    if place is None or first is None:
        raise ArgumentError("there is nothing to rank", why="no search was in the schedule, or nothing priced it")
    report = low.metadata.tactics[place].report
    name = f"{FOUND}: {report['named']}" if report["named"] else FOUND
    found = [_ranked(1, name, report["named"], first, None)]
    others = (row for row in sorted(report["baselines"], key=lambda row: row["rank"]) if row["name"] != report["named"])
    priced = itertools.islice(_priced(low, place, [row["name"] for row in others]), top - 1)
    return [*found, *(_ranked(n, name, name, estimate, first) for n, (name, estimate) in enumerate(priced, 2))]


def _priced(low: Lowered, place: int, names: list[str]) -> Iterator[tuple[str, Estimate]]:
    """Named schedules on what stood before the search, priced one by one."""
    scheduled, program = low.scheduled, low.traced.program
    before = sum(len(report.actions) for report in scheduled.reports[:place])
    for name in names:
        partitioning = Partitioning(program, low.mesh)
        partitioning.apply_all(scheduled.actions[:before])
        if name != REPLICATED:
            try:
                partitioning.apply_all(Parallelism(name).act(partitioning.copy(), TacticContext()).actions)
            except ArgumentError:  # a start or a seed, which has no name that a schedule knows
                continue
        estimate = scheduled.price(lower_for_device(partitioning, scheduled.device_local.options))
        if estimate is not None:
            yield name, estimate


def _ranked(rank: int, name: str, schedule: str, estimate: Estimate, first: Estimate | None) -> Ranked:
    seconds = _seconds(estimate)
    reasons = _shares(estimate, seconds) if first is None else _differences(estimate, seconds, first)
    if not estimate.fits:
        reasons = (f"does not fit: {estimate.why}", *reasons)
    return Ranked(rank, name, schedule, estimate.step_s, estimate.peak_bytes, estimate.fits, seconds, tuple(reasons))


def _seconds(estimate: Estimate) -> dict[str, float]:
    moved = {kind: total.seconds for kind, total in estimate.collectives.items() if total.count}
    return {"compute": estimate.compute_s, **moved}


def _shares(estimate: Estimate, seconds: Mapping[str, float]) -> list[str]:
    ranked = sorted(seconds.items(), key=lambda row: -row[1])
    shares = [
        f"{what} {100 * s / estimate.serial_s:.0f} %" for what, s in ranked if s > LEAST_SHARE * estimate.serial_s
    ]
    return [f"{', '.join(shares)} of the step"] if shares else []


def _differences(estimate: Estimate, seconds: Mapping[str, float], first: Estimate) -> list[str]:
    base = _seconds(first)
    more = {what: seconds.get(what, 0.0) - base.get(what, 0.0) for what in {**seconds, **base}}
    large = [(what, s) for what, s in sorted(more.items(), key=lambda row: -abs(row[1])) if _counts(s, first)]
    said = ", ".join(f"{what} {'+' if s > 0 else '-'}{seconds_text(abs(s))}" for what, s in large)
    ratio = estimate.step_s / first.step_s if first.step_s else 1.0
    change = f"{100 * (ratio - 1):+.2g} %" if ratio < 2 else f"{ratio:.2g} times"
    extra = estimate.peak_bytes - first.peak_bytes
    memory = f"peak {'+' if extra > 0 else '-'}{bytes_text(abs(extra))}" if abs(extra) > 0.01 * first.peak_bytes else ""
    return [text for text in (change + (f": {said}" if said else ""), memory) if text]


def _counts(seconds: float, first: Estimate) -> bool:
    return abs(seconds) > LEAST_SHARE * first.serial_s
