"""Tests run on an XLA that does not know all the flags they wish for."""

from __future__ import annotations

import pytest

from tests.xla_flags import known_flags


def test_a_wished_flag_that_xla_does_not_know_is_left_out():
    assert known_flags(["--xla_no_such_flag=1", "--xla_backend_optimization_level=0"], "") == [
        "--xla_backend_optimization_level=0"
    ]


def test_a_given_flag_that_ends_jax_is_said_in_a_sentence():
    with pytest.raises(pytest.UsageError, match=r"jax does not start with XLA_FLAGS=.*--xla_nor_this=2.*Unknown flag"):
        known_flags([], "--xla_nor_this=2")
