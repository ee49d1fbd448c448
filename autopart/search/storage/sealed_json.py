"""JSON rows on disk that carry a digest of their content, so that what is read back is what was written.

    {"job": ..., "states": ..., "digest": "5f0c..."}      digest of (what the row belongs to, the row without it)

A digest finds accidents; it is no signature. What a row says is therefore checked against the program as well.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

MOST_BYTES = 100_000_000
"""A longer row is not one that autopart writes."""


class SealError(ValueError):
    """A row that cannot be read, and why."""


def seal(row: dict[str, Any], of: str = "") -> bytes:
    """The row as one line of JSON with its digest; `of` names what it belongs to."""
    plain = json.loads(json.dumps(row))
    return json.dumps({**plain, "digest": digest_of(plain, of)}).encode()


def unseal(line: bytes, of: str = "") -> dict[str, Any]:
    """The row without its digest; raises `SealError` unless the line is what `seal` wrote for `of`."""
    if len(line) > MOST_BYTES:
        raise SealError(f"it is {len(line):,} bytes long")
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise SealError("it is not JSON") from None
    if not isinstance(row, dict):
        raise SealError("it is not a JSON object")
    if "digest" not in row:
        raise SealError("it has no digest: another program, or an older autopart, wrote it")
    found = row.pop("digest")
    if found != digest_of(row, of):
        raise SealError("its digest is of other content: it was altered or damaged")
    return row


def digest_of(row: Any, of: str = "") -> str:
    """Hex digest of a row of plain values."""
    return hashlib.sha256(f"{of}\n{json.dumps(row, sort_keys=True)}".encode()).hexdigest()[:32]
