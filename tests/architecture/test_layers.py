"""Do dependencies point down, and do jax, ray and the solvers come in by their doors only?"""

from __future__ import annotations

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("base", "core", "pairwise", "spmd", "costmodel", "search", "api")
"""Each may import itself and those before it."""

PASSES = (
    "layout_assignment", "facts", "local", "fusion", "links", "buffer_assignment", "memory_space_assignment",
    "kernel_cost", "layers",
)  # fmt: skip
"""Packages of the simulator, the compiler's passes: each may import itself, those before it and `SHARED`."""

SHARED = ("arrays", "arena", "dot_strength_reduction", "roofline", "sizes", "slots", "tiled_layouts")
"""What all of them read."""


def _files(*folders: tuple[str, str]) -> set[str]:
    """Files by their folder, names in a row."""
    return {f"{folder}/{name}.py" for folder, names in folders for name in names.split()}


DOORS = {
    "jax": _files(
        ("api", "reshard"),
        ("api/explained", "another_program"),
        (
            "api/jitted",
            "ambient any_jit compiled donated filter_jit interpreted jit lowered nnx verification "
            "warmup"
        ),
        (
            "api/kernels",
            "body_dims cudnn gradient grid_digits index_maps kernel kernel_primitive named_functions named_pallas "
            "pallas_call pallas_work partitioned running_sums scaled_products twin verify_kernel"
        ),
        ("api/measured", "calibration profile"),
        ("api/plan", "as_jax"),
        ("api/tactics", "flax_shardings given_shardings"),
        ("api/tracing", "call_arguments closures donated_ties leaves mutation tag trace"),
        ("cli", "reshard_plan_command"),
        ("core/doors", "host_callbacks invalid_numbers jax_dispatch jax_internals jax_private xla_options"),
        ("core/importer", "host_calls jaxprs mutable_refs"),
        ("core/kernel_calls", "kernel_body"),
        ("costmodel/xla", "topologies xla_compile"),
        ("spmd", "run"),
    ),
    "jax._src": {"core/doors/jax_private.py"},
    "jaxlib": {"core/doors/jax_private.py"},
    "ray": {"search/execution/ray.py"},
    "pulp": {"pairwise/highs_process.py"},
    "highspy": {"pairwise/highs_process.py"},
    "scipy": {"api/measured/calibration.py", "core/passes/padding/cheapest_cut.py", "pairwise/highs_process.py"},
    "flax": {"api/jitted/nnx.py"},
    "matplotlib": {"api/compared/sweep_plot.py"},
    "mcp": {"cli/mcp_server.py"},
    "click": {path.relative_to(ROOT / "autopart").as_posix() for path in (ROOT / "autopart/cli").glob("*.py")},
}  # fmt: skip
"""Each package from outside, and the files that may import it."""

EVERYWHERE = {"autopart", "numpy", "numba"}
"""What any file may import, besides Python's own library."""

FILES = sorted((ROOT / "autopart").rglob("*.py"))


@functools.cache
def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.append(node.module)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    parts = path.relative_to(ROOT / "autopart").parts
    if parts[0] not in LAYERS:
        return
    allowed = LAYERS[: LAYERS.index(parts[0]) + 1]
    above = [m for m in imports(path) if m.startswith("autopart.") and m.split(".")[1] not in allowed]
    assert not above, f"{'/'.join(parts)} is in {parts[0]}, below {above}"


@pytest.mark.parametrize("package", PASSES)
def test_imports_point_down_among_the_compilers_passes(package):
    name = "autopart.costmodel.compiled."
    allowed = (*PASSES[: PASSES.index(package) + 1], *SHARED)
    files = list((ROOT / "autopart/costmodel/compiled" / package).glob("*.py"))
    assert len(files) > 1
    for path in files:
        found = re.findall(rf"^from {re.escape(name)}(\w+)", path.read_text(), re.MULTILINE)
        assert set(found) <= set(allowed), f"{path.name} is in {package}, below {set(found) - set(allowed)}"


@pytest.mark.parametrize("package", DOORS)
def test_outside_packages_come_in_by_their_doors(package):
    users = {
        str(path.relative_to(ROOT / "autopart"))
        for path in FILES
        if any(m == package or m.startswith(package + ".") for m in imports(path))
    }
    assert users <= DOORS[package], f"{package} is also imported by {users - DOORS[package]}"


def test_every_package_from_outside_has_its_doors():
    outside = {m.split(".")[0] for path in FILES for m in imports(path)} - EVERYWHERE - set(sys.stdlib_module_names)
    assert outside <= set(DOORS), f"{outside - set(DOORS)} comes in without a door"


def test_nothing_reaches_outside_the_project():
    words = ("/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "../sha" + "red")
    for path in [*ROOT.rglob("*.py"), *ROOT.rglob("*.md"), *ROOT.rglob("*.toml")]:
        if any(part.startswith(".venv") for part in path.parts):
            continue
        text = path.read_text()
        assert not any(word in text for word in words), f"{path} names a machine's path"
