"""Tries modules, each in a process of its own that may die of it; started anew, so that no thread is forked.

    stdin    per case: length (8 bytes), data
    stdout   per case: a JSON line [exit code, whether the parent reads it, verdict]

What runs in each is what the checker of `ap.load` runs.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback

from autopart.base.limits import Limits
from autopart.core.importer.checker import confine, verdict
from autopart.core.importer.text_scan import BYTECODE, check_text, needs_child

LIMITS = Limits(max_ops=100_000, max_bytes=10_000_000, max_seconds=20.0)


def run(data: bytes) -> list:
    """[exit code, whether the parent reads it without a child, verdict]"""
    with tempfile.TemporaryFile() as answer:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                confine(LIMITS)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                answer.write(json.dumps(verdict(data, "fuzz", LIMITS)).encode())
                code = 0
            except BaseException:
                answer.write(traceback.format_exc()[-1500:].encode())
            finally:
                answer.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        answer.seek(0)
        return [os.waitstatus_to_exitcode(status), read_here(data), answer.read().decode()]


def read_here(data: bytes) -> bool:
    """Whether `ap.load` gives the data to MLIR in its own process."""
    if data.startswith(BYTECODE):
        return False
    try:
        check_text(data, LIMITS)
    except ValueError:
        return False
    return not needs_child(data)


def main() -> None:
    source = sys.stdin.buffer
    while size := source.read(8):
        print(json.dumps(run(source.read(int.from_bytes(size, "big")))), flush=True)


if __name__ == "__main__":
    main()
