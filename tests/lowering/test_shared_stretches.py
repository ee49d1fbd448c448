"""Do stencils exchange one halo for each array and direction, however many neighbours they read?"""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESHES = {
    "rows": ({"a": 8}, [ap.ManualPartition({"x": 0}, "a")]),
    "two devices": ({"a": 2}, [ap.ManualPartition({"x": 0}, "a")]),
    "rows and columns": ({"a": 4, "b": 2}, [ap.ManualPartition({"x": 0}, "a"), ap.ManualPartition({"x": 1}, "b")]),
}
SMALL = np.random.default_rng(0).normal(size=(2048, 1024)).astype(np.float32)
REAL = jax.ShapeDtypeStruct((2**14, 2**13), jnp.float32)


def stencil(mode: str, reach: int, dims: int):
    def fun(x: jax.Array) -> jax.Array:
        wide, total = jnp.pad(x, [(reach, reach)] * dims + [(0, 0)] * (2 - dims), mode=mode), -2 * x
        for dim in range(dims):
            for by in range(-reach, reach + 1):
                starts = [reach + by * (d == dim) if d < dims else 0 for d in range(2)]
                total += wide[starts[0] : starts[0] + x.shape[0], starts[1] : starts[1] + x.shape[1]] / (1 + abs(by))
        return jnp.tanh(total)

    return fun


@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
@pytest.mark.parametrize(("mode", "each"), [("reflect", 2), ("constant", 2), ("wrap", 4)])
@pytest.mark.parametrize("placed", MESHES)
def test_a_wide_stencil_takes_as_many_permutes_as_a_narrow_one(placed: str, mode: str, each: int, gradient: bool):
    mesh, schedule = MESHES[placed]
    for reach in (1, 3):
        once = stencil(mode, reach, len(mesh))
        fun = jax.grad(lambda x, once=once: jnp.sum(once(x) ** 2)) if gradient else once
        step = ap.jit(lambda x, fun=fun: fun(x), ap.Mesh(mesh), schedule)
        np.testing.assert_allclose(step(SMALL), jax.jit(fun)(SMALL), rtol=1e-4, atol=1e-4)
        low = ap.jit(lambda x, fun=fun: fun(x), ap.Mesh(mesh, device="h100"), schedule).lower(REAL)
        most = each * len(mesh) * (1 + gradient)
        counted = low.estimate.collectives["all_permute"].count
        assert counted <= most
        assert not low.estimate.collectives["all_gather"].count
        assert len(re.findall(r"stablehlo.collective_permute", low.as_text("stablehlo"))) == counted


def test_corners_come_with_rows_and_columns():
    def box(x: jax.Array) -> jax.Array:
        p = jnp.pad(x, 1)
        return sum((i + 2 * j + 1) * p[i : i + x.shape[0], j : j + x.shape[1]] for i in range(3) for j in range(3))

    mesh, schedule = MESHES["rows and columns"]
    for fun, most in ((box, 3), (jax.grad(lambda x: jnp.sum(box(x) ** 2)), 6)):
        step = ap.jit(lambda x, fun=fun: fun(x), ap.Mesh(mesh), schedule)
        np.testing.assert_allclose(step(SMALL), jax.jit(fun)(SMALL), rtol=1e-4, atol=1e-4)
        low = ap.jit(lambda x, fun=fun: fun(x), ap.Mesh(mesh, device="h100"), schedule).lower(REAL)
        assert low.estimate.collectives["all_permute"].count == most
