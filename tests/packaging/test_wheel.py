"""Do the wheel and the sdist hold the whole package, and does a newcomer's path work with them and nothing else?"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.examples.pages import blocks

ROOT = Path(__file__).parents[2]

MODEL = """
import jax, jax.numpy as jnp


def step(params, x):
    loss = lambda p: jnp.mean((jnp.tanh(x @ p["up"]) @ p["down"] - x) ** 2)
    return jax.tree.map(lambda w, g: w - 0.1 * g, params, jax.grad(loss)(params))


def example():
    params = {"up": jax.ShapeDtypeStruct((256, 1024), "float32"), "down": jax.ShapeDtypeStruct((1024, 256), "float32")}
    return step, (params, jax.ShapeDtypeStruct((512, 256), "float32")), {"donate_argnums": 0}
"""


def built(how: str, out: Path) -> Path:
    """The wheel or the sdist of this checkout, built without touching the checkout."""
    source = out / "source"
    source.mkdir()
    for name in ("autopart", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(ROOT / name)
    build = f"from setuptools.build_meta import {how}; import sys; print({how}(sys.argv[1]))"
    subprocess.run([sys.executable, "-W", "ignore", "-c", build, str(out)], cwd=source, check=True, capture_output=True)
    return next(out.glob("autopart-*"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("build_wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("build_sdist", tmp_path_factory.mktemp("sdist"))


def names_in(sdist: Path) -> list[str]:
    with tarfile.open(sdist) as archive:
        return archive.getnames()


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files", "autopart"], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(listed.stdout.split())


def test_every_file_of_the_package_is_in_the_wheel_and_in_the_sdist(wheel: Path, sdist: Path):
    assert {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("autopart/")} >= tracked()
    assert {name.partition("/")[2] for name in names_in(sdist)} >= tracked() | {"pyproject.toml"}


def test_the_licence_is_in_both(wheel: Path, sdist: Path):
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())
    assert any(name.endswith("/LICENSE") for name in names_in(sdist))


def test_all_say_one_version(wheel: Path, sdist: Path):
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert [path.name.split("-")[1].removesuffix(".tar.gz") for path in (wheel, sdist)] == [said, said]
    assert re.search(rf"^version: {re.escape(said)}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert f"\n## {said}" in (ROOT / "CHANGELOG.md").read_text()


def environment_with(package: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """The programs of a new environment with the package alone, which finds what it depends on where this one does."""
    venv.create(folder / "empty", with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", package]
    subprocess.run([folder / "empty/bin/python", *install], check=True, capture_output=True)
    site = next((folder / "empty/lib").glob("python*/site-packages"))
    theirs = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "dependencies.pth").write_text(f"{theirs}\n")
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}
    return folder / "empty/bin", {**kept, "AUTOPART_CACHE_DIR": str(folder / "cache")}


@pytest.mark.slow
def test_a_newcomer_installs_runs_the_first_example_searches_and_gets_a_report(wheel: Path, tmp_path: Path):
    programs, environment = environment_with(wheel, tmp_path)
    (tmp_path / "train.py").write_text(MODEL)
    first = next(block.text for block in blocks(ROOT / "README.md") if block.kind == "python")
    (tmp_path / "first.py").write_text(first + "\nprint(ap.__file__)\n")
    search = ["search", "train.py:example", "--mesh", "data=4,model=2", "--device", "h100", "--report", "found.html"]

    environment["PYTHONWARNINGS"] = "default"

    def run(program: str, *words: str) -> str:
        command = [programs / program, *words]
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        assert "arning" not in ended.stderr, ended.stderr
        return ended.stdout

    began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert str(tmp_path / "empty") in run("python", "first.py")
    assert "schedule = [" in run("autopart", *search, "--budget", "30")
    assert "Beside named schedules" in (tmp_path / "found.html").read_text()
    assert "autopart" in run("python", "-m", "autopart", "--help")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began < 120
