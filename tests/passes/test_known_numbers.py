"""Does what is computed before the program runs come out as XLA computes it, or stay unknown?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.core.passes import known_numbers
from autopart.core.passes.known_numbers import numbers
from autopart.core.passes.pattern_rewriter import PatternRewriter

ODD = {
    "int32": [0, 1, -1, 7, -7, 2**31 - 1, -(2**31), 3],
    "int8": [0, 1, -1, 7, -7, 127, -128, 3],
    "uint32": [0, 1, 2**32 - 1, 7, 5, 2**31, 2, 3],
    "float32": [0.0, -0.0, 1.5, -1.5, 2.5, np.inf, -np.inf, np.nan],
    "bool": [False, True, False, True, True, False, True, False],
}
SIGNED, INTEGERS, NUMBERS = ("int32", "int8", "float32"), ("int32", "int8", "uint32"), (*ODD,)[:4]
SHIFTED = 3
"""The second operand has the same numbers, rolled by so many places: each meets zero, itself and others."""

PAIRS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "add": (lax.add, NUMBERS),
    "and": (lax.bitwise_and, (*INTEGERS, "bool")),
    "divide": (lax.div, NUMBERS),
    "maximum": (lax.max, (*NUMBERS, "bool")),
    "minimum": (lax.min, (*NUMBERS, "bool")),
    "multiply": (lax.mul, NUMBERS),
    "or": (lax.bitwise_or, (*INTEGERS, "bool")),
    "remainder": (lax.rem, NUMBERS),
    "subtract": (lax.sub, NUMBERS),
    "xor": (lax.bitwise_xor, (*INTEGERS, "bool")),
    "clamp": (lambda a, b: lax.clamp(lax.min(a, b), b, lax.max(a, b)), INTEGERS),
    "compare": (lambda a, b: lax.lt(a, b) | lax.ge(b, a) & lax.ne(a, b) ^ lax.eq(a, b) | lax.gt(a, b), NUMBERS),
    "select": (lambda a, b: lax.select(lax.le(a, b), a, b), NUMBERS),
    "concatenate": (lambda a, b: lax.concatenate([a, b], 0), (*ODD,)),
}
SINGLE: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "abs": (lax.abs, SIGNED),
    "ceil": (lax.ceil, ("float32",)),
    "floor": (lax.floor, ("float32",)),
    "negate": (lax.neg, NUMBERS),
    "not": (lax.bitwise_not, (*INTEGERS, "bool")),
    "round_nearest_even": (lambda a: lax.round(a, lax.RoundingMethod.TO_NEAREST_EVEN), ("float32",)),
    "sign": (lax.sign, SIGNED),
    "convert": (lambda a: lax.convert_element_type(a, jnp.int16), (*ODD,)),
    "convert, floats": (lambda a: lax.convert_element_type(a, jnp.float32), (*ODD,)),
    "convert, masks": (lambda a: lax.convert_element_type(a, jnp.bool_), NUMBERS),
    "broadcast_in_dim": (lambda a: lax.broadcast_in_dim(a, (2, 8, 3), (1,)), (*ODD,)),
    "iota": (lambda a: lax.broadcasted_iota(jnp.int32, (3, 8), 1) + lax.broadcast(a, (3,)), ("int32",)),
    "reduce": (lambda a: lax.reduce_and(lax.broadcast(a, (2,)), (1,)), ("bool",)),
    "reshape": (lambda a: lax.reshape(a, (2, 4)), (*ODD,)),
    "reverse": (lambda a: lax.rev(lax.reshape(a, (2, 4)), (1,)), (*ODD,)),
    "slice": (lambda a: lax.slice(a, (1,), (7,), (2,)), (*ODD,)),
    "transpose": (lambda a: lax.transpose(lax.reshape(a, (2, 4)), (1, 0)), (*ODD,)),
}
UNKNOWN = ("divide", "remainder", "convert")
"""What may stay unknown: each platform has its own quotient by zero, and its own integer for what is none."""


def program_of(fun: Callable[..., Any], *given: np.ndarray) -> Any:
    return ap.jit(lambda: fun(*(jnp.asarray(a) for a in given)), ap.Mesh({"a": 2})).lower().traced.program


def known(fun: Callable[..., Any], *given: np.ndarray) -> np.ndarray | None:
    program = program_of(fun, *given)
    with PatternRewriter(program).begun() as at:
        return numbers(at, program.outputs[0])


CASES = [(kind, *case, dtype) for kind, case in {**PAIRS, **SINGLE}.items() for dtype in case[1]]


@pytest.mark.parametrize(("kind", "fun", "_", "dtype"), CASES, ids=[f"{kind} {dtype}" for kind, _, _, dtype in CASES])
def test_odd_numbers_come_out_as_they_do_on_a_device(kind, fun, _, dtype):
    a = np.array(ODD[dtype]).astype(dtype)
    given = (a, np.roll(a, SHIFTED)) if kind in PAIRS else (a,)
    found, expected = known(fun, *given), np.asarray(jax.jit(fun)(*given))
    if found is None:
        assert kind in UNKNOWN
        plain = [np.where(np.isfinite(x) & (x != 0) & (np.abs(x.astype(float)) < 99), x, 1) for x in given]
        plain = [x.astype(dtype) for x in plain]
        found, expected = known(fun, *plain), np.asarray(jax.jit(fun)(*plain))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_the_table_has_all_kinds_that_are_computed():
    kinds = {*(kind.partition(",")[0] for kind in (*PAIRS, *SINGLE)), "roll"}
    assert kinds == {*known_numbers._BY_ELEMENT, *known_numbers._BY_COLUMN, *known_numbers._OTHERS}


def test_long_chains_are_known_too():
    def counted(a: jax.Array) -> jax.Array:
        for _ in range(3000):
            a = a + 1
        return a

    np.testing.assert_array_equal(known(counted, np.arange(8)), np.arange(3000, 3008))
