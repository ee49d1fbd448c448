"""A module that may be damaged on purpose is read in a child process first, which may die of it.

    parent                                            child: python -m autopart.core.importer.checker
      bytes of the file, limits          ->             sets limits of its own: CPU seconds, memory, no core file
      "ok" | what, why, hint             <-             parses and imports, as the parent is about to
      signal 6, out of time              <-             dies: the parent raises ProgramError and never sees the bytes

MLIR's bytecode reader ends the process on some inputs (9 of 200 modules with one bit flipped).
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys

from autopart.base.errors import ProgramError
from autopart.base.limits import Limits
from autopart.core.doors.jax_internals import parse_module
from autopart.core.importer.replay import read_module

START_S = 60.0
"""Seconds that the child may take to start, on a busy machine."""

BASE_BYTES = 4 * 10**9
"""Memory of the child for what does not depend on the file: libraries, address space that nobody uses."""


def check_in_child(data: bytes, name: str, limits: Limits) -> None:
    """Returns if a fresh interpreter can import `data`; raises `ProgramError` if it cannot, or does not survive it."""
    if not sys.executable:
        raise ProgramError(
            f"{name} cannot be checked", why="no Python interpreter is known here", hint="ap.load(..., trusted=True)"
        )
    given = [name, limits.max_ops, limits.max_bytes, limits.max_depth, limits.max_seconds]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
    environment |= {"JAX_PLATFORMS": "cpu", "PYTHONIOENCODING": "utf-8"}
    try:
        child = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "autopart.core.importer.checker", json.dumps(given)],
            input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=START_S + limits.max_seconds, env=environment, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ProgramError(
            f"{name} was not imported in {limits.max_seconds:g} s", hint="ap.Limits(max_seconds=...)"
        ) from None
    except OSError as error:
        raise ProgramError(
            f"{name} cannot be checked", why=f"no child process: {error.strerror}", hint="ap.load(..., trusted=True)"
        ) from None
    raise_verdict(name, child.returncode, child.stdout)


def raise_verdict(name: str, code: int, answer: bytes) -> None:
    """Raises `ProgramError` unless the child ended well and said so."""
    lines = answer.decode("utf-8", "replace").splitlines()
    if code == 0 and lines and lines[-1].startswith("["):
        what, why, hint = json.loads(lines[-1])
        if what:
            raise ProgramError(what, why=why, hint=hint)
        return
    why = f"its checker ended with exit code {code}"
    if code == -signal.SIGALRM:
        raise ProgramError(f"{name} was not imported in time", hint="ap.Limits(max_seconds=...)")
    if code < 0:
        why = f"MLIR ended the process that tried it ({_signal_name(-code)}): damaged, too large or too deeply nested"
    raise ProgramError(f"{name} is not a StableHLO module that can be read", why=why)


def _signal_name(number: int) -> str:
    known = {s.value: s.name for s in signal.Signals}
    return known.get(number, f"signal {number}")


def verdict(data: bytes, name: str, limits: Limits) -> list[str]:
    """[what, why, hint] of the error that importing `data` raises; empty strings if it raises none."""
    try:
        read_module(parse_module(data, name), limits=limits)
    except ProgramError as error:
        return [error.what, error.why, error.hint]
    except MemoryError:
        return [f"{name} needs more memory than its checker has", "", "ap.Limits(max_bytes=...)"]
    return ["", "", ""]


def confine(limits: Limits) -> None:
    """Lets this process die rather than harm the machine."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_REAL, limits.max_seconds)  # not handled: the process ends
    _lower(resource.RLIMIT_CPU, int(limits.max_seconds + START_S))
    _lower(resource.RLIMIT_AS, BASE_BYTES + 8 * limits.max_bytes)


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, hard))


def main() -> None:
    """Reads a module from standard input and prints the verdict as JSON."""
    name, ops, size, depth, seconds = json.loads(sys.argv[1])
    limits = Limits(ops, size, depth, seconds)
    confine(limits)
    print(json.dumps(verdict(sys.stdin.buffer.read(), name, limits)))


if __name__ == "__main__":
    main()
