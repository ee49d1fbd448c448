"""Does `make` install where and what its first lines say, and are the tested versions those of the page?"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MINOR = "{}.{}".format(*sys.version_info)


def planned(*arguments: str) -> str:
    """What `make` would run in a fresh checkout, whatever the `make` that runs these tests was asked for."""
    command = ["make", "-n", "-W", "pyproject.toml", f"PYTHON={sys.executable}", *arguments]
    given = ("MAKEFLAGS", "MAKELEVEL", "NEWEST")
    environment = {name: value for name, value in os.environ.items() if name not in given}
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_another_python_has_an_environment_of_its_own_with_the_tested_versions():
    commands = planned("test")
    assert f".venv-{MINOR}/bin/python -m pytest" in commands
    assert (f"-c constraints/{MINOR}.txt" in commands) == (ROOT / f"constraints/{MINOR}.txt").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_newest_versions_are_installed_without_constraints():
    commands = planned("test-again", "NEWEST=1")
    assert "--upgrade-strategy eager" in commands
    assert "constraints/" not in commands


def the_script():
    spec = importlib.util.spec_from_file_location("tested_versions", ROOT / "docs/tested_versions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_tested_versions_is_that_of_the_constraints():
    assert (ROOT / "docs/tested-versions.md").read_text() == the_script().page()


@pytest.mark.parametrize("path", sorted((ROOT / "constraints").glob("*.txt")), ids=lambda path: path.stem)
def test_constraints_name_versions_and_nothing_of_where_they_came_from(path):
    first, *lines = path.read_text().splitlines()
    assert first.startswith(f"# Python {path.stem}.")
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.+!]+", line)] == []
    missing = set(the_script().packages()) - {line.split("==")[0] for line in lines}
    assert missing <= {"libtpu", "jax-cuda12-pjrt", "jax-cuda12-plugin", "nvidia-cuda-nvcc-cu12"}  # compilers, extras


def test_what_a_dependency_deprecates_is_no_error_and_all_other_warnings_are():
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn_explicit("goes away", DeprecationWarning, "array.py", 1, "numpy.array")
    assert len(caught) == 1
    with pytest.raises(UserWarning, match="of ours"):
        warnings.warn_explicit("of ours", UserWarning, "jit.py", 1, "autopart.api.jitted.jit")
