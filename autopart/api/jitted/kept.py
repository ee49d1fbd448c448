"""Programs compiled for different shapes: each once, however many threads ask, and those called last are kept.

kept = Kept(2)          get(a)  get(b)  get(a)  get(c)      b goes: a was called after it
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from autopart.base.own_lock import OwnLock


class Kept:
    """At most `most` values by key; the one that was asked for longest ago makes room."""

    def __init__(self, most: int):
        self._most, self._lock = most, OwnLock()
        self._slots: OrderedDict[Hashable, _Slot] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of `key`, made if it is not there. Others wait while it is made; if that fails, the next tries."""
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            if len(self._slots) > self._most:
                self._slots.popitem(last=False)
        with slot.lock:
            if not slot.made:
                slot.value, slot.made = make(), True
            return slot.value


class _Slot:
    def __init__(self) -> None:
        self.lock = OwnLock()
        self.made, self.value = False, None
