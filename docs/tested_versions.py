"""Prints docs/tested-versions.md: the Python and the packages that the tests last passed with.

make test && make tested-versions
"""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version


def packages() -> list[str]:
    """Names of everything that pyproject.toml lists, extras included, and jaxlib."""
    listed = [re.match(r"[\w.-]+", line) for line in requires("autopart") or ()]
    return sorted({match.group() for match in listed if match} | {"jaxlib"})


def version_of(package: str) -> str:
    """The installed version, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def main() -> None:
    """Prints the page."""
    print("# Tested versions\n")
    print("Written by `make tested-versions`. `pyproject.toml` pins nothing tighter than needed.\n")
    print("| package | version |\n|---|---|")
    print(f"| Python | {platform.python_version()} ({platform.system()} {platform.machine()}) |")
    for package in packages():
        print(f"| {package} | {version_of(package)} |")


if __name__ == "__main__":
    main()
