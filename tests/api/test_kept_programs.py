"""How many compiled programs does a partitioned function keep, and what do threads that share one see?"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import autopart as ap
from autopart.api.jitted.kept import Kept

MESH = ap.Mesh({"batch": 4})
BP = ap.ManualPartition({"x": 0}, axis="batch")


def test_the_one_asked_for_longest_ago_makes_room():
    kept, made = Kept(2), []

    def get(key):
        return kept.get(key, lambda: made.append(key) or key.upper())

    assert [get(key) for key in "abacab"] == list("ABACAB")
    assert made == ["a", "b", "c", "b"]
    assert len(kept) == 2


def test_what_could_not_be_made_is_made_when_asked_for_again():
    kept = Kept(2)
    with pytest.raises(ZeroDivisionError):
        kept.get("a", lambda: 1 / 0)
    assert kept.get("a", lambda: 1) == 1


def test_programs_of_other_shapes_are_let_go_and_compiled_again():
    step = ap.jit(lambda x: x * 2, MESH, [BP], most_compiled=2)
    for rows in (4, 8, 12, 4, 4):
        np.testing.assert_array_equal(step(np.ones(rows, "f4")), np.full(rows, 2.0))
        assert len(step._compiled) <= 2


def test_a_thousand_shapes_keep_as_many_programs_as_were_asked_for():
    kept = Kept(16)
    for shape in range(1000):
        assert kept.get(shape, lambda shape=shape: -shape) == -shape
    assert len(kept) == 16


def test_threads_that_make_the_first_calls_share_one_trace_per_shape():
    traces, together = [], threading.Barrier(8)

    def program(x):
        traces.append(x.shape)
        return x @ x.T

    step = ap.jit(program, MESH, [BP])

    def call(number):
        rows = 4 if number % 2 else 8
        x = np.full((rows, 3), number, "f4")
        together.wait()
        return [np.array_equal(step(x), x @ x.T) for _ in range(3)]

    with ThreadPoolExecutor(8) as pool:
        assert all(all(right) for right in pool.map(call, range(8)))
    assert sorted(traces) == [(4, 3), (8, 3)]
