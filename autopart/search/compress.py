"""The fewest actions for what a search found: tiles of one decision are propagated together where that comes to the same.

tile<a0>, propagate, tile<a1>, propagate   ->   tile<a0>, tile<a1>, propagate
tile<w0, 1>, propagate, tile<w2, 1>, ...        stays, if w0 and w2 together would be a conflict
"""

from __future__ import annotations

from collections.abc import Sequence

from autopart.core.partitioning import Action, Partitioning, Propagate


def compressed(partitioning: Partitioning, parts: Sequence[Sequence[Action]]) -> list[Action]:
    """The actions of each part, merged where possible. `partitioning` is left in the state they lead to."""
    actions: list[Action] = []
    for part in parts:
        mark = partitioning.mark()
        _apply(partitioning, part)
        wanted = partitioning.fingerprint
        merged = _merged(part)
        partitioning.undo(mark)
        _apply(partitioning, merged)
        if partitioning.fingerprint != wanted:
            partitioning.undo(mark)
            _apply(partitioning, part)
            merged = list(part)
        actions += merged
    return actions


def _merged(part: Sequence[Action]) -> list[Action]:
    decided = [a for a in part if not isinstance(a, Propagate)]
    axes = dict.fromkeys(a.axis for a in part if isinstance(a, Propagate))
    return [*decided, *map(Propagate, axes)]


def _apply(partitioning: Partitioning, actions: Sequence[Action]) -> None:
    for action in actions:
        partitioning.apply(action)
