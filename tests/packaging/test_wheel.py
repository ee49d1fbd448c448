"""Does the wheel hold the whole package, and does its installed copy work from another directory?"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import autopart as ap, jax, jax.numpy as jnp
x = jnp.arange(32.0).reshape(8, 4)
step = ap.jit(lambda x: (x * 2).sum(), ap.Mesh({"batch": 2}), [ap.ManualPartition({"x": 0}, axis="batch")])
assert float(step(x)) == float((x * 2).sum())
print(ap.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without touching the checkout."""
    out = tmp_path_factory.mktemp("wheel")
    source = out / "source"
    source.mkdir()
    for name in ("autopart", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(ROOT / name)
    build = "from setuptools.build_meta import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-W", "ignore", "-c", build, str(out)], cwd=source, check=True, capture_output=True)
    return next(out.glob("autopart-*.whl"))


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("autopart/")}
    tracked = subprocess.run(["git", "ls-files", "autopart"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert inside >= set(tracked.stdout.split())


def test_the_licence_is_in_the_wheel(wheel: Path):
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow
def test_the_installed_copy_partitions_from_another_directory(wheel: Path, tmp_path: Path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip().startswith(str(tmp_path / "site"))
