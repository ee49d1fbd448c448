"""Does `import autopart` load no more than it needs: no solver, no cluster, no optimizer library, no command line?"""

from __future__ import annotations

import re
import subprocess
import sys

LATER = {"ray", "pulp", "optax", "click", "flax", "mcp", "matplotlib", "highspy", "equinox"}
"""Packages that are imported when something of theirs is asked for. SciPy's top level alone is imported by Numba."""


def imported(command: str) -> set[str]:
    """The modules that a new process imports, as `python -X importtime` lists them."""
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", command], capture_output=True, text=True, check=True
    )
    return set(re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", ended.stderr, re.MULTILINE))


def test_importing_autopart_imports_no_package_before_it_is_needed():
    found = imported("import autopart")
    assert "autopart" in found
    assert "jax" in found
    assert LATER & {name.partition(".")[0] for name in found} == set()
    assert {"scipy.sparse", "scipy.optimize", "scipy.linalg"} & found == set()


def test_the_command_line_imports_click_and_no_server():
    found = {name.partition(".")[0] for name in imported("import autopart.cli.main")}
    assert LATER & found == {"click"}
