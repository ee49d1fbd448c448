"""Is a kernel compiled once, as one, for all that call it; and does it do what the function says?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from autopart.base.jit.kernel_compiler import KernelDispatcher
from autopart.base.jit.kernels import allocating_kernel, kernel

MOST_ENTRIES, MOST_PARTS = 40, 134
"""Kernels that Python calls, and all kernels, in a first search: each of either takes a tenth of a second."""

FIRST_SEARCH = """
import gc
import jax, jax.numpy as jnp
import autopart as ap
from autopart.base.jit.kernel_compiler import KernelDispatcher

def step(w, x):
    def loss(w):
        return jnp.sum(jnp.tanh(x @ w["a"]) @ w["b"])
    return jax.tree.map(lambda p, g: p - g, w, jax.grad(loss)(w))

w = {"a": jnp.ones((512, 1024)), "b": jnp.ones((1024, 512))}
auto = ap.AutomaticPartition(["x", "y"], budget=ap.Budget(40), cache=False, progress=False)
mesh = ap.Mesh({"x": 4, "y": 2}, device="tpu_v4")
ap.jit(step, mesh, [auto], donate_argnums=0).lower(w, jnp.ones((256, 512))).estimate.top(3)
kernels = [k for k in gc.get_objects() if isinstance(k, KernelDispatcher)]
print("several signatures:", [k.__name__ for k in kernels if len(k.signatures) > 1 or len(k.part.signatures) > 1])
print("entries:", sum(bool(k.signatures) for k in kernels))
print("parts:", sum(bool(k.part.signatures) for k in kernels))
"""


def never_kept(function: Callable[..., Any]) -> Any:
    """Decorator: a kernel that is not looked for on disk, so that each run compiles it."""
    return KernelDispatcher(function, targetoptions={"nopython": True, "no_cfunc_wrapper": True, "_nrt": False})


@never_kept
def added(a: int, b: int) -> int:
    """A part of the kernels below."""
    return a + b


class Pair(NamedTuple):
    """Two arrays."""

    here: np.ndarray
    there: np.ndarray


class Pairs(NamedTuple):
    """One pair within another tuple."""

    pair: Pair
    more: np.ndarray


@never_kept
def moved(pair: Pair, i: int) -> None:
    """Writes into an array of a tuple that is passed on."""
    pair.there[i] = pair.here[i]
    pair.here[i] = 0


@never_kept
def moved_all(pairs: Pairs) -> int:
    """Passes on a part of what it is given, and then a tuple that it makes."""
    for i in range(pairs.pair.here.shape[0]):
        moved(pairs.pair, i)
    back = Pair(pairs.pair.there, pairs.more)
    for i in range(back.here.shape[0]):
        moved(back, i)
    return pairs.more.sum()


@never_kept
def moved_twice(pairs: Pairs) -> int:
    """Passes on what it is given, as it is."""
    return moved_all(pairs) + moved_all(pairs)


@never_kept
def sum_of(numbers: np.ndarray) -> int:
    """Calls a part with integers of several widths."""
    total, flag = 0, True
    for i in range(numbers.shape[0]):
        total = added(total, numbers[i])
    return added(total, added(np.int8(1), flag)) - 2


@kernel
def quotient(a: int, b: int) -> float:
    """Raises where b is 0."""
    return a / b


@kernel
def share(numbers: np.ndarray, total: int) -> float:
    """Raises in a part."""
    if numbers.shape[0] == 0:
        raise ValueError("no numbers")
    return quotient(numbers[0], total)


@allocating_kernel
def twice(numbers: np.ndarray) -> np.ndarray:
    """Makes an array."""
    made = np.empty(numbers.shape[0])
    for i in range(numbers.shape[0]):
        made[i] = 2.0 * numbers[i]
    return made


def test_part_has_one_signature_for_integers_of_all_widths_and_no_entry():
    assert sum_of(np.array([3, 4], np.int32)) == 7
    assert [str(s) for s in added.part.signatures] == ["(int64, int64)", "(int64, bool)"]
    assert not added.signatures


def test_kernel_has_one_signature_for_integers_that_python_passes():
    product = never_kept(lambda a, b: a * b)
    assert product(np.int32(3), 4) == product(3, np.int64(4)) == product(np.int8(3), np.uint16(4)) == 12
    assert [str(s) for s in product.signatures] == ["(int64, int64)"]


def test_what_a_part_raises_arrives_in_python():
    assert share(np.array([3]), 4) == 0.75
    with pytest.raises(ZeroDivisionError):
        share(np.array([3]), 0)
    with pytest.raises(ValueError, match="no numbers"):
        share(np.array([], np.int64), 1)


def test_kernel_that_makes_an_array_returns_it():
    assert twice(np.array([1.0, 2.5])).tolist() == [2.0, 5.0]


def first_search(directory: str | None) -> dict[str, str]:
    """What a process that searches has compiled or loaded; with an empty cache of kernels in `directory`."""
    changed = {"JAX_PLATFORMS": "cpu"} | ({"NUMBA_CACHE_DIR": directory} if directory else {})
    run = subprocess.run(
        [sys.executable, "-c", FIRST_SEARCH], env=os.environ | changed, capture_output=True, text=True, check=True
    )
    return dict(line.split(": ") for line in run.stdout.splitlines())


def test_first_search_needs_few_kernels_of_one_signature_each():
    found = first_search(None)
    assert found["several signatures"] == "[]"
    assert int(found["entries"]) <= MOST_ENTRIES


@pytest.mark.slow
def test_first_search_without_a_cache_lowers_few_kernels_of_one_signature_each(tmp_path):
    found = first_search(str(tmp_path))
    assert found["several signatures"] == "[]"
    assert 0 < int(found["parts"]) <= MOST_PARTS


def test_tuples_that_are_passed_on_or_made_on_the_way_are_the_same_arrays():
    here, there, more = np.arange(4), np.zeros(4, np.int64), np.zeros(4, np.int64)
    assert moved_twice(Pairs(Pair(here, there), more)) == 6
    assert here.tolist() == there.tolist() == more.tolist() == [0, 0, 0, 0]
    here[:] = [5, 6, 7, 8]
    assert moved_all(Pairs(Pair(here, there), more)) == 26
    assert more.tolist() == [5, 6, 7, 8]
