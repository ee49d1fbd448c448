"""The terminal without the lines that XLA and libtpu log there: what autopart and the program say stays.

E1129 21:15:19.673608   27285 rendezvous.cc:116] This thread has been waiting ...       is left out
train.py:31: SearchWarning: ...                                                         stays

C++ libraries write to file descriptor 2 past Python. It becomes a pipe to a small process of its own, which passes on
all lines but those of their loggers below "fatal"; so the last words of a process that is aborted still arrive. Python
writes to the terminal as before. $TF_CPP_MIN_LOG_LEVEL, by which XLA's log is asked for, leaves everything as it is.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Generator

_PASS_ON = r"""
import re, sys
logged = re.compile(rb"[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+:\d+\] |WARNING: All log messages before absl::Init")
for line in sys.stdin.buffer:
    if not logged.match(line):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
"""
"""What the process runs: it drops lines that begin as those of absl's and glog's loggers do."""


@contextlib.contextmanager
def quiet_libraries() -> Generator[None]:
    """While it lasts, lines that libraries log below "fatal" do not reach the terminal."""
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ and os.environ["TF_CPP_MIN_LOG_LEVEL"] != _OF_JAX:
        yield
        return
    try:
        python, terminal = sys.stderr, os.dup(2)
    except OSError:  # stderr is closed
        yield
        return
    command = [sys.executable, "-I", "-S", "-c", _PASS_ON]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=terminal, start_new_session=True)
    assert child.stdin is not None
    os.dup2(child.stdin.fileno(), 2)
    child.stdin.close()
    sys.stderr = os.fdopen(terminal, "w", buffering=1, errors="backslashreplace", closefd=False)
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = python
        os.dup2(terminal, 2)
        os.close(terminal)
        with contextlib.suppress(subprocess.TimeoutExpired):  # another process may hold the pipe open
            child.wait(timeout=1)


_OF_JAX = "1"
"""What jax itself sets, where nobody has."""
