"""The user's own line: which files are his, and warnings that point there.

train.py:31: SearchWarning: step 7.66 s needs 101 GB ...        the line that called ap.jit(...), not one of autopart's
"""

from __future__ import annotations

import inspect
import os
import sysconfig
import warnings
from pathlib import Path

from autopart.base.errors import PartitionWarning

_OWN = str(Path(__file__).parents[1])
_STANDARD_LIBRARY, _SCRIPTS = sysconfig.get_path("stdlib"), sysconfig.get_path("scripts")

NOWHERE = "autopart"
"""The file of a warning with no line of the user's behind it, as where the command line runs."""


def is_own(file: str) -> bool:
    """True if a file is autopart's."""
    return file.startswith(_OWN)


def is_of_package(file: str) -> bool:
    """True if a file is of autopart or of an installed package, not of the user's own."""
    return "site-packages" in file or "dist-packages" in file or is_own(file)


def is_of_user(file: str) -> bool:
    """True if a file is the user's own: of no package, nor of Python itself."""
    return not (file.startswith(("<frozen", _STANDARD_LIBRARY)) or is_of_package(file))


def warn(text: str, category: type[PartitionWarning]) -> None:
    """Warns at the innermost line of the user's own that called us; at `NOWHERE` where there is none."""
    frame = inspect.currentframe()
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        warnings.warn_explicit(category(text), None, NOWHERE, 0)
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(category(text), None, frame.f_code.co_filename, frame.f_lineno, registry=registry)


def _is_users(file: str) -> bool:
    """As `is_of_user`; the script that starts the command line is not."""
    return is_of_user(file) and os.path.dirname(file) != _SCRIPTS
