"""Does docs/dependencies.md list what pyproject.toml lists, and is what it says of imports true?"""

from __future__ import annotations

import ast
import functools
import re
import tomllib

from tests.examples.pages import ROOT

PAGE = (ROOT / "docs/dependencies.md").read_text()


def listed() -> dict[str, list[str]]:
    """Section -> packages, of the page."""
    sections = PAGE.split("\n## ")[1:]
    return {s.partition("\n")[0]: re.findall(r"^\| ([\w.,\[\]-]+) \| \S", s, re.MULTILINE)[1:] for s in sections}


def wanted() -> dict[str, list[str]]:
    """The same of pyproject.toml, without versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = {"Needed to run": project["dependencies"], **project["optional-dependencies"]}
    return {name: [re.split(r"[<>=!~]", line)[0].strip() for line in lines] for name, lines in lists.items()}


@functools.cache
def imports(folder: str) -> set[str]:
    """The packages that the files below a folder import, by their first name."""
    found: set[str] = set()
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            found |= {name.split(".")[0] for name in names}
    return found


def test_the_page_lists_what_pyproject_lists():
    assert {name: sorted(rows) for name, rows in listed().items()} == {n: sorted(rows) for n, rows in wanted().items()}


def test_what_is_needed_to_run_is_imported_where_the_page_says():
    """A package that the page says is not imported yet is not: once it is, the page has to say why."""
    for package in wanted()["Needed to run"]:
        (row,) = re.findall(rf"^\| {package} \| (.*) \|$", PAGE, re.MULTILINE)
        waiting = "the package does not import it" in row or "nothing imports it yet" in row
        assert (package in imports("autopart")) != waiting, package


def test_optax_trains_the_models_of_experiments_and_tests():
    assert "optax" in imports("experiments/models") & imports("tests/models")
