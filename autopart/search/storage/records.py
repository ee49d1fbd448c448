"""Records: every job and what it found, a JSON line each, so that a search can be read, resumed and replayed.

    {"autopart": "0.2.0", "program": "9f2c...", "mesh": {"batch": 16, "model": 2}, ..., "digest": "5f0c..."}
    {"job": [[["tile_group", 3, 0, "batch"]], ...], "states": [{"cost": [2.3, 2.1e10, ...]}], "digest": "e1..."}

A resumed search asks for the same jobs in the same order and finds the first of them here. Lines that cannot be read or
were altered, and files of another search, are reported and ignored. Several processes may add to one file: a line is
written at the end at once, under a lock. Where a line cannot be written, that is reported and the search goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from autopart.base.errors import PartitionWarning
from autopart.base.user_line import warn
from autopart.search.evaluation.jobs import Job, Result, State
from autopart.search.storage.sealed_json import SealError, digest_of, seal, unseal


class RecordWarning(PartitionWarning):
    """A record or a cached result that cannot be used, and why."""


def _write_line(file: int, line: bytes, size: int) -> None:
    """Writes a line at the end of a file of `size` bytes; a torn line, which a killed writer left, is ended first."""
    torn = size and os.pread(file, 1, size - 1) != b"\n"
    rest = (b"\n" if torn else b"") + line + b"\n"
    while rest:
        rest = rest[os.write(file, rest) :]


class Recorder:
    """Appends results to a file. The header is written where the file is new."""

    def __init__(self, path: str | Path, header: dict[str, Any]):
        self._path, self._of = Path(path), _digest(header)
        self._file: int | None = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except (OSError, ValueError) as error:
            self._give_up(error)
        self._append(seal(header), only_first=True)

    def __call__(self, job: Job, result: Result) -> None:
        """Writes one result."""
        if self._file is not None:
            self._append(seal({"job": job.to_json(), "states": [s.to_json() for s in result]}, self._of))

    def _append(self, line: bytes, only_first: bool = False) -> None:
        """Adds a line under a lock, which an error gives up with the file; a header only where it is the first line."""
        if self._file is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            size = os.fstat(self._file).st_size
            if not (only_first and size):
                _write_line(self._file, line, size)
            fcntl.flock(self._file, fcntl.LOCK_UN)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        warn(f"{self._path!s}: nothing more is recorded: {error}", RecordWarning)
        self.close()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            os.close(self._file)
        self._file = None


def job_text(job: Job) -> str:
    """What a job's result is found by."""
    return json.dumps(job.to_json())


def read_records(path: str | Path, header: dict[str, Any], begins: bool = False) -> dict[str, Result]:
    """Results by the text of their job; empty, with a `RecordWarning`, where the file is not of this search, or is not
    there although the search does not begin it.

    The results are as they were written; whether they can be true of the program, `recall.Recalled` asks.
    """
    path = Path(path)
    try:
        if not path.exists():
            if not begins:
                warn(f"there is nothing to resume: no file {path!s}", RecordWarning)
            return {}
        lines = path.read_bytes().split(b"\n")
    except (OSError, ValueError) as error:
        warn(f"{path!s} is ignored: {error}", RecordWarning)
        return {}
    difference = _difference(lines[0], header)
    if difference:
        warn(f"{path!s} is ignored: {difference}", RecordWarning)
        return {}
    found: dict[str, Result] = {}
    unreadable: list[tuple[int, str]] = []
    of = _digest(header)
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        try:
            row = unseal(line, of)
            found[json.dumps(row["job"])] = tuple(State.from_json(s) for s in row["states"])
        except SealError as error:
            unreadable.append((number, str(error)))
        except (ValueError, KeyError, TypeError, OverflowError):
            unreadable.append((number, "it is no job with its states"))
    if unreadable:
        first, why = unreadable[0]
        text = f"{path!s}: {len(unreadable)} lines cannot be read and are ignored, the first is line {first}: {why}"
        warn(text, RecordWarning)
    return found


def _digest(header: dict[str, Any]) -> str:
    return digest_of(json.loads(json.dumps(header)))


def _difference(line: bytes, header: dict[str, Any]) -> str:
    """How the header in the file differs from this search's; empty if it does not."""
    try:
        found = unseal(line)
    except SealError as error:
        return f"its first line is not a header: {error}"
    if "program" not in found:
        return "its first line is not a header"
    wanted = json.loads(json.dumps(header))
    for key, value in wanted.items():
        if found.get(key) != value:
            return f"it is of another search ({key} is {found.get(key)!r:.200}, not {value!r:.200})"
    return ""
