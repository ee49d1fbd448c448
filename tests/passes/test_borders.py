"""Do stencils with borders of any kind, and their gradients, exchange borders alone, and keep the numbers?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = {"a": 4, "b": 2}
U = np.random.default_rng(0).normal(size=(32, 16)).astype(np.float32)
REAL = jax.ShapeDtypeStruct((4096, 4096), jnp.float32)
PLACED = {
    "rows": [ap.ManualPartition({"u": 0}, axis=("a", "b"))],
    "rows and columns": [ap.ManualPartition({"u": 0}, axis="a"), ap.ManualPartition({"u": 1}, axis="b")],
}


def padded(mode: str, k: int = 1) -> Callable[[jax.Array], jax.Array]:
    def stencil(u: jax.Array) -> jax.Array:
        p, n, m = jnp.pad(u, k, mode=mode), *u.shape
        return sum((i + 2 * j + 1) * p[i : i + n, j : j + m] for i in (0, k, 2 * k) for j in (0, k, 2 * k))

    return stencil


def written(u: jax.Array) -> jax.Array:
    p = jnp.zeros((u.shape[0] + 2, u.shape[1])).at[1:-1].set(u).at[0].set(u[-1]).at[-1].set(u[0])
    return p[2:] - 2 * p[1:-1] + p[:-2]


def joined(u: jax.Array) -> jax.Array:
    p = jnp.tanh(jnp.concatenate([2 * u[:1] - u[1:2], u, 2 * u[-1:] - u[-2:-1]]))
    return jnp.diff(jnp.diff(p, axis=0), axis=0)


def stepped(u: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda u, _: (u + 0.1 * padded("wrap")(u), None), u, None, length=2)[0]


STENCILS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "periodic": padded("wrap"),
    "reflecting, two places": padded("reflect", 2),
    "the last again": padded("edge"),
    "symmetric": padded("symmetric"),
    "zeros": padded("constant"),
    "ghost cells that are written": written,
    "ghost cells that are computed": joined,
    "in a loop": stepped,
}
QUICK = ("periodic", "reflecting, two places", "in a loop")


def squared(fun: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    return lambda u: jax.grad(lambda u: jnp.sum(fun(u) ** 2))(u)


@pytest.mark.parametrize("placed", PLACED)
@pytest.mark.parametrize("turn", [lambda fun: fun, squared], ids=["forward", "gradient"])
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in STENCILS])
def test_borders_alone_move(name: str, turn: Callable[..., Callable[[jax.Array], jax.Array]], placed: str):
    fun = turn(lambda u: STENCILS[name](u))
    got = ap.jit(lambda u: fun(u), ap.Mesh(MESH), PLACED[placed])(U)
    np.testing.assert_allclose(got, jax.jit(fun)(U), rtol=1e-5, atol=1e-4)
    moved = ap.jit(lambda u: fun(u), ap.Mesh(MESH, device="h100"), PLACED[placed]).lower(REAL).estimate.collectives
    assert sum(c.bytes for c in moved.values()) < 0.02 * 4096 * 4096 * 4
    assert not moved["all_gather"].count


def test_a_slice_of_an_even_array_is_not_taken_apart():
    def fun(u: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.concatenate([u * 2, u + 1]))[: u.shape[0]]

    program = ap.jit(fun, ap.Mesh(MESH), []).lower(U).traced.program
    assert sum(program.spec(op).kind == "tanh" for op in range(program.op_count)) == 1
    assert any(program.spec(op).kind == "slice" for op in range(program.op_count))


def test_halves_of_a_head_are_no_borders_however_short():
    """A decoder of few features is the program that it is with many: no part of a plan says how many there are."""
    from experiments.models import t32

    def ops(**sizes: int) -> list[str]:
        config = t32.Config(layers=1, **sizes)
        program = ap.jit(t32.step(config), ap.Mesh({"a": 8})).lower(*t32.abstract_args(config)).traced.program
        return [program.spec(op).kind for op in range(program.op_count)]

    small = ops(model_dim=64, heads=8, vocabulary=512, batch=16, sequence=32)
    assert small == ops(model_dim=4096, heads=32, vocabulary=32_000, batch=32, sequence=1024)


@pytest.mark.parametrize(("size", "joined"), [(96, 24), (768, 16), (20, 1), (144, 24)])
def test_joined_features_are_no_border(size: int, joined: int):
    """Layers of a dense net, summary tokens, one item more: work on both is not done twice."""

    def fun(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        both = jnp.tanh(jnp.concatenate([x, y], axis=1))
        return both[:, :size], both[:, size:]

    shapes = (jax.ShapeDtypeStruct((64, n), jnp.float32) for n in (size, joined))
    program = ap.jit(fun, ap.Mesh(MESH), []).lower(*shapes).traced.program
    assert sum(program.spec(op).kind == "tanh" for op in range(program.op_count)) == 1


def test_a_pad_that_cuts_off_more_dims_than_the_border_keeps_its_shape():
    def fun(u: jax.Array) -> jax.Array:
        wide = jnp.pad(u, 1)[:, :, None] + jnp.pad(jnp.sin(u), 1)[:, :, None]
        joined = jnp.concatenate([wide, wide[:, :, :1] * 2], axis=2) + 1
        return jax.lax.pad(joined, 0.0, ((-1, -1, 0), (-1, -1, 0), (0, 0, 0)))

    step = ap.jit(fun, ap.Mesh(MESH), PLACED["rows"])
    np.testing.assert_allclose(step(U), fun(U), rtol=1e-6)


def reflected(x: jax.Array, w: jax.Array) -> jax.Array:
    x = jnp.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)), mode="reflect")
    return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


IMAGES = tuple(jax.ShapeDtypeStruct(shape, "float32") for shape in ((16, 4096, 64, 8), (3, 1, 8, 8)))


def convolutions(lowered: ap.Lowered) -> int:
    program = lowered.program.program
    return sum(program.spec(op).kind == "convolution" for op in range(program.op_count))


@pytest.mark.parametrize("device", ["tpu_v5e", None])
@pytest.mark.parametrize(("dim", "count"), [(0, 1), (1, 3)])
def test_convolutions_over_borders_are_taken_apart_where_space_is_in_tiles(dim: int, count: int, device: str | None):
    mesh = ap.Mesh({"x": 8}, device=device) if device else ap.Mesh({"x": 8})
    lowered = ap.jit(reflected, mesh, [ap.ManualPartition({"x": dim}, "x")]).lower(*IMAGES)
    assert convolutions(lowered) == count
    again = ap.jit(reflected, mesh, lowered.plan).lower(*IMAGES)
    assert (convolutions(again), again.plan.hash) == (count, lowered.plan.hash)


def test_a_search_takes_the_faster_of_whole_and_bordered_convolutions():
    def step(schedule: list[ap.Tactic]) -> ap.Lowered:
        return ap.jit(reflected, ap.Mesh({"x": 8}, device="tpu_v5e"), schedule).lower(*IMAGES)

    by_hand = min((step([ap.ManualPartition({"x": dim}, "x")]) for dim in (0, 1)), key=lambda one: one.estimate.step_s)
    found = step([ap.AutomaticPartition("x", budget=ap.Budget(40), cache=False)])
    assert found.estimate.step_s <= by_hand.estimate.step_s


@pytest.mark.parametrize("where", ["x", "g"])
@pytest.mark.parametrize("place", [0, 3, -1])
def test_gradients_of_kernels_are_infinite_where_they_were(where: str, place: int):
    def gradient(x: jax.Array, g: jax.Array) -> jax.Array:
        return jax.vjp(lambda w: reflected(x, w), jnp.ones((5, 1, 2, 2)))[1](g)[0]

    def reflected(x: jax.Array, w: jax.Array) -> jax.Array:
        x = jnp.pad(x, ((0, 0), (2, 2), (0, 0), (0, 0)), mode="wrap")
        return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    args = {n: np.random.default_rng(0).uniform(1, 2, (1, 256, 1, 2)).astype(np.float32) for n in "xg"}
    args[where][0, place, 0, 0] = np.inf
    step = ap.jit(gradient, ap.Mesh({"a": 4}), [ap.ManualPartition({"x": 1}, "a")])
    assert convolutions(step.lower(**args)) > 1
    np.testing.assert_allclose(step(**args), gradient(**args), rtol=1e-5)
