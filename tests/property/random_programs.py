"""Random programs over all op families, and random actions on them.

A program is a function of a dict of arrays. It keeps a pool of values and applies random steps, each of which takes a
value or two from the pool and adds what it computes. Everything follows from one seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autopart.api.tactic import TacticContext, TacticResult
from autopart.core.actions import Action, Atomic, Propagate, Tile
from autopart.core.partitioning import Partitioning

SIZES = (2, 4, 8, 6, 12, 3, 1)
MESHES = (
    {"a": 2},
    {"a": 4},
    {"a": 2, "b": 2},
    {"a": 2, "b": 4},
    {"a": 2, "b": 2, "c": 2},
    {"a": 8},
    {"a": 3, "b": 2},
    {"a": 6},
)

Rng = np.random.Generator
STEPS: list[Callable] = []


def step(fun: Callable) -> Callable:
    """Registers a step: (rng, pool) -> a new value, or None where the pool holds nothing it could work on."""
    STEPS.append(fun)
    return fun


def pick(rng: Rng, pool: list, rank: int = 0, dtype: str = "f") -> jax.Array | None:
    found = [v for v in pool if v.ndim >= rank and v.dtype.kind == dtype and v.size <= 4096]
    return found[rng.integers(len(found))] if found else None


def axis_of(rng: Rng, x: jax.Array) -> int:
    return int(rng.integers(x.ndim))


@step
def unary(rng, pool):
    x = pick(rng, pool)
    funs = [jnp.tanh, jnp.sin, jnp.abs, jnp.negative, jax.nn.sigmoid, jnp.square, lax.erf, jnp.sign, jnp.floor]
    return funs[rng.integers(len(funs))](x)


@step
def binary(rng, pool):
    x = pick(rng, pool)
    same = [v for v in pool if v.shape == x.shape and v.dtype == x.dtype]
    y = same[rng.integers(len(same))]
    funs = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum]
    return funs[rng.integers(len(funs))](x, y)


@step
def compare_and_select(rng, pool):
    x = pick(rng, pool)
    same = [v for v in pool if v.shape == x.shape and v.dtype == x.dtype]
    return jnp.where(x > same[rng.integers(len(same))], x, 0.5)


@step
def dot(rng, pool):
    x = pick(rng, pool, 2)
    if x is None:
        return None
    fits = [v for v in pool if v.ndim == 2 and v.dtype == x.dtype and v.shape[0] == x.shape[-1]]
    return x @ fits[rng.integers(len(fits))] if fits else jnp.einsum("...ab,...cb->...ac", x, x)


@step
def batched_dot(rng, pool):
    x = pick(rng, pool, 3)
    return None if x is None else jnp.einsum("b...ik,b...jk->b...ij", x, jnp.sin(x)) / x.shape[-1]


@step
def convolve(rng, pool):
    x = pick(rng, pool, 3)
    if x is None or x.ndim != 3:
        return None
    kernel = jnp.ones((x.shape[2] if rng.integers(2) else 1, 4, int(rng.integers(1, 3))), x.dtype) * 0.1
    groups = x.shape[2] // kernel.shape[0]
    kernel = jnp.tile(kernel, (1, groups, 1)) if groups > 1 else kernel
    numbers = ("NWC", "IOW", "NWC")
    return lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=numbers, feature_group_count=groups)


@step
def reduce(rng, pool):
    x = pick(rng, pool, 1)
    if x is None:
        return None
    funs = [jnp.sum, jnp.max, jnp.min, jnp.mean, jnp.argmax, jnp.prod]
    kept = bool(rng.integers(2))
    result = funs[rng.integers(len(funs))](x, axis=axis_of(rng, x), keepdims=kept)
    return result.astype(jnp.float32)


@step
def broadcast(rng, pool):
    x = pick(rng, pool)
    return None if x.size > 256 else jnp.broadcast_to(x, (int(SIZES[rng.integers(3)]), *x.shape)) * 1.5


@step
def broadcast_ones(rng, pool):
    found = [v for v in pool if 1 in v.shape and v.dtype.kind == "f" and v.size <= 256]
    if not found:
        return None
    x = found[rng.integers(len(found))]
    return jnp.broadcast_to(x, tuple(4 if n == 1 else n for n in x.shape))


@step
def transpose(rng, pool):
    x = pick(rng, pool, 2)
    return None if x is None else jnp.transpose(x, rng.permutation(x.ndim))


@step
def merge_dims(rng, pool):
    x = pick(rng, pool, 2)
    if x is None:
        return None
    at = int(rng.integers(x.ndim - 1))
    return x.reshape(*x.shape[:at], -1, *x.shape[at + 2 :])


@step
def split_dim(rng, pool):
    x = pick(rng, pool, 1)
    if x is None:
        return None
    at = axis_of(rng, x)
    for first in rng.permutation([2, 3, 4]):
        if x.shape[at] % first == 0:
            return x.reshape(*x.shape[:at], int(first), x.shape[at] // int(first), *x.shape[at + 1 :])
    return x[None]


@step
def slice_part(rng, pool):
    x = pick(rng, pool, 1)
    if x is None:
        return None
    at = axis_of(rng, x)
    return lax.slice_in_dim(x, 0, max(1, x.shape[at] // 2), axis=at)


@step
def concatenate(rng, pool):
    x = pick(rng, pool, 1)
    return None if x is None else jnp.concatenate([x, jnp.cos(x)], axis=axis_of(rng, x))


@step
def pad(rng, pool):
    x = pick(rng, pool, 1)
    if x is None:
        return None
    widths = [(0, 0)] * x.ndim
    widths[axis_of(rng, x)] = (1, 1)
    return jnp.pad(x, widths)


@step
def reverse(rng, pool):
    x = pick(rng, pool, 1)
    return None if x is None else jnp.flip(x, axis_of(rng, x))


@step
def take(rng, pool):
    x = pick(rng, pool, 1)
    if x is None:
        return None
    at = axis_of(rng, x)
    indices = jnp.asarray(rng.integers(0, x.shape[at], (4,)))
    return jnp.take(x, indices, axis=at, mode="clip" if rng.integers(2) else "fill", fill_value=0)


@step
def take_by_values(rng, pool):
    table, index = pick(rng, pool, 1), pick(rng, pool, 1, "i")
    return None if table is None or index is None or index.size > 16 else table[jnp.abs(index) % table.shape[0]]


@step
def scatter_add(rng, pool):
    x = pick(rng, pool, 1)
    if x is None:
        return None
    indices = jnp.asarray(rng.integers(0, x.shape[0], (4,)))
    updates = jnp.ones((4, *x.shape[1:]), x.dtype) * jnp.sum(x) * 0.01
    return x.at[indices].add(updates)


@step
def segment_sum(rng, pool):
    x = pick(rng, pool, 1)
    if x is None:
        return None
    return jax.ops.segment_sum(x, jnp.asarray(rng.integers(0, 4, x.shape[:1])), num_segments=4)


@step
def dynamic_slice(rng, pool):
    x, index = pick(rng, pool, 1), pick(rng, pool, 1, "i")
    if x is None or index is None:
        return None
    at = axis_of(rng, x)
    start = jnp.abs(jnp.sum(index)) % x.shape[at]
    return lax.dynamic_slice_in_dim(x, start, max(1, x.shape[at] // 2), axis=at)


@step
def dynamic_update_slice(rng, pool):
    x, index = pick(rng, pool, 1), pick(rng, pool, 1, "i")
    if x is None or index is None:
        return None
    at = axis_of(rng, x)
    part = lax.slice_in_dim(x, 0, max(1, x.shape[at] // 2), axis=at)
    return lax.dynamic_update_slice_in_dim(x, jnp.exp(-jnp.abs(part)), jnp.abs(jnp.sum(index)) % x.shape[at], axis=at)


@step
def sort(rng, pool):
    x = pick(rng, pool, 1)
    return None if x is None else jnp.sort(x, axis=axis_of(rng, x))


@step
def top_k(rng, pool):
    x = pick(rng, pool, 1)
    return None if x is None or x.shape[-1] < 2 else lax.top_k(x, 2)[0]


@step
def cumulative(rng, pool):
    x = pick(rng, pool, 1)
    return None if x is None else jnp.cumsum(x, axis=axis_of(rng, x))


@step
def pooling(rng, pool):
    x = pick(rng, pool, 2)
    if x is None or x.shape[-1] % 2:
        return None
    window = (1,) * (x.ndim - 1) + (2,)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")


@step
def pooling_gradient(rng, pool):
    x = pick(rng, pool, 2)
    if x is None or x.shape[-1] % 2:
        return None
    window = (1,) * (x.ndim - 1) + (2,)
    return jax.grad(lambda v: jnp.sum(jnp.square(lax.reduce_window(v, -jnp.inf, lax.max, window, window, "VALID"))))(x)


@step
def iota(rng, pool):
    x = pick(rng, pool, 1)
    return None if x is None else x + lax.broadcasted_iota(x.dtype, x.shape, axis_of(rng, x))


@step
def random_bits(rng, pool):
    x = pick(rng, pool)
    return x + jax.random.uniform(jax.random.key(int(rng.integers(100))), x.shape, x.dtype)


@step
def fourier(rng, pool):
    x = pick(rng, pool, 1)
    return None if x is None else jnp.real(jnp.fft.fft(x))


@step
def factorise(rng, pool):
    x = pick(rng, pool, 2)
    if x is None or x.shape[-1] > 8:
        return None
    gram = jnp.einsum("...ij,...kj->...ik", x, x) / x.shape[-1] + 4 * jnp.eye(x.shape[-2])
    lower = jnp.linalg.cholesky(gram)
    return jax.scipy.linalg.solve_triangular(lower, x, lower=True) if x.ndim == 2 and rng.integers(2) else lower


@step
def scan(rng, pool):
    x = pick(rng, pool, 2)
    if x is None:
        return None

    def body(carry, row):
        carry = 0.5 * carry + jnp.tanh(row)
        return carry, jnp.sum(carry) + row

    carry, rows = lax.scan(body, jnp.zeros(x.shape[1:], x.dtype), x)
    return rows if rng.integers(2) else carry


@step
def loop(rng, pool):
    x = pick(rng, pool, 2)
    if x is None:
        return None
    weight = jnp.sin(x)
    return lax.fori_loop(0, 3, lambda i, y: 0.5 * y + weight * i, x)


@step
def cond(rng, pool):
    x = pick(rng, pool, 1)
    return None if x is None else lax.cond(jnp.sum(x) > 0, lambda: jnp.cos(x), lambda: x * 2)


@step
def gradient(rng, pool):
    x = pick(rng, pool, 2)
    if x is None:
        return None
    return jax.grad(lambda v: jnp.mean(jax.nn.softmax(v @ jnp.swapaxes(v, -1, -2)) ** 2))(x)


@step
def low_precision(rng, pool):
    x = pick(rng, pool)
    return (jnp.round(x * 4) / 4).astype(jnp.bfloat16).astype(jnp.float32)


@step
def to_int(rng, pool):
    x = pick(rng, pool)
    return jnp.floor(jnp.clip(x, -8, 8)).astype(jnp.int32)


@step
def integers(rng, pool):
    x = pick(rng, pool, 0, "i")
    return None if x is None else [x + 3, x * x % 7, jnp.bitwise_and(x, 5)][rng.integers(3)]


@step
def to_float(rng, pool):
    x = pick(rng, pool, 0, "i")
    return None if x is None else x.astype(jnp.float32) * 0.25


@dataclass(frozen=True)
class RandomProgram:
    """`count` random steps from one seed, on three float inputs and one of integers; returns the last values."""

    seed: int
    count: int = 10

    def inputs(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([self.seed, 1])
        shapes = [tuple(rng.choice(SIZES, rng.integers(1, 4))) for _ in range(3)]
        floats = {f"x{i}": rng.normal(size=s).astype("f4") for i, s in enumerate(shapes)}
        return {**floats, "n": rng.integers(0, 6, (4, 2)).astype("i4")}

    def __call__(self, inputs: dict[str, jax.Array]) -> list[jax.Array]:
        rng = np.random.default_rng([self.seed, 2])
        pool = [inputs[k] for k in sorted(inputs)]
        made: list[jax.Array] = []
        for _ in range(200):
            value = STEPS[rng.integers(len(STEPS))](rng, pool)
            if value is None or value.size > 8192:
                continue
            if value.dtype.kind == "f":
                value = value / (1 + jnp.mean(jnp.abs(value))) if rng.integers(4) == 0 else jnp.clip(value, -50, 50)
            pool.append(value)
            made.append(value)
            if len(made) == self.count:
                break
        return made[-4:]


@dataclass(frozen=True)
class RandomActions:
    """A tactic of random legal actions on any values of the program, propagating now and then."""

    seed: int
    count: int = 8
    name: str = "random"

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        rng = np.random.default_rng([self.seed, 3])
        program, axes = partitioning.program, partitioning.mesh.axis_names
        taken: list[Action] = []
        for _ in range(self.count):
            value, axis = int(rng.integers(program.value_count)), str(rng.choice(axes))
            if rng.integers(2):
                value = program.arguments[rng.integers(len(program.arguments))]
            shape = program.type_of(value).shape
            legal = [d for d in range(len(shape)) if not partitioning.why_not_tile(value, d, axis)]
            if legal and rng.integers(6):
                action: Action = Tile(value, int(rng.choice(legal)), axis)
            elif partitioning.tiled_dim(value, axis) < 0:
                action = Atomic(value, axis)
            else:
                continue
            taken.append(action)
            partitioning.apply(action)
            if rng.integers(2):
                taken.append(Propagate(axis))
                partitioning.propagate([axis])
        partitioning.propagate()
        return TacticResult([*taken, *map(Propagate, axes)])
