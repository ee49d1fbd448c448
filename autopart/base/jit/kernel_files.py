"""Files of compiled kernels, each of which ends with a digest of all before it.

    propagate-152.py313.nbi      pickle of Numba's index     blake2b
    propagate-152.py313.1.nbc    pickle of machine code      blake2b

LLVM ends the process at machine code that is damaged: a disk that was full, a copy that was cut short. So what does not
agree with its digest is never loaded. Unpickling takes no notice of what comes behind a pickle.
"""

# pyright: reportPrivateUsage=false, reportUntypedBaseClass=false, reportIncompatibleMethodOverride=false
# (Numba offers no other way to say how files are kept, and its classes carry no types)
from __future__ import annotations

import hashlib
import pickle
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core.caching import IndexDataCacheFile

DIGEST_BYTES = 16


class DamagedError(pickle.UnpicklingError):
    """A file of the cache is not what was written."""


class CheckedFiles(IndexDataCacheFile):
    """The index and the data of one kernel. What cannot be trusted raises `DamagedError`."""

    def _load_index(self) -> Any:
        _check(Path(self._index_path))
        return super()._load_index()

    def _load_data(self, name: str) -> Any:
        _check(Path(self._data_path(name)))
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Generator[Any]:
        with super()._open_for_write(filepath) as file:
            yield file
            file.flush()
            file.write(_digest(Path(file.name).read_bytes()))


def _check(path: Path) -> None:
    if path.exists():
        content = path.read_bytes()
        if _digest(content[:-DIGEST_BYTES]) != content[-DIGEST_BYTES:]:
            raise DamagedError(f"{path} is damaged")


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
