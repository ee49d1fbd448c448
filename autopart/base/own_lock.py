"""A lock that a forked child has anew.

    parent   thread 1 holds the lock while it searches     thread 2 forks
    child    thread 2 alone is there: nobody would ever give up the lock that thread 1 held

What the lock guards is as the fork found it. So a holder writes its result in one step, and what is half made is made
again.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from weakref import WeakSet


class OwnLock:
    """A reentrant lock of the threads of one process."""

    def __init__(self) -> None:
        self.renew()
        _LOCKS.add(self)

    def renew(self) -> None:
        """Makes it a lock that nobody holds."""
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


_LOCKS: WeakSet[OwnLock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_LOCKS):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
