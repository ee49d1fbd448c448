"""Are the types by which kernels are compiled before a call those they are called with; are they compiled side by side?

python -m tests.core.test_kernel_signatures     writes the table of types anew
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import autopart as ap
from autopart.base.jit import kernels_side_by_side
from autopart.base.jit.kernel_signatures import FILE, signatures_in_use

CALLED = """
import autopart as ap
from autopart.base.jit.kernel_signatures import known_signatures, signatures_in_use
ap.warmup()
known = known_signatures()
print("not called as in the table:", [k.__name__ for k, types in known.items() if k.signatures != [types]], not known)
print("table:", signatures_in_use(), sep="")
"""

THREE = """
import autopart.base.jit.kernels_side_by_side as kernels
kernels.known_signatures = lambda known=kernels.known_signatures(): dict(list(known.items())[:3])
"""

COMPILED = f"""{THREE}
from autopart.core.table.loop_nests import mix
kernels.WORTH_IT, kernels.WORKER = 1, '''{THREE}
kernels.compile_in_turn({{folder!r}})'''
mix(1, 2, 3)
print(kernels._missing())
"""


def run(code: str, **environment: str) -> str:
    """What a process of its own prints."""
    path = os.pathsep.join(filter(None, sys.path))
    ended = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_table_has_the_types_that_kernels_are_called_with():
    wrong, table = run(CALLED).split("\ntable:")
    assert wrong == "not called as in the table: [] False"
    assert table.rstrip() == FILE.read_text().rstrip(), "written anew by: python -m tests.core.test_kernel_signatures"


@pytest.mark.slow
def test_what_is_missing_is_compiled_by_several_processes(tmp_path: Path):
    assert run(COMPILED, NUMBA_CACHE_DIR=str(tmp_path)) == "[]\n"


if __name__ == "__main__":
    kernels_side_by_side.known_signatures = dict  # else a kernel whose types have changed has both
    ap.warmup()
    FILE.write_text(signatures_in_use())
