"""Steps that a schedule can name or that keep values apart: tags and barriers."""

from __future__ import annotations

from jax import lax

import autopart as ap
from tests.property.pool import Effect, step


@step(Effect.MOVES)
def tag(pool):
    return ap.tag(pool.tag_name(), pool.draw(kinds="fhi"))


@step(Effect.MOVES)
def tag_of_two(pool):
    """One name for two values."""
    x = pool.draw(1)
    name = pool.tag_name()
    return ap.tag(name, x) + 0 * ap.tag(name, pool.like(x))


@step(Effect.MOVES)
def barrier(pool):
    x = pool.draw(1, "fi")
    first, second = lax.optimization_barrier((x, pool.like(x)))
    return pool.choose([first, second])
