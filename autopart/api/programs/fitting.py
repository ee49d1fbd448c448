"""Which program a schedule with a search is given: padded or not, in microbatches or not, what is kept.

    ap.AutomaticPartition(axes, microbatch=(1, 4), recompute=True)

    program                       named schedules               search
    whole                         2.1 s  61 GB, does not fit    -
    Recompute("blocks")           2.6 s  22 GB                  -
      and attention's results     2.4 s  25 GB                  2.3 s  31 GB    taken
    Microbatch(4)                 2.5 s  34 GB                  2.4 s  29 GB
    Microbatch(4), "blocks"       2.8 s  14 GB                  -

Each program is partitioned by the whole schedule, in two rounds. In the first the search costs its named schedules and
nothing else. Those that compute again and fit then keep what the memory that is left has room for, results by kind and
type: which of them, and beside which program, is found by a few prices (`kept_subsets.py`). The `FINALISTS` best go on
to the second round, each with its share of the search's budget. Costs are the schedule's own, so sharding, microbatches
and recomputation are chosen together under the device's memory.

With `uneven="pad"` dims that an axis does not divide are made longer first, where that pays (`chosen_padding.py`). All
other programs are then padded alike; one that cannot be is tried without.

With `stages=`, programs with stages (`stagings.py`) are priced after those without. The best of them goes on to the
second round as one more, so that those without are searched as they would be without `stages=`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import cast

from autopart.api.programs.chosen_padding import chosen_padding
from autopart.api.programs.does_not_fit import advised
from autopart.api.programs.kept_subsets import kept_subsets
from autopart.api.programs.rewritings import rewritings
from autopart.api.programs.stagings import staged_programs
from autopart.api.programs.tried_programs import Setting, Tried, named_only, tried_program
from autopart.api.programs.uneven_dims import uneven_dims
from autopart.api.tactics.automatic import AutomaticPartition
from autopart.api.tactics.microbatch import Microbatch
from autopart.api.tactics.pad_tactic import pads
from autopart.api.tactics.pipeline import Pipeline
from autopart.api.tactics.recompute import Recompute
from autopart.api.tactics.schedule import Scheduled
from autopart.api.tactics.tactic import Tactic, TacticContext
from autopart.api.tracing.trace import Traced
from autopart.base.errors import ArgumentError, BlockedError, UnknownNameError
from autopart.search.budget import Budget

FINALISTS = 2
"""Programs that the search's budget is divided among."""


def scheduled_best(traced: Traced, setting: Setting) -> tuple[Traced, Scheduled]:
    """The program that is best partitioned by the schedule, and how."""
    place = next((i for i, tactic in enumerate(setting.schedule) if _chooses(tactic)), None)
    if place is None:
        scheduled = setting.run(traced, setting.schedule, setting.strict)
        return traced, advised(traced, setting, scheduled, ())
    search = setting.schedule[place]
    assert isinstance(search, AutomaticPartition)
    _check_alone(setting, search, place)
    plain = search.on_one_program()
    tried = _first_round(traced, setting, search, plain, place)
    without = _usable([t for t in tried if t.rewriting.pipeline is None], setting, place)[:FINALISTS]
    again = dataclasses.replace(plain, budget=share(search.budget, len(without)))
    with_stages = sorted((t for t in tried if t.rewriting.pipeline and t.scheduled is not None), key=lambda t: t.rank)
    finalists = [*without, *with_stages[:1]]
    found = [tried_program(t.rewriting, traced, setting, again, place, strict=setting.strict) for t in finalists]
    best = _usable(found if setting.strict or not _goes_on(search.budget) else [*found, *finalists], setting, place)[0]
    made, scheduled = cast(Traced, best.traced), cast(Scheduled, best.scheduled)
    scheduled = advised(traced, setting, scheduled, tried)
    return made, _reported(scheduled, setting.before(scheduled) + place, best, [*tried, *found])


def _usable(tried: Sequence[Tried], setting: Setting, place: int) -> list[Tried]:
    """Those that could be partitioned, the best first; raises what the schedule raised where none could."""
    usable = sorted((t for t in tried if t.scheduled is not None), key=lambda t: t.rank)
    if usable:
        return usable
    for one in tried:
        if one.error is not None and not str(one.rewriting):
            raise one.error
    error = ArgumentError("none of the programs can be partitioned", why="\n       ".join(t.why for t in tried))
    raise TacticContext(position=place + 1, count=len(setting.schedule)).blamed(error, setting.schedule[place])


def _chooses(tactic: Tactic) -> bool:
    return isinstance(tactic, AutomaticPartition) and tactic.chooses_program


def _goes_on(budget: Budget) -> bool:
    return budget.evaluations != 0 and budget.seconds != 0


def share(budget: Budget, among: int) -> Budget:
    """One of so many equal parts of a budget."""
    return dataclasses.replace(
        budget,
        evaluations=budget.evaluations and max(1, budget.evaluations // among),
        seconds=None if budget.seconds is None else budget.seconds / among,
    )


def _check_alone(setting: Setting, search: AutomaticPartition, place: int) -> None:
    """One search chooses the program, and nothing else in the schedule says the same."""
    for other, tactic in enumerate(setting.schedule):
        said = (
            (isinstance(tactic, Microbatch) and search.microbatch)
            or (isinstance(tactic, Recompute) and search.recompute)
            or (pads(tactic) and search.uneven == "pad")
            or isinstance(tactic, Pipeline)
        )
        if said or (other != place and _chooses(tactic)):
            raise TacticContext(position=other + 1, count=len(setting.schedule)).blamed(
                ArgumentError(
                    f"{search.name} chooses the program too",
                    why="it was given microbatch=, recompute=, uneven= or stages=, and a program is rewritten once",
                    hint="leave one of them out",
                ),
                tactic,
            )


def _first_round(
    traced: Traced, setting: Setting, search: AutomaticPartition, plain: AutomaticPartition, place: int
) -> list[Tried]:
    """Every program with the named schedules on it, those left out that cannot be faster."""
    named = named_only(plain)
    price = lambda rewriting, fastest=math.inf: tried_program(rewriting, traced, setting, named, place, fastest)  # noqa: E731
    wanted = list(rewritings(traced.program, search))
    tried = [price(rewriting) for rewriting in wanted[:1]]
    if tried and search.uneven == "pad":
        tried += chosen_padding(
            tried[0], uneven_dims(traced.program, setting.mesh, search.axes_of(setting.mesh)), price
        )
    pad = min(tried, key=lambda t: t.rank).rewriting.pad if tried else None
    for rewriting in wanted[1:]:
        tried.append(price(dataclasses.replace(rewriting, pad=pad), _fastest(tried)))
        twice = tried[-1].rewriting.in_two_loops
        if isinstance(tried[-1].error, BlockedError) and twice is not None and "loops=" in tried[-1].error.hint:
            tried[-1] = price(twice, _fastest(tried))
        if pad is not None and tried[-1].error is not None:
            tried.append(price(rewriting, _fastest(tried)))
    unknown = [t.error for t in tried if isinstance(t.error, UnknownNameError) and search.recompute is not True]
    if unknown:
        raise unknown[0]
    if search.recompute is True:
        tried += kept_subsets(traced, tried, price, setting.mesh)
    fast = lambda rewriting: price(dataclasses.replace(rewriting, pad=pad), _fastest(tried))  # noqa: E731
    return [*tried, *staged_programs(traced.program, search, setting.mesh, fast)]


def _fastest(tried: Sequence[Tried]) -> float:
    """Seconds of the fastest step that fits."""
    return min((t.rank[1] for t in tried if t.rank[0] == 0), default=math.inf)


def _reported(scheduled: Scheduled, place: int, best: Tried, tried: Sequence[Tried]) -> Scheduled:
    """With what was chosen, and from what, in the search's report."""
    reports = list(scheduled.reports)
    chosen = str(best.rewriting)
    said = {"program": chosen or "as it is", "programs": [t.row() for t in tried], **best.rewriting.report}
    left_out = dict.fromkeys(f"left out: {t.why}" for t in tried if t.error is not None)
    said["remarks"] = [*reports[place].report.get("remarks", ()), *left_out]
    note = f"the program is rewritten first: {chosen}" if chosen else "the program is taken as it is"
    row = reports[place]
    reports[place] = dataclasses.replace(row, report={**row.report, **said}, notes=(*row.notes, note))
    return dataclasses.replace(scheduled, reports=tuple(reports))
