"""Ops that a pass takes apart for tiles, or whole, whichever is faster once tiles are known.

    jnp.pad(x, mode="reflect"), a convolution      space in tiles     images in tiles
    the border by itself                           1.1 ms             4.2 ms
    all of it in one convolution                   5.9 ms             3.3 ms

Taken apart, windows move over tiles with a halo, and a few rows are computed by convolutions of their own
(`core/passes/bordered_windows.py`); a Fourier transform of several dims is one of each, and a tile of one is exchanged
for another (`core/passes/split_transforms.py`). Where none of these dims is in tiles, one op takes less. So the
schedule runs on both programs, each with its share of a search's budget, and the faster one is taken; without a
price, the one that moves fewer bytes.
"""

from __future__ import annotations

import dataclasses
import warnings

from autopart.api.programs.fitting import scheduled_best, share
from autopart.api.programs.tried_programs import Setting, rank
from autopart.api.tactics.automatic import AutomaticPartition
from autopart.api.tactics.schedule import Scheduled
from autopart.api.tactics.tactic import Tactic
from autopart.api.tracing.trace import Traced
from autopart.base.errors import PartitionError

PROGRAMS = 2
"""That are tried."""


def scheduled_whole_or_apart(traced: Traced, setting: Setting) -> tuple[Traced, Scheduled]:
    """The program that is best partitioned by the schedule, and how, with ops whole or taken apart."""
    if traced.whole is None:
        return scheduled_best(traced, setting)
    setting = dataclasses.replace(setting, schedule=tuple(map(_with_share, setting.schedule)))
    found, errors = list[tuple[tuple[Traced, Scheduled], list[warnings.WarningMessage]]](), list[PartitionError]()
    for one in (traced, traced.whole()):
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found.append((scheduled_best(one, setting), said))
        except PartitionError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    best, said = min(found, key=lambda each: _rank(each[0][1]))
    for warning in said:  # those of the program that is taken
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return best


def _with_share(tactic: Tactic) -> Tactic:
    if not isinstance(tactic, AutomaticPartition):
        return tactic
    return dataclasses.replace(tactic, budget=share(tactic.budget, PROGRAMS))


def _rank(scheduled: Scheduled) -> tuple[float, ...]:
    """Of two, the one with the smaller is better: by the estimate, else by bytes that move; then fewer ops."""
    local = scheduled.device_local
    priced = (local.moved_bytes,) if scheduled.estimate is None else rank(scheduled.estimate)
    return (*priced, local.program.op_count)
