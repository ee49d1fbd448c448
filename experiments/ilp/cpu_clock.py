"""A clock of CPU seconds: a search that is given 20 s has 20 s of a core, whatever else the machine does meanwhile.

What optimizers find in equal time depends on who else is there: of two that are searched with one after the other, the
second may have half of a core. Here the seconds of a budget, and of every deadline within it, are those of this process
and of the solvers that it has waited for.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Generator
from unittest import mock


def cpu_s() -> float:
    """CPU seconds of this process and of the processes that it started and has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@contextlib.contextmanager
def counted_in_cpu() -> Generator[None]:
    """Inside, `time.monotonic` is that clock. Whoever waits for another process waits by the other clock."""
    with mock.patch.object(time, "monotonic", cpu_s):
        yield
