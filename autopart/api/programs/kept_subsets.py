"""Which of the groups of results that a program computes again are kept, as far as there is memory: a few on trial.

    program                     step      peak      groups: seconds they save, bytes they take
    "blocks"                    2.6 s     22 GB     attention 0.11 s 2 GB, up 0.23 s 6 GB, logits 0.07 s 4 GB
    Microbatch(4), "blocks"     2.8 s     14 GB     the same, a quarter of the bytes

Every program that computes again and fits is a *start*; a set of groups kept beside it is a program of its own. Sums of
seconds and bytes predict every such program at once. The one that is predicted to be fastest of those that fit is
priced by the schedule, whichever start it belongs to; what that says of its groups corrects the predictions of all
sets with some of them. The next one follows, until none is predicted to be faster than what was found. Not every group
is there at the peak, so what was found is then tried with one more group, though it is predicted to be too large.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from autopart.api.programs.kept_results import Group, kept_instead
from autopart.api.programs.rewritings import Rewriting
from autopart.api.programs.tried_programs import Tried
from autopart.api.tactics.recompute import Recompute
from autopart.api.tracing.trace import Traced
from autopart.core.mesh import Mesh
from autopart.costmodel.estimate import Estimate
from autopart.costmodel.hardware.devices import device

TRIALS = 10
"""Programs with groups of results kept that are priced at most."""

BESIDE = 3
"""Of these, how many are what was found with one more group."""

GROUPS = 8
"""Groups of one start, the most seconds for a byte first: sets of them are 2**8."""

ROOM = 0.75
"""Share of the memory up to which results are kept because there is room: a compiler may need more than is estimated.

The TPU compiler needs up to 1.3 times as much (`python -m experiments.fitting compiler`): conversions done before a
loop, and f32 results that the simulator takes for part of the kernels that read them.
"""

LEAST_GAIN = 0.001
"""Share of the step that a program is predicted to be faster by, to be priced."""

LARGEST_CORRECTION = 8.0
"""How much one price raises or lowers the predicted seconds and bytes of a group, at most."""


class Start:
    """A program that computes again, and every set of groups that it could keep.

    kept[s, g]     set s keeps group g; set 0 is empty
    open[s]        the set may still be tried
    memory_bytes   what it may take: what there is room for, or what the start itself takes, if that is more
    """

    def __init__(self, tried: Tried, estimate: Estimate, groups: Sequence[Group], room_bytes: float):
        self.tried, self._estimate, self.groups = tried, estimate, groups
        self.memory_bytes = max(room_bytes, estimate.peak_bytes)
        self._seconds = np.array([group.seconds for group in groups])
        self._bytes = np.array([group.bytes for group in groups])
        self._kept = (np.arange(2 ** len(groups))[:, None] >> np.arange(len(groups))) & 1 == 1
        self._open = self._kept.any(axis=1)

    def best(self) -> tuple[float, int]:
        """(seconds, set) predicted to be fastest of those that fit and are open; infinity where none does."""
        fits = self._open & (self._bytes_with() <= self.memory_bytes)
        seconds = np.where(fits, self._seconds_with(), np.inf)
        chosen = int(seconds.argmin())
        return float(seconds[chosen]), chosen

    def smallest_beside(self, around: int, bound_s: float) -> int | None:
        """Of the open sets with one group more than `around`, predicted below `bound_s`, the one that takes least."""
        more = (self._kept & ~self._kept[around]).sum(axis=1)
        among = self._open & (more == 1) & self._kept[:, self._kept[around]].all(axis=1)
        takes = np.where(among & (self._seconds_with() <= bound_s), self._bytes_with(), np.inf)
        chosen = int(takes.argmin())
        return chosen if takes[chosen] < np.inf else None

    def _seconds_with(self) -> np.ndarray:
        """float64[sets]: predicted."""
        return self._estimate.step_s - self._kept @ self._seconds

    def _bytes_with(self) -> np.ndarray:
        """float64[sets]: predicted."""
        return self._estimate.peak_bytes + self._kept @ self._bytes

    def rewriting(self, chosen: int) -> Rewriting:
        """The program that keeps a set of groups."""
        found = self.tried.rewriting
        policies = [self.groups[g].policy for g in np.flatnonzero(self._kept[chosen]).tolist()]
        again = Recompute([*found.recompute.policies, *policies])  # pyright: ignore
        return dataclasses.replace(found, recompute=again)

    def learn(self, chosen: int, found: Estimate | None) -> None:
        """Corrects the groups of a set by its price; where it does not fit, no larger set is tried."""
        among = self._kept[chosen]
        self._open[chosen] = False
        if found is None or found.peak_bytes > self.memory_bytes:
            self._open &= ~self._kept[:, among].all(axis=1)
        if found is not None:
            self._correct(self._seconds, among, self._estimate.step_s - found.step_s)
            self._correct(self._bytes, among, found.peak_bytes - self._estimate.peak_bytes)

    @staticmethod
    def _correct(of: np.ndarray, among: np.ndarray, measured: float) -> None:
        predicted = max(float(of[among].sum()), 1e-30)
        of[among] *= np.clip(measured / predicted, 1 / LARGEST_CORRECTION, LARGEST_CORRECTION)


def kept_subsets(
    traced: Traced, tried: Sequence[Tried], price: Callable[[Rewriting], Tried], mesh: Mesh
) -> Iterator[Tried]:
    """Programs of `tried` that compute again, with groups of results kept, the one predicted to be fastest first."""
    fastest = min((t.rank[1] for t in tried if t.rank[0] == 0), default=math.inf)
    return most_promising(list(_starts(traced, tried, mesh)), price, fastest)


def most_promising(starts: Sequence[Start], price: Callable[[Rewriting], Tried], fastest: float) -> Iterator[Tried]:
    """Sets of groups beside their starts, each predicted to be faster than `fastest` and all that were priced."""
    if not starts:
        return
    best, around = min(starts, key=lambda start: start.tried.rank), 0
    best_s, beside = best.tried.rank[1], 0
    for _ in range(TRIALS):
        bound_s = (1 - LEAST_GAIN) * min(fastest, best_s)
        (seconds, chosen), start = min(((start.best(), start) for start in starts), key=lambda found: found[0])
        if seconds > bound_s:
            start, chosen, beside = best, best.smallest_beside(around, bound_s), beside + 1
        if chosen is None or beside > BESIDE:
            return
        found = price(start.rewriting(chosen))
        start.learn(chosen, found.estimate)
        if found.estimate is not None and found.estimate.peak_bytes > start.memory_bytes:
            found = Tried(found.rewriting, why=f"it leaves less than {1 - ROOM:.0%} of the memory")
        yield found
        if found.rank[1] < best_s:
            best, around, best_s = start, chosen, found.rank[1]


def _starts(traced: Traced, tried: Sequence[Tried], mesh: Mesh) -> Iterator[Start]:
    """The programs that compute again and fit, each with its groups; none where the program fits as it is.

    Where none fits, the one that needs least: results that are kept may take less than what they are computed from.
    """
    if mesh.device is None or min(tried, key=lambda t: t.rank).rewriting.is_whole:
        return
    room_bytes = ROOM * device(mesh.device).hbm_bytes
    again = sorted((t for t in tried if t.rewriting.recompute is not None), key=lambda t: t.rank)
    for one in [t for t in again if t.rank[0] == 0] or again[:1]:
        if one.traced is not None and one.estimate is not None:
            loop = one.rewriting.microbatch
            whole = dataclasses.replace(one.rewriting, recompute=None).of(traced).program
            groups = kept_instead(whole, one.traced.program, mesh, 1 if loop is None else loop.steps)[:GROUPS]
            if groups:
                yield Start(one, one.estimate, groups, room_bytes)
