"""Python's cycle collector, paused where many objects are made and none of them is cyclic garbage.

Importing or exporting a program of 20,000 ops makes a million containers. The collector would walk all of them again
and again while they grow, for as long as the work itself takes, and once more when it is switched on again. So what was
made meanwhile counts as old from then on: it is looked at when the collector next looks at everything.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Generator[None]:
    """No cycle collection inside, nor of what was made inside right afterwards."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
