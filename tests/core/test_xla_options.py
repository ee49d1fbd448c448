"""Options of XLA are asked for where this XLA knows them."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import autopart as ap
from autopart.core.doors import xla_options
from autopart.core.doors.xla_options import IN_ORDER_ON_CPU, known

X = np.ones((8, 4), "f4")
UNKNOWN = {"xla_cpu_no_such_option": False}
ROWS = [ap.ManualPartition({"x": 0}, axis="a")]


def test_an_option_that_xla_does_not_know_is_left_out():
    level = {"xla_backend_optimization_level": 0}
    assert known({**UNKNOWN, **level}) == level


def test_a_value_that_xla_does_not_take_is_left_out_too():
    assert known({"xla_backend_optimization_level": "much"}) == {}


def test_the_interpreter_runs_where_xla_knows_none_of_the_options_that_make_it_quick(monkeypatch):
    monkeypatch.setattr("autopart.core.doors.jax_internals.QUICK_ON_CPU", UNKNOWN)
    assert ap.jit(lambda x: x.sum(), ap.Mesh({"a": 2}), ROWS).lower(X).interpret(X) == 32


@pytest.mark.parametrize(("devices", "asked"), [(1, {}), (2, known(IN_ORDER_ON_CPU))])
def test_programs_of_several_cpus_start_their_collectives_in_order(monkeypatch, devices, asked):
    found = []
    real = jax.stages.Lowered.compile

    def compile(self, compiler_options=None):
        found.append(compiler_options)
        return real(self, compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile)
    ap.jit(lambda x: x.sum(), ap.Mesh({"a": devices}), ROWS).lower(X).compile()
    assert found[-1] == (asked or None)


def test_an_option_that_the_caller_gives_is_what_is_asked_for(monkeypatch):
    monkeypatch.setattr(
        "autopart.core.doors.xla_options.known", lambda wished: {"xla_backend_optimization_level": "no level"}
    )
    step = ap.jit(lambda x: x.sum(), ap.Mesh({"a": 2}), ROWS, compiler_options={"xla_backend_optimization_level": 0})
    assert step(X) == 32
    assert xla_options.is_refused(RuntimeError("No such compile option: 'x'"))
