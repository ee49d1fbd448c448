"""Does the package outside use what the documentation names, and nothing else? And does that stay light to import?"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

PUBLIC = (
    "autopart",
    "autopart.core.ops",
    "autopart.core.passes",
    "autopart.base.registry",
    "autopart.costmodel",
    "autopart.search.contract",
    "autopart.search.execution",
    "autopart.search.space",
)
"""Import paths that the documentation names: what they export is kept; all others may be moved."""

ACME = sorted((Path(__file__).parent / "acme").glob("*.py"))


def names_imported(text: str) -> list[tuple[str, str]]:
    """(module, name) of each import from autopart; no name for `import autopart`."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
    return [(module, name) for module, name in found if module.split(".")[0] == "autopart"]


def attributes_used(text: str) -> set[str]:
    """`ap.register_device` and the like: the attributes of the package under its usual name."""
    return {
        node.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ap"
    }


def private_uses(text: str) -> list[str]:
    """What a file takes from autopart that no public module exports."""
    found = [f"ap.{name}" for name in attributes_used(text) - set(importlib.import_module("autopart").__all__)]
    for module, name in names_imported(text):
        exported = getattr(importlib.import_module(module), "__all__", None) if module in PUBLIC else ()
        if module not in PUBLIC or (name and exported is not None and name not in exported):
            found.append(f"{module}.{name}")
    return found


@pytest.mark.parametrize("path", ACME, ids=lambda path: path.name)
def test_acme_uses_public_names_alone(path):
    assert private_uses(path.read_text()) == []


def test_a_private_use_is_found():
    assert private_uses("from autopart.core.ops.rule import rule") == ["autopart.core.ops.rule.rule"]
    assert private_uses("from autopart.core.ops import _load") == ["autopart.core.ops._load"]
    assert private_uses("import autopart as ap\nap.core.ops") == ["ap.core"]


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_module_has_every_name_that_it_exports(module):
    found = importlib.import_module(module)
    assert [name for name in getattr(found, "__all__", ()) if not hasattr(found, name)] == []


def test_importing_autopart_imports_neither_ray_nor_a_solver():
    code = "import sys, autopart; print([m for m in ('ray', 'highspy', 'matplotlib') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
