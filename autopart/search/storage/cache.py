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
import tempfile
from pathlib import Path
from typing import Any

from autopart.base.user_line import warn
from autopart.core.table.actions import Action, action_of, row_of
from autopart.search.storage.records import RecordWarning
from autopart.search.storage.sealed_json import SealError, seal, unseal


def default_directory() -> Path:
    """Where results are kept unless the tactic names another place."""
    root = os.environ.get("AUTOPART_CACHE_DIR")
    return Path(root) if root else Path.home() / ".cache" / "autopart" / "search"


@functools.cache
def source_hash() -> str:
    """Hex digest of autopart's source: results of another version are other results."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def load(directory: Path, key: dict[str, Any]) -> tuple[list[Action], dict[str, Any]] | None:
    """(actions, report) of a search, or None. A file that cannot be read or was altered is reported and ignored.

    Whether the actions are legal is the caller's to ask (`recall.search_problem`), who knows the program.
    """
    path = _path(directory, key)
    try:
        if not path.exists():
            return None
        data = unseal(path.read_bytes())
        if data["key"] != json.loads(json.dumps(key)):
            raise SealError("it is of another search")
        return [action_of(row) for row in data["actions"]], dict(data["report"])
    except (SealError, OSError) as error:
        ignored(directory, key, str(error))
    except (ValueError, KeyError, TypeError):
        ignored(directory, key, "it is no list of actions with a report")
    return None


def ignored(directory: Path, key: dict[str, Any], why: str) -> None:
    """Reports that a cached result is not used."""
    warn(f"cached result {_path(directory, key)!s} is ignored: {why}", RecordWarning)


def save(directory: Path, key: dict[str, Any], actions: list[Action], report: dict[str, Any]) -> None:
    """Writes a result; a directory that cannot be written to is reported and otherwise ignored.

    The file appears at once and whole: whoever writes last wins, and a reader sees one or the other.
    """
    data = seal({"key": key, "actions": [row_of(a) for a in actions], "report": report})
    partial = None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory, suffix=".partial", delete=False) as file:
            partial = Path(file.name)
            file.write(data)
        partial.replace(_path(directory, key))
    except (OSError, ValueError) as error:
        warn(f"the result is not cached: {error}", RecordWarning)
        if partial is not None:
            partial.unlink(missing_ok=True)


def _path(directory: Path, key: dict[str, Any]) -> Path:
    return directory / (hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32] + ".json")


def kept(directory: Path) -> dict[Path, int]:
    """The results in a directory, and how many bytes each takes."""
    return {path: path.stat().st_size for path in sorted(directory.glob("*.json"))} if directory.is_dir() else {}


def clear(directory: Path) -> dict[Path, int]:
    """Deletes the results in a directory, and what killed writers left; returns what `kept` said of them."""
    results = kept(directory)
    for path in [*results, *directory.glob("*.partial")]:
        path.unlink(missing_ok=True)
    return results
