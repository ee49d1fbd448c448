"""python -m tests.examples.run_blocks OUT < BLOCKS: runs blocks of Python, in one namespace.

BLOCKS is a list of texts as JSON. OUT receives what each block printed, as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import sys
from pathlib import Path


def main() -> None:
    """Runs them; the first that raises ends the process."""
    space, printed = {"__name__": "__main__"}, []
    for text in json.load(sys.stdin):
        linecache.cache["train.py"] = len(text), None, text.splitlines(keepends=True), "train.py"
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(text, "train.py", "exec"), space)
        printed.append(out.getvalue())
    Path(sys.argv[1]).write_text(json.dumps(printed))


if __name__ == "__main__":
    main()
