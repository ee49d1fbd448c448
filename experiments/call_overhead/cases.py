"""What is called: a step of many small arrays that updates its state, and decoding of one token with a cache.

    step(state: n - 1 arrays, x) -> state                n leaves in; the state is donated
    decode(params, cache, token) -> (cache, token)       24 + 13 + 1 leaves in; the cache is donated

The arrays are as small as a mesh of eight devices allows, so that a call is little more than its dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autopart as ap

MESH = ap.Mesh({"batch": 4, "model": 2})
LAYERS, WIDTH, ROWS, LENGTH = 6, 8, 8, 16


@dataclass(frozen=True)
class Case:
    """A function that returns its next state, what is donated, and how the results of a call become the next call."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    schedule: Sequence[ap.Tactic]
    donated: int
    following: Callable[[tuple[Any, ...], Any], tuple[Any, ...]]

    @property
    def leaves(self) -> int:
        """How many arrays go in."""
        return len(jax.tree.leaves(self.arguments))


def update(leaves: int) -> Case:
    """A step over so many leaves in all, each tiled over both axes."""

    def step(state: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
        return {name: array + x for name, array in state.items()}

    state = {f"w{i}": np.full((8, 2), i, "f4") for i in range(leaves - 1)}
    both = [ap.ManualPartition({"x": 0}, axis="batch"), ap.ManualPartition({"x": 1}, axis="model")]
    return Case(f"{leaves} leaves", step, (state, np.ones((8, 2), "f4")), both, 0, lambda given, out: (out, given[1]))


def decoding() -> Case:
    """A token of a small attention model: parameters stay, the cache of keys and values is written in place."""

    def decode(params: list[dict[str, jax.Array]], cache: dict[str, Any], token: jax.Array) -> tuple[Any, jax.Array]:
        x, at = jax.nn.one_hot(token, WIDTH), cache["length"]
        written = []
        for p, (keys, values) in zip(params, cache["layers"], strict=True):
            keys = jax.lax.dynamic_update_slice(keys, (x @ p["k"])[:, None], (0, at, 0))
            values = jax.lax.dynamic_update_slice(values, (x @ p["v"])[:, None], (0, at, 0))
            scores = jnp.where(jnp.arange(LENGTH) <= at, jnp.einsum("bd,btd->bt", x @ p["q"], keys), -1e9)
            x = x + jnp.einsum("bt,btd->bd", jax.nn.softmax(scores), values) @ p["o"]
            written.append((keys, values))
        return {"layers": written, "length": (at + 1) % LENGTH}, jnp.argmax(x, -1)

    draw = np.random.default_rng(0)
    params = [{name: draw.normal(size=(WIDTH, WIDTH)).astype("f4") for name in "kvqo"} for _ in range(LAYERS)]
    layers = [(np.zeros((ROWS, LENGTH, WIDTH), "f4"),) * 2 for _ in range(LAYERS)]
    cache = {"layers": layers, "length": np.int32(0)}
    rows = [ap.ManualPartition({"token": 0}, axis="batch")]
    return Case("decode", decode, (params, cache, np.zeros(ROWS, "i4")), rows, 1, lambda given, out: (given[0], *out))


CASES = [update(2), update(101), update(301), decoding()]
