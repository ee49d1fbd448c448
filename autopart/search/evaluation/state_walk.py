"""From state to state: carries out decisions on a partitioning, and goes back.

at  BP, MP          next  BP, Z3          undo MP, apply Z3
at  BP, Z3          next  MP, BP, Z3      the state after MP, BP is kept: restore it, apply Z3
"""

from __future__ import annotations

import numpy as np

from autopart.core.table.actions import Action, Atomic, Propagate, Tile
from autopart.core.table.partitioning import Partitioning, Snapshot
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision

SNAPSHOT_BYTES = 2**27
"""What the states that can be gone back to may take: prefixes of sequences of decisions, the latest used."""


class Walk:
    """Owns a partitioning, which is at its start, and takes it to the states that decisions lead to.

    `times[value]` says how often an action on a value counts; once without it.
    """

    def __init__(self, partitioning: Partitioning, space: DecisionSpace, times: np.ndarray | None = None):
        self.partitioning, self._space, self._times = partitioning, space, times
        self._start = partitioning.mark()
        self._path: list[tuple[Decision, int, int]] = []
        self._snapshots: dict[tuple[Decision, ...], tuple[Snapshot, list[tuple[Decision, int, int]]]] = {}

    def actions(self, decisions: tuple[Decision, ...]) -> list[Action]:
        """The actions that a sequence of decisions takes from the start."""
        self.go_to(())
        taken: list[Action] = []
        for decision in decisions:
            mark = self.partitioning.mark()
            actions = self._space.apply(self.partitioning, decision)
            taken += actions
            self._path.append((decision, mark, self._count(actions)))
        return taken

    def go_to(self, decisions: tuple[Decision, ...]) -> int:
        """Moves the partitioning to the state after `decisions`; returns how many actions lead there."""
        shared = 0
        while shared < min(len(self._path), len(decisions)) and self._path[shared][0] == decisions[shared]:
            shared += 1
        if not self._restore(decisions, shared) and shared < len(self._path):
            self.partitioning.undo(self._path[shared][1])
            del self._path[shared:]
        for place in range(len(self._path), len(decisions)):
            self._keep(decisions[:place])
            mark = self.partitioning.mark()
            actions = self._space.apply(self.partitioning, decisions[place])
            self._path.append((decisions[place], mark, self._count(actions)))
        return sum(count for _, _, count in self._path)

    def _restore(self, decisions: tuple[Decision, ...], shared: int) -> bool:
        """Goes to the longest prefix of `decisions` that is kept, if it has more than `shared` of them."""
        for length in range(len(decisions), shared, -1):
            found = self._snapshots.pop(decisions[:length], None)
            if found is not None:
                self._snapshots[decisions[:length]] = found
                self.partitioning.restore(found[0])
                self._path = list(found[1])
                return True
        return False

    def _keep(self, prefix: tuple[Decision, ...]) -> None:
        """Keeps the state as it is, which is the one after `prefix`; forgets those that were used longest ago."""
        if prefix and prefix not in self._snapshots:
            self._snapshots[prefix] = self.partitioning.snapshot(), list(self._path)
            most = max(1, SNAPSHOT_BYTES // self._snapshots[prefix][0].in_bytes)
            while len(self._snapshots) > most:
                del self._snapshots[next(iter(self._snapshots))]

    def _count(self, actions: list[Action]) -> int:
        """Tile and atomic actions among `actions`, each as often as it counts; others count once."""
        if self._times is None:
            return sum(not isinstance(a, Propagate) for a in actions)
        times = self._times
        return sum(
            int(times[a.value]) if isinstance(a, (Tile, Atomic)) else 1 for a in actions if not isinstance(a, Propagate)
        )
