"""Records: every job and what it found, a JSON line each, so that a search can be read, resumed and replayed.

    {"autopart": "0.1.0", "program": "9f2c...", "mesh": {"batch": 16, "model": 2}, "device": "tpu_v3", ...}
    {"job": [[["tile_group", 3, 0, "batch"]], ...], "states": [{"cost": [2.3, 2.1e10, 0.2, 33, 6.8], ...}]}

A resumed search asks for the same jobs in the same order and finds the first of them here. Lines that cannot be read,
and files of another search, are reported and ignored.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from autopart.search.jobs import Job, Result, State


class RecordWarning(UserWarning):
    """A record or a cached result that cannot be used, and why."""


class Recorder:
    """Appends results to a file. The header is written where the file is new."""

    def __init__(self, path: str | Path, header: dict[str, Any]):
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists() or path.stat().st_size == 0
        self._file = path.open("a", encoding="utf-8")
        if is_new:
            self._write(header)

    def __call__(self, job: Job, result: Result) -> None:
        """Writes one result."""
        self._write({"job": job.to_json(), "states": [s.to_json() for s in result]})

    def _write(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read_records(path: str | Path, header: dict[str, Any]) -> dict[str, Result]:
    """Results by the text of their job; empty, with a `RecordWarning`, where the file is not of this search."""
    path = Path(path)
    if not path.exists():
        return {}
    lines = path.read_bytes().split(b"\n")
    difference = _difference(lines[0], header)
    if difference:
        warnings.warn(f"{path} is ignored: {difference}", RecordWarning, stacklevel=2)
        return {}
    found: dict[str, Result] = {}
    unreadable = []
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        try:
            row = json.loads(line)
            found[json.dumps(row["job"])] = tuple(State.from_json(s) for s in row["states"])
        except (ValueError, KeyError, TypeError):
            unreadable.append(number)
    if unreadable:
        text = f"{path}: {len(unreadable)} lines cannot be read and are ignored, the first is line {unreadable[0]}"
        warnings.warn(text, RecordWarning, stacklevel=2)
    return found


def _difference(line: bytes, header: dict[str, Any]) -> str:
    """How the header in the file differs from this search's; empty if it does not."""
    try:
        found = json.loads(line)
    except ValueError:
        return "its first line is not a header"
    if not isinstance(found, dict) or "program" not in found:
        return "its first line is not a header"
    wanted = json.loads(json.dumps(header))
    for key, value in wanted.items():
        if found.get(key) != value:
            return f"it is of another search ({key} is {found.get(key)!r}, not {value!r})"
    return ""
