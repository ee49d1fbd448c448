"""Results on disk, so that a second call is instant: one JSON file per search, named by the hash of what it depends on.

    ~/.cache/autopart/search/3f9a....json        or below $AUTOPART_CACHE_DIR

The key holds program, mesh, device, starting state, options, cost model, objective, optimizer, budget, seed, and a hash
of autopart's own source. A search with a limit in seconds that was cut short by it is not cached.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

from autopart.core.partitioning import Action, Atomic, Propagate, ShareGathers, Tile
from autopart.search.storage.records import RecordWarning


def default_directory() -> Path:
    """Where results are kept unless the tactic names another place."""
    root = os.environ.get("AUTOPART_CACHE_DIR")
    return Path(root) if root else Path.home() / ".cache" / "autopart" / "search"


@functools.cache
def source_hash() -> str:
    """Hex digest of autopart's source: results of another version are other results."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def load(directory: Path, key: dict[str, Any]) -> tuple[list[Action], dict[str, Any]] | None:
    """(actions, report) of a search, or None. A file that cannot be read is reported and ignored."""
    path = _path(directory, key)
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text())
        if data["key"] != json.loads(json.dumps(key)):
            raise ValueError("it is of another search")
        return [_action(row) for row in data["actions"]], dict(data["report"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        warnings.warn(f"cached result {path} is ignored: {error!r}", RecordWarning, stacklevel=2)
        return None


def save(directory: Path, key: dict[str, Any], actions: list[Action], report: dict[str, Any]) -> None:
    """Writes a result; a directory that cannot be written to is reported and otherwise ignored."""
    path = _path(directory, key)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps({"key": key, "actions": [_row(a) for a in actions], "report": report}))
        partial.replace(path)
    except OSError as error:
        warnings.warn(f"the result is not cached: {error}", RecordWarning, stacklevel=2)


def _path(directory: Path, key: dict[str, Any]) -> Path:
    return directory / (hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32] + ".json")


def _row(action: Action) -> list[Any]:
    match action:
        case Tile(value, dim, axis):
            return ["tile", value, dim, axis]
        case Atomic(value, axis):
            return ["atomic", value, axis]
        case Propagate(axis):
            return ["propagate", axis]
        case ShareGathers(within):
            return ["share_gathers", within]


def _action(row: list[Any]) -> Action:
    match row:
        case ["tile", int(value), int(dim), str(axis)]:
            return Tile(value, dim, axis)
        case ["atomic", int(value), str(axis)]:
            return Atomic(value, axis)
        case ["propagate", str(axis)]:
            return Propagate(axis)
        case ["share_gathers", int(within)]:
            return ShareGathers(within)
    raise ValueError(f"{row!r} is not an action")
