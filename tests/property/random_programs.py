"""Random programs over all op families.

    RandomProgram(7)({"x0": ..., "x1": ..., ...})  ->  [its results]

A program is a function of a dict of arrays. It keeps a pool of values and takes random steps (`steps_*.py`), each of
which draws from the pool and adds what it computes. The results are the values that no later step drew. Everything
follows from one seed. For shrinking, a program can leave out some of its steps, whose results then are constants of the
same type, and return some of its results alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from tests.property import (  # noqa: F401  (they register their steps)
    steps_by_hand,
    steps_contraction,
    steps_control,
    steps_elementwise,
    steps_index,
    steps_moves,
    steps_neighbours,
    steps_random,
    steps_reduction,
    steps_shape,
    steps_tags,
)
from tests.property.pool import STEPS, NothingFits, Pool, Rounding, Step, Value

SIZES = (2, 4, 8, 6, 12, 3, 1)
ATTEMPTS = 200
"""Steps tried before a program is content with fewer than it wanted."""


@dataclass(frozen=True)
class RandomProgram:
    """`count` random steps from one seed, on three float inputs, one in half precision and one of integers.

    without   numbers of steps whose results are replaced by constants
    only      the results to return, by position; None: all of them
    mesh      axes and sizes of the mesh that parts of it are partitioned over by hand; without any, no part is
    """

    seed: int
    count: int = 5
    without: frozenset[int] = frozenset()
    only: tuple[int, ...] | None = None
    mesh: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """What its argument, its outputs and its tags are called within a module."""
        return f"p{self.seed}"

    def inputs(self) -> dict[str, np.ndarray]:
        """Whole numbers, but for one array in some programs."""
        rng = np.random.default_rng([self.seed, 1])
        shapes = [tuple(map(int, rng.choice(SIZES, rng.integers(1, 4)))) for _ in range(3)]
        arrays = {f"x{i}": rng.integers(-8, 9, s).astype("f4") for i, s in enumerate(shapes)}
        if rng.integers(2):
            arrays["x2"] = rng.normal(size=shapes[2]).astype("f4")
        half = jnp.bfloat16 if rng.integers(2) else jnp.float16
        arrays["h"] = rng.integers(-3, 4, shapes[0]).astype(half)
        return arrays | {"n": rng.integers(0, 6, (4, 2)).astype("i4")}

    def roundings(self) -> list[Rounding]:
        """How each result is to be compared."""
        found: list[Rounding] = []

        def run(inputs):
            found[:] = [v.rounding for v in self._results(inputs)]
            return 0

        jax.eval_shape(run, self.inputs())
        return found

    def steps(self) -> list[str]:
        """The names of the steps taken, in order; those left out in brackets."""
        names: list[str] = []
        jax.eval_shape(lambda inputs: len(self._values(inputs, names)), self.inputs())
        return [f"({name})" if i in self.without else name for i, name in enumerate(names)]

    def __call__(self, inputs: Mapping[str, jax.Array]) -> list[jax.Array]:
        return [v.array for v in self._results(inputs)]

    def _results(self, inputs: Mapping[str, jax.Array]) -> list[Value]:
        results = [v for v in self._values(inputs, []) if not v.used]
        return results if self.only is None else [results[i] for i in self.only]

    def _values(self, inputs: Mapping[str, jax.Array], names: list[str]) -> list[Value]:
        """What the steps made, in order; their names are added to `names`."""
        pool = self._pool(inputs)
        kinds = [kind for kind in STEPS.values() for _ in range(kind.weight)]
        made: list[Value] = []
        for attempt in range(ATTEMPTS):
            pool.rng = np.random.default_rng([self.seed, 2, attempt])
            value = self._step(pool, kinds[pool.rng.integers(len(kinds))], len(made), names)
            if value is None:
                continue
            pool.keep(value)
            made.append(value)
            if len(made) == self.count:
                break
        return made

    def _pool(self, inputs: Mapping[str, jax.Array]) -> Pool:
        rough = {"x2"} if any(np.any(x % 1) for x in [self.inputs()["x2"]]) else set()
        values = [
            Value(jnp.asarray(inputs[k]), Rounding.ROUGH if k in rough else Rounding.EXACT) for k in sorted(inputs)
        ]
        return Pool(np.random.default_rng(0), self.name, values, mesh=dict(self.mesh))

    def _step(self, pool: Pool, kind: Step, number: int, names: list[str]) -> Value | None:
        before = pool.tags
        try:
            value = _left_out(pool, kind) if number in self.without else pool.run(kind)
        except NothingFits:
            pool.tags = before
            return None
        if value.array.size > 8192:
            return None
        names.append(kind.name)
        return value


def _left_out(pool: Pool, kind: Step) -> Value:
    """A constant of the type that the step's result would have."""
    found: list[Value] = []

    def run():
        found.append(pool.run(kind))
        return found[0].array

    shape = jax.eval_shape(run)
    array = jnp.asarray(np.arange(shape.size).reshape(shape.shape) % 7, shape.dtype)
    return replace(found[0], array=array)
