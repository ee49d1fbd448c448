"""Is what was compiled before used again only while everything that it was compiled from is the same?"""

import importlib.util
import itertools
import pickle

import numba
import pytest

INNER = """
from autopart.base.jit.kernels import kernel

STEP = {step}

@kernel
def inner(x):
    return x + {added}
"""

OUTER = """
from autopart.base.jit.kernels import kernel
from {inner} import STEP, inner

@kernel
def outer(x):
    return STEP * inner(x)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """(write(added, step), load()): two modules on disk, and their kernel `outer` as a new process would load it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    numbers = itertools.count()
    name = f"inner_{tmp_path.name}"

    def write(added, step=1):
        (tmp_path / f"{name}.py").write_text(INNER.format(added=added, step=step))
        (tmp_path / "outer.py").write_text(OUTER.format(inner=name))

    def load():
        from autopart.base.jit import kernels

        kernels._content.cache_clear()
        for module in (name, "outer"):
            importlib.invalidate_caches()
            spec = importlib.util.spec_from_file_location(module, tmp_path / f"{module}.py")
            found = importlib.util.module_from_spec(spec)
            monkeypatch.setitem(__import__("sys").modules, module, found)
            spec.loader.exec_module(found)
        next(numbers)
        return found.outer

    return write, load


def hits(kernel):
    """How many signatures came from disk."""
    return sum(kernel.stats.cache_hits.values())


def test_unchanged_kernel_comes_from_disk(package):
    write, load = package
    write(added=1)
    assert load()(1) == 2
    again = load()
    assert again(1) == 2
    assert hits(again) == 1


def test_kernel_is_compiled_anew_when_one_that_it_calls_changed_in_another_file(package):
    write, load = package
    write(added=1)
    assert load()(1) == 2
    write(added=5)
    again = load()
    assert again(1) == 6
    assert hits(again) == 0


def test_kernel_is_compiled_anew_when_a_constant_of_another_file_changed(package):
    write, load = package
    write(added=1, step=1)
    assert load()(1) == 2
    write(added=1, step=3)
    again = load()
    assert again(1) == 6
    assert hits(again) == 0


class Gone:
    """Stands for a class that a later version has no more."""

    def __reduce__(self):
        return importlib.import_module, ("autopart.a_module_that_is_gone",)


@pytest.mark.parametrize("index", [pickle.dumps(numba.__version__) + pickle.dumps(Gone()), b"", b"\x80garbage"])
def test_index_that_cannot_be_read_is_replaced(package, tmp_path, index):
    write, load = package
    write(added=1)
    assert load()(1) == 2
    for path in tmp_path.rglob("*.nbi"):
        path.write_bytes(index)
    assert load()(1) == 2
    again = load()
    assert again(1) == 2
    assert hits(again) == 1


@pytest.mark.parametrize("files", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize(
    "damage",
    [lambda data: data[: len(data) // 2], lambda data: bytes(len(data)), lambda data: data[:900] + b"?" + data[901:]],
    ids=["cut short", "zeros", "one byte"],
)
def test_a_damaged_file_is_not_loaded_and_the_kernel_is_compiled_anew(package, tmp_path, files, damage):
    write, load = package
    write(added=1)
    assert load()(1) == 2
    for path in tmp_path.rglob(files):
        whole = path.read_bytes()
        path.write_bytes(damage(whole))
        assert path.read_bytes() != whole or len(whole) <= 900
    again = load()
    assert again(1) == 2
    assert hits(again) == (files == "*.nbi" and damage(whole) == whole)
    warm = load()
    assert warm(1) == 2
    assert hits(warm) == 1
