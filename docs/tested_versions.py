"""The versions that the tests last passed with, one file for each Python, and the page that shows them side by side.

    make constraints                     constraints/3.11.txt, of what .venv has; then the page
    make constraints PYTHON=python3.13   constraints/3.13.txt, of what .venv-3.13 has; then the page

`make` installs with the file of its Python; `make NEWEST=1` installs the newest of everything instead.
"""

from __future__ import annotations

import platform
import re
import sys
import tomllib
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = ROOT / "constraints"
OWN = "autopart"


def file_of(minor: str) -> Path:
    """The constraints for a Python, such as "3.13"."""
    return FILES / f"{minor}.txt"


def write_constraints() -> None:
    """Writes the file of the Python that runs this: each package that is installed beside it, with its version."""
    found = {canonical(d.metadata["Name"]): d.version for d in distributions()}
    lines = [f"{name}=={version}" for name, version in sorted(found.items()) if name not in (OWN, "pip")]
    python = f"# Python {platform.python_version()} ({platform.system()} {platform.machine()})"
    FILES.mkdir(exist_ok=True)
    file_of("{}.{}".format(*sys.version_info)).write_text("\n".join([python, *lines, ""]))


def canonical(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages() -> list[str]:
    """Names of everything that pyproject.toml lists, extras included, and jaxlib."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    return sorted({canonical(re.split(r"[<>=!~\[]", line)[0]) for line in listed} - {OWN} | {"jaxlib"})


def versions(path: Path) -> dict[str, str]:
    """What a file has, by name; "Python" is one of the names."""
    first, *lines = path.read_text().splitlines()
    return {"Python": first.removeprefix("# Python "), **dict(line.split("==") for line in lines)}


def page() -> str:
    """The page, of all files."""
    columns = [versions(path) for path in sorted(FILES.glob("*.txt"))]
    rows = [[name, *(column.get(name, "not installed") for column in columns)] for name in ["Python", *packages()]]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    head = [
        "# Tested versions",
        "",
        "Written by `make constraints`, of `constraints/`. `make` installs what these say, and",
    ]
    head += ["`make NEWEST=1` the newest of everything; `pyproject.toml` pins nothing tighter than needed.", ""]
    return "\n".join([*head, lines[0], "|---" * len(rows[0]) + "|", *lines[1:], ""])


if __name__ == "__main__":
    write_constraints()
    (ROOT / "docs/tested-versions.md").write_text(page())
