"""The bytes of a program file, unpacked within a limit.

model.mlir       text, or MLIR bytecode
model.mlir.gz    either of them, gzipped; unpacked piece by piece, so that 3 MB of zeros do not become 3 GB here
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from autopart.base.errors import ProgramError
from autopart.base.limits import Limits

_GZIP = b"\x1f\x8b"


def read_module_file(path: Path, limits: Limits) -> bytes:
    """The file's content, decompressed.

    Raises `ProgramError` where there is no such file, where the gzip is damaged, and beyond `limits.max_bytes`.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            data = gzip.GzipFile(fileobj=file).read(limits.max_bytes + 1) if packed else file.read(limits.max_bytes + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ProgramError(f"{_shown(path)} is a damaged gzip file", why=str(error)) from None
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise ProgramError(f"{_shown(path)} cannot be read", why=why) from None
    if len(data) > limits.max_bytes:
        raise ProgramError(
            f"{_shown(path)} holds more than {limits.max_bytes:,} bytes" + (" once unpacked" if packed else ""),
            hint="ap.Limits(max_bytes=...)",
        )
    return data


def _shown(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else repr(text)
