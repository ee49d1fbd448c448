"""Is a long reduction of what is joined one of each part, and do numbers stay?"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.core.passes.joined_reductions import FEWEST, LEAST, MOST_PARTS
from autopart.spmd.verify_local import verify
from tests.prompt import in_turn

MESH = ap.Mesh({"a": 4, "b": 2})
X = np.random.default_rng(0).integers(-2, 3, (FEWEST, 192)).astype(np.float32)
B = np.random.default_rng(1).integers(-2, 3, (192,)).astype(np.float32)
Fun = Callable[[jax.Array, jax.Array], object]


def _bias_gradient(parts: Callable[[jax.Array], list[jax.Array]]) -> Fun:
    """The gradients of a bias, and of what it is added to, whose sum is taken apart."""

    def loss(b: jax.Array, x: jax.Array) -> jax.Array:
        return sum((jnp.sum(part * part * (k + 1)) for k, part in enumerate(parts(x + b))), jnp.float32(0))

    return lambda x, b: jax.grad(loss, (0, 1))(b, x)


def _joined(x: jax.Array, *at: int) -> jax.Array:
    return jnp.concatenate([part * (k + 2) for k, part in enumerate(jnp.split(x, at, axis=1))], axis=1)


def _padded(x: jax.Array, size: int, filling: float = 0.0) -> jax.Array:
    """A sum of two pads of 48 columns, to `size`."""
    first, second = x[:, :48] * 2, x[:, 48:96] * 3
    none = (0, 0, 0)
    low = jax.lax.pad(first, filling, (none, (0, size - 48, 0)))
    return low + jax.lax.pad(second, 0.0, (none, (size - 48, 0, 0)))


def _and(x: jax.Array, dims: int | tuple[int, ...]) -> object:
    return x, x.sum(dims)


APART: dict[str, tuple[Fun, int]] = {
    "the gradient of a bias that is split": (_bias_gradient(lambda y: jnp.split(y, 3, axis=-1)), 3),
    "the gradient of a bias that is sliced": (_bias_gradient(lambda y: [y[:, :64], y[:, 64:]]), 2),
    "slices in another order": (_bias_gradient(lambda y: [y[:, 128:], y[:, :48], y[:, 48:128]]), 3),
    "extremes": (lambda x, b: (lambda y: (y, y.max(0), y.min(0)))(_joined(x, 48)), 4),
    "what is read whole too": (lambda x, b: (lambda y: (y.sum(0), jnp.sin(y)))(_joined(x, 48)), 2),
    "a joined dim between reduced ones": (
        lambda x, b: _and(jnp.concatenate([y.T.reshape(2, -1, FEWEST) for y in (x, x * 2)], axis=1), (0, 2)), 2
    ),
    "pads side by side": (lambda x, b: _and(_padded(x, 96), 0), 2),
}  # fmt: skip
"""And how many long reductions there are then."""

WHOLE: dict[str, Fun] = {
    "the joined dim itself": lambda x, b: _and(_joined(x, 48), (0, 1)),
    "few elements": lambda x, b: _and(_joined(x[: FEWEST - 1], 48), 0),
    "many parts": lambda x, b: _and(jnp.concatenate([x * (k + 1) for k in range(MOST_PARTS + 1)], axis=1), 0),
    "a narrow part": lambda x, b: _and(_joined(x, LEAST - 1), 0),
    "joined for the reduction alone": lambda x, b: _joined(x, 48).sum(0),
    "pads with a gap": lambda x, b: _and(_padded(x, 144), 0),
    "pads that overlap": lambda x, b: _and(_padded(x, 72), 0),
    "pads by other numbers": lambda x, b: _and(_padded(x, 96, 1.0), 0),
    "the largest of pads": lambda x, b: (lambda y: (y, y.max(0)))(_padded(x, 96)),
    "what pads are multiplied with": lambda x, b: _and(_padded(x, 96) * b[:96], 0),
}


def long_reductions(fun: Fun, schedule: list[ap.Tactic]) -> int:
    """How many the program has after import; partitioned, it gives the numbers of plain jax."""
    step = ap.jit(fun, MESH, schedule)
    low = step.lower(X, B)
    verify(low.program)
    for ours, theirs in zip(*map(jax.tree.leaves, (step(X, B), fun(jnp.asarray(X), jnp.asarray(B)))), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    program = low.program.program
    reductions = [spec for spec in map(program.spec, range(program.op_count)) if spec.kind == "reduce"]
    return sum(math.prod(r.operands[0].shape[d] for d in r.attributes["dimensions"]) >= FEWEST - 1 for r in reductions)


SCHEDULES: dict[str, list[ap.Tactic]] = {
    "whole": [],
    "rows": [ap.ManualPartition({"x": 0}, axis="a")],
    "rows and columns": [ap.ManualPartition({"x": 0}, axis="a"), ap.ManualPartition({"b": 0}, axis="b")],
}


@pytest.mark.parametrize(("case", "schedule"), in_turn(APART, SCHEDULES))
def test_parts_are_reduced_by_themselves(case: str, schedule: str):
    fun, count = APART[case]
    assert long_reductions(lambda x, b: fun(x, b), SCHEDULES[schedule]) == count


@pytest.mark.parametrize("case", WHOLE)
def test_other_reductions_stay(case: str):
    assert long_reductions(WHOLE[case], SCHEDULES["rows"]) == 1
