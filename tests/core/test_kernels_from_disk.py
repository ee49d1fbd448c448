"""Does a kernel that is loaded from disk, alone and within another one, do what it did when it was compiled?"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from autopart.base.jit.kernels_side_by_side import FOR_ANOTHER

MODULE = """
import numpy as np
from autopart.base.jit.kernels import allocating_kernel

@allocating_kernel
def doubled(numbers):
    return numbers * 2

@allocating_kernel
def quadrupled(numbers, total):
    total[0] = doubled(doubled(numbers)).sum()
"""

RUN = """
import numpy as np
from kernels_kept import doubled, quadrupled

total = np.zeros(1)
quadrupled(np.ones(3), total)
print(total[0], doubled(np.ones(3)).tolist())
"""


@pytest.mark.slow
def test_one_that_makes_an_array_is_loaded_behind_one_that_calls_it(tmp_path):
    (tmp_path / "kernels_kept.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    alone = {FOR_ANOTHER: "1", "NUMBA_CACHE_DIR": str(tmp_path / "kept")}  # no other kernel is compiled beside these
    environment = {**os.environ, "PYTHONPATH": path, **alone}
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=False
        )
        assert ended.stdout == "12.0 [2.0, 2.0, 2.0]\n", ended.stderr
