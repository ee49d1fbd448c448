"""Ctrl-C where it must not be heard at once: while workers are ended and the result is put together.

search ... Ctrl-C           the optimizer stops; the best so far is the result
workers are ended, Ctrl-C   kept until they are: none is left behind, and the result is still returned
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PATIENCE = 2
"""Ctrl-C so many times and it is heard after all."""


@dataclass
class Kept:
    """How often Ctrl-C was pressed while it was kept."""

    count: int = 0

    def __call__(self, signal_number: int, frame: Any) -> None:
        """The handler."""
        self.count += 1
        if self.count >= PATIENCE:
            raise KeyboardInterrupt


@contextmanager
def interrupts_kept() -> Generator[Kept]:
    """Keeps the first Ctrl-C inside; only the main thread hears any, and only where Python handles it."""
    kept = Kept()
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
        yield kept
        return
    before = signal.signal(signal.SIGINT, kept)
    try:
        yield kept
    finally:
        signal.signal(signal.SIGINT, before)
