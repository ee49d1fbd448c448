"""Whose turn it is to compile with libtpu: it lets one process on a machine in, from the first use until that one ends.

    process 1    topology_devices(...)   takes the turn
    process 2    topology_devices(...)   "waiting for process 1, which compiles with libtpu", then its turn

A second process would be refused by libtpu with an error for good; here it waits. The turn is a lock on a file in the
folder for temporary files, which the system lets go when the process ends, however it ends.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from autopart.base.errors import CallError

POLL_S = 0.2

_held: list[IO[str]] = []
"""The locked file, while this process has the turn: closing it would give the turn away."""


def lock_path() -> Path:
    """The file that is locked; one per user, since others' files cannot be opened."""
    return Path(tempfile.gettempdir()) / f"autopart-libtpu-{os.getuid() if hasattr(os, 'getuid') else 0}.lock"


def take_turn(wait_s: float) -> None:
    """Returns once this process may use libtpu, and says on stderr whom it waits for.

    Raises `CallError` if that takes longer than `wait_s` seconds. Systems without file locks have no turns.
    """
    if _held:
        return
    try:
        import fcntl
    except ImportError:
        return
    file = lock_path().open("a+")
    until, told = time.monotonic() + wait_s, False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            holder = _holder(file)
        if time.monotonic() >= until:
            file.close()
            raise CallError(
                f"libtpu is in use by {holder}, and was for {wait_s:.3g} s", why="it lets one process on a machine in",
                hint=f"end {holder}, or wait longer: XlaCompile(..., wait_s=...)",
            )  # fmt: skip
        if not told:
            told = True
            print(f"autopart: waiting up to {wait_s:.3g} s for {holder}, which compiles with libtpu", file=sys.stderr)
        time.sleep(POLL_S)
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    _held.append(file)


def _holder(file: IO[str]) -> str:
    file.seek(0)
    number = file.read(20)
    return f"process {number}" if number.isdigit() else "another process"
