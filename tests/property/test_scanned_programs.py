"""Random gradients through loops in loops: are they those of plain jax, and is nothing computed more than once again?

pytest tests/property/test_scanned_programs.py -m "slow or not slow"        300 programs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.core.program import ROOT
from tests.prompt import only
from tests.property.scanned_programs import ScannedProgram

MESH = ap.Mesh({"d": 2})
BP = ap.ManualPartition({"x": 0}, "d")
QUICK = (3, 35, 43, 115)
COMPUTING = ("dot_general", "tanh", "sine", "logistic", "exponential")


def computing(function: Callable[..., Any], given: Any, *tactics: Any) -> Counter[str]:
    """How often ops of each kind run, in all turns of the loops around them."""
    program = ap.jit(function, MESH, [BP, *tactics]).lower(*given).traced.program
    count = Counter[str]()
    for op in range(program.op_count):
        if program.spec(op).kind in COMPUTING:
            count[program.spec(op).kind] += int(program.scope_trips[program.op_scope[op]])
    return count


def assert_same(function: Callable[..., Any], given: Any, *tactics: Any):
    """By float64, so that no rounding is amplified."""
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda v: v.astype(np.float64), given)
        want, got = jax.jit(function)(*wide), ap.jit(function, MESH, [BP, *tactics])(*wide)
        for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-7, atol=1e-8 * float(np.abs(a).max(initial=0.0)) + 1e-14)


@pytest.mark.parametrize("seed", only(QUICK, range(300)))
def test_numbers_stay_and_nothing_is_computed_more_than_once_again(seed: int):
    program = ScannedProgram(seed)
    given, again = program.inputs(), ap.Recompute(list(program.keep))
    assert_same(lambda w, x: program.step(w, x), given, again)
    forward = computing(lambda w, x: program.loss(w, x), given)
    whole = computing(lambda w, x: program.step(w, x), given)
    found = computing(lambda w, x: program.step(w, x), given, again)
    for kind, times in found.items():
        assert times <= whole[kind] + program.losses * forward[kind], (kind, str(program))


def carried_rows(w: jax.Array, x: jax.Array) -> Any:
    """The late loop reads a row, and carries it to the next turn."""

    def early(h: jax.Array, w: jax.Array) -> Any:
        h = jnp.tanh(jnp.sin(h @ w))
        return h, (2 * jnp.exp(h), jnp.cos(h))

    def late(carry: Any, row: Any) -> Any:
        h, before = carry
        return (jnp.tanh(h * row[0] + before) * row[1], row[0]), None

    h, rows = lax.scan(early, x, w)
    return lax.scan(late, (h, x), rows)[0]


@pytest.mark.parametrize("keep", ["nothing", "blocks"])
def test_a_row_that_is_read_and_carried_is_rebuilt_before_both(keep: str):
    rng = np.random.default_rng(0)
    given = rng.normal(size=(5, 4, 4)).astype("f4"), rng.normal(size=(4, 4)).astype("f4")
    assert_same(carried_rows, given, ap.Recompute(keep))


def layers_over_time(w: jax.Array, x: jax.Array) -> Any:
    """A loop over layers around one over time, and the gradient."""

    def layer(y: jax.Array, w: jax.Array) -> Any:
        def turn(h: jax.Array, row: jax.Array) -> Any:
            gate = jnp.tanh(jnp.sin(h @ w[0] + row @ w[1]))
            h = gate * jnp.tanh(h) + (1 - gate) * jnp.sin(row)
            return h, h

        return lax.scan(turn, jnp.zeros_like(y[0]), y)[1], None

    def loss(w: jax.Array) -> jax.Array:
        return jnp.mean(lax.scan(layer, jnp.stack([x] * 6), w)[0] ** 2)

    return jax.grad(loss)(w)


def test_loops_inside_of_a_steps_halves_are_not_cut_by_themselves():
    given = jax.ShapeDtypeStruct((3, 2, 8, 8), "float32"), jax.ShapeDtypeStruct((32, 8), "float32")
    program = ap.jit(layers_over_time, MESH, [BP, ap.Recompute("blocks")]).lower(*given).traced.program
    around = [program.scopes[program.op_scope[parts.start]].parent for parts in program.barriers]
    assert around
    assert max(around) <= ROOT, "a barrier stands in the loop over time"
