"""Which uneven dims a search makes longer: sizes one after the other, each kept where the step gets faster.

as it is              16.6 ms
18 to 20              14.1 ms    kept
and 50,257 to 50,272  11.4 ms    kept
50,257 to 50,272      12.9 ms    left out: without the first it is slower
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import reduce

from autopart.api.programs.rewritings import Rewriting
from autopart.api.programs.tried_programs import Tried
from autopart.api.programs.uneven_dims import both
from autopart.api.tactics.pad_tactic import Pad


def chosen_padding(first: Tried, paddings: Sequence[Pad], price: Callable[[Rewriting], Tried]) -> Iterator[Tried]:
    """Programs with some of `paddings` beside what `first` has, as they are priced; the best of all is what is chosen.

    A padding that pays alone may cost beside a later one, so each that was kept is left out once more in the end.
    """
    best, kept = first, list[Pad]()
    for added in paddings:
        yield (found := price(_padded(first, [*kept, added])))
        if found.rank < best.rank:
            best, kept = found, [*kept, added]
    for dropped in kept[:-1]:
        yield (found := price(_padded(first, without := [pad for pad in kept if pad is not dropped])))
        if found.rank < best.rank:
            best, kept = found, without


def _padded(first: Tried, paddings: Sequence[Pad]) -> Rewriting:
    return dataclasses.replace(first.rewriting, pad=reduce(both, paddings))
