"""The values a random program has so far, what is known of their rounding, and the registry of steps.

    pool    x0: f32[4,6] exact    x2: f32[8] rough    n: i32[4,2] exact
    step    x = pool.draw(rank=1)           -> x0, one of those that fit
            return x + 1                    -> f32[4,6] exact, since what was drawn was exact and + keeps whole numbers

An exact value holds small whole numbers that no order of summation rounds, so it is compared bit by bit. A rough value
is compared to a tolerance. A coarse value went through a half-precision sum: it may be moved, but not be computed with.
Where an error would jump (a comparison, an index), a step draws exact values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LARGEST = 4096
"""Elements of the largest value that a step draws."""

WHOLE_LIMIT = {"float32": 32, "bfloat16": 8, "float16": 8}
"""Exact values stay below it in magnitude, so that a product of two, or a sum of many in f32, is exact too."""


class Rounding(IntEnum):
    """How a value is compared."""

    EXACT = 0
    ROUGH = 1
    COARSE = 2


class Effect(Enum):
    """What a step does to whole numbers."""

    MOVES = "its result holds values that were drawn, and small whole numbers"
    COMPUTES = "whole numbers stay whole, and may grow"
    SUMS = "many whole numbers are added: exact in f32, rounded in half precision"
    ROUNDS = "its result is rounded"


class NothingFits(Exception):
    """The pool holds nothing the step could work on."""


@dataclass(eq=False)
class Value:
    """An array, how it is compared, and whether a later step drew it."""

    array: jax.Array
    rounding: Rounding
    used: bool = False


@dataclass(frozen=True)
class Step:
    """One kind of random step: `make(pool)` draws from the pool and returns a new array.

    weight   how often it is taken, beside 1 for most: more where rare circumstances have to come together
    """

    name: str
    effect: Effect
    make: Callable[[Pool], jax.Array]
    weight: int = 1


STEPS: dict[str, Step] = {}


def step(effect: Effect, weight: int = 1) -> Callable[[Callable], Callable]:
    """Registers a step under its function's name."""

    def register(make: Callable) -> Callable:
        if make.__name__ in STEPS:
            raise ValueError(f"two steps are called {make.__name__}")
        STEPS[make.__name__] = Step(make.__name__, effect, make, weight)
        return make

    return register


def kind_of(array: jax.Array) -> str:
    """ "f": f32, "h": half precision, "i": integer, "b": boolean, else "?"."""
    if array.dtype == jnp.float32:
        return "f"
    if array.dtype in (jnp.bfloat16, jnp.float16):
        return "h"
    return {"i": "i", "b": "b"}.get(array.dtype.kind, "?")


@dataclass
class Pool:
    """Values to draw from. `rng` decides everything; `prefix` makes the names of tags unique within a module.

    mesh  axes and sizes of the mesh that the program will run on, which steps by hand name; empty for programs without
    """

    rng: np.random.Generator
    prefix: str
    values: list[Value] = field(default_factory=list)
    most: Rounding = Rounding.ROUGH
    drawn: list[Value] = field(default_factory=list)
    tags: int = 0
    mesh: Mapping[str, int] = field(default_factory=dict[str, int])

    def draw(
        self, rank: int = 0, kinds: str = "f", *, exact: bool = False, fits: Callable[[jax.Array], bool] | None = None
    ) -> jax.Array:
        """A value of at least that rank; raises `NothingFits` where there is none."""
        most = Rounding.EXACT if exact else self.most
        found = [
            v
            for v in self.values
            if v.array.ndim >= rank
            and kind_of(v.array) in kinds
            and v.array.size <= LARGEST
            and v.rounding <= most
            and (fits is None or fits(v.array))
        ]
        if not found:
            raise NothingFits
        chosen = found[self.rng.integers(len(found))]
        self.drawn.append(chosen)
        return chosen.array

    def like(self, x: jax.Array, exact: bool = False) -> jax.Array:
        """A value of the same type as `x` (perhaps itself)."""
        kinds = kind_of(x)
        return self.draw(kinds=kinds, exact=exact, fits=lambda v: v.shape == x.shape and v.dtype == x.dtype)

    def axis(self, x: jax.Array) -> int:
        return int(self.rng.integers(x.ndim))

    def choose(self, options):
        return options[self.rng.integers(len(options))]

    def coin(self) -> bool:
        return bool(self.rng.integers(2))

    def tag_name(self) -> str:
        self.tags += 1
        return f"{self.prefix}_t{self.tags - 1}"

    def run(self, kind: Step) -> Value:
        """What the step makes of this pool, brought back to a small range; `drawn` is what it drew."""
        self.most = Rounding.COARSE if kind.effect is Effect.MOVES else Rounding.ROUGH
        self.drawn = []
        array = kind.make(self)
        roughest = max((v.rounding for v in self.drawn), default=Rounding.EXACT)
        return in_range(array, rounded(kind.effect, roughest, array), kind.effect)

    def keep(self, value: Value) -> None:
        """Adds what a step made; what it drew is used now."""
        for drawn in self.drawn:
            drawn.used = True
        self.values.append(value)


def rounded(effect: Effect, drawn: Rounding, result: jax.Array) -> Rounding:
    """How a step's result is compared, given the roughest value it drew."""
    if kind_of(result) in "ib" or effect is Effect.MOVES:
        return drawn
    half = kind_of(result) == "h"
    if effect is Effect.ROUNDS:
        return Rounding.COARSE if half else max(drawn, Rounding.ROUGH)
    if half and (effect is Effect.SUMS or drawn is not Rounding.EXACT):
        return Rounding.COARSE
    return drawn


def in_range(array: jax.Array, rounding: Rounding, effect: Effect) -> Value:
    """The value with its elements small again: whole numbers by their remainder, others by a bound."""
    if kind_of(array) not in "fh" or effect is Effect.MOVES:
        return Value(array, rounding)
    if rounding is Rounding.EXACT:
        limit = WHOLE_LIMIT[array.dtype.name]
        return Value(lax.rem(array, jnp.full(array.shape, limit, array.dtype)), rounding)
    return Value(jnp.clip(array, -50, 50), rounding)
