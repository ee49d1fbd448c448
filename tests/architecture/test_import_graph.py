"""Is there no circle among the modules, does each file stand in one layer, and is each file's name its own?

Three kinds of import are told apart: those that run when the module is imported, which must form no circle; those below
`if TYPE_CHECKING`, which never run; and those inside functions, each of which has a reason below.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("base", "core", "pairwise", "spmd", "costmodel", "search", "api")
ABOVE = {"__init__.py", "__main__.py", "report", "cli"}
"""What stands above the layers."""

LAZY = {
    ("autopart", "autopart.search.execution.ray"): "ray takes seconds to import, and starts threads",
    ("autopart", "autopart.api.jitted.nnx"): "flax may be missing",
    ("autopart.api.jitted.any_jit", "autopart.api.jitted.nnx"): "the same",
    ("autopart.api.jitted.verification", "autopart.api.jitted.nnx"): "the same",
    ("autopart.search.execution.executor", "autopart.search.execution.ray"): "the same",
    ("autopart.search.execution.executor", "autopart.search.execution.processes"): "it needs the executor's interface",
    ("autopart.api.compared.sweep_rows", "autopart.api.compared.sweep_plot"): "matplotlib may be missing",
}
"""Imports of autopart's own modules inside functions, and why."""

SAME_NAME = {
    "names.py": "api: paths of a function's arguments; core/importer: names of a module's functions",
    "verify.py": "spmd: what MLIR's verifier says of emitted code; core/passes: invariants of a program",
}
"""Names that several files share, and what each is about."""


def module_of(path: Path) -> str:
    """The import path of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {module_of(path): path for path in sorted((ROOT / "autopart").rglob("*.py"))}


def imports(body: list[ast.stmt], known: Mapping[str, object], lazy: bool = False) -> Iterator[tuple[str, bool]]:
    """(module, whether inside a function) of each import that can run."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner if inner in known else str(node.module)), lazy
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                yield from imports(getattr(node, field, []), known, inside)


def graph(texts: Mapping[str, str]) -> tuple[dict[str, set[str]], set[tuple[str, str]]]:
    """Per module those that are imported with it; and the pairs that are imported inside functions.

    Importing `a.b.c` imports the packages `a` and `a.b` too, unless the importing module is within them.
    """
    eager: dict[str, set[str]] = {module: set() for module in texts}
    lazy: set[tuple[str, str]] = set()
    for module, text in texts.items():
        for target, is_lazy in imports(ast.parse(text).body, texts):
            if is_lazy and target in texts:
                lazy.add((module, target))
            elif not is_lazy:
                parts = target.split(".")
                packages = {".".join(parts[:n]) for n in range(1, len(parts))}
                around = {p for p in packages if module == p or module.startswith(f"{p}.")}
                eager[module] |= ({target, *packages} - around) & set(texts)
    return eager, lazy


def circle(edges: Mapping[str, set[str]]) -> list[str]:
    """Modules each of which imports the next, the last being the first again; empty if there is no circle."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module not in done:
            for target in sorted(edges[module]):
                if found := walk(target, [*path, module]):
                    return found
            done.add(module)
        return []

    return next((found for module in edges if (found := walk(module, []))), [])


@pytest.fixture(scope="module")
def found() -> tuple[dict[str, set[str]], set[tuple[str, str]]]:
    return graph({module: path.read_text() for module, path in FILES.items()})


def test_no_module_imports_itself_by_way_of_others(found):
    assert circle(found[0]) == []


def test_each_import_inside_a_function_has_a_reason(found):
    assert found[1] == set(LAZY)


def test_a_circle_is_found_and_types_and_functions_make_none():
    texts = {
        "p": "",
        "p.a": "from p.b import x",
        "p.b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import a\n",
    }
    assert circle(graph(texts)[0]) == []
    lazily = {**texts, "p.b": "def f():\n    from p import a\n"}
    assert circle(graph(lazily)[0]) == []
    assert graph(lazily)[1] == {("p.b", "p.a")}
    assert circle(graph({**texts, "p.b": "try:\n    from p import a\nfinally:\n    pass\n"})[0]) == [
        "p.a",
        "p.b",
        "p.a",
    ]


def test_a_circle_through_a_package_is_found():
    texts = {"p": "", "p.q": "from p.r import x", "p.q.a": "", "p.r": "from p.q.a import y"}
    assert circle(graph(texts)[0]) == ["p.q", "p.r", "p.q"]


def test_each_file_stands_in_one_layer_or_above_them():
    first = {path.relative_to(ROOT / "autopart").parts[0] for path in FILES.values()}
    assert first - set(LAYERS) - ABOVE == set()
    assert set(LAYERS) <= first


def test_files_of_one_name_are_few_and_told_apart():
    names = Counter(path.name for path in FILES.values())
    shared = defaultdict(list)
    for path in FILES.values():
        if names[path.name] > 1 and path.name not in {"__init__.py", *SAME_NAME}:
            shared[path.name].append(str(path.relative_to(ROOT)))
    assert shared == {}
