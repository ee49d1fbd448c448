"""Which factors of a reshape does an axis tile, and what moves where it cannot?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.spmd.verify_local import verify

MESH = ap.Mesh({"a": 4, "b": 2})


def run(fun, shape, tiles, mesh=MESH):
    """Collectives by kind with x tiled so, and the lowered program; the numbers are checked on the way."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    schedule = [ap.ManualPartition({"x": dim}, axis=axis) for axis, dim in tiles]
    low = ap.jit(fun, mesh, schedule).lower(x)
    verify(low.program)
    np.testing.assert_allclose(jax.jit(fun)(x), low.compile()(x), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(fun)(x), low.interpret(x), rtol=1e-5)
    return dict(+low.program.collectives()), low


def split(x):
    return jnp.tanh(x.reshape(4, 4, 3)) * 2


def merged(x):
    return jnp.tanh(x.reshape(-1, 3)) * 2


def test_two_axes_tile_both_factors_of_a_split_dim():
    counts, low = run(split, (16, 3), [("a", 0), ("b", 0)])
    assert not counts
    assert low.out_shardings.spec[:2] == ("a", "b")


def test_two_axes_on_the_factors_of_merged_dims_tile_the_result():
    counts, low = run(merged, (4, 8, 3), [("a", 0), ("b", 1)])
    assert not counts
    assert low.out_shardings.spec[0] == ("a", "b")


def test_an_axis_follows_through_a_merge_and_the_split_that_takes_it_back():
    counts, low = run(lambda x: split(merged(x)), (4, 4, 3), [("a", 0), ("b", 1)])
    assert not counts
    assert low.out_shardings.spec[:2] == ("a", "b")


def test_a_minor_factor_alone_is_exchanged_for_the_major_one():
    counts, low = run(merged, (4, 8, 3), [("a", 1)])
    assert counts == {"all_to_all": 1}
    assert low.out_shardings.spec[0] == "a"


def test_a_minor_factor_beside_a_major_one_is_exchanged_too():
    counts, low = run(merged, (8, 8, 3), [("a", 0), ("b", 1)])
    assert counts == {"all_to_all": 1}
    assert low.out_shardings.spec[0] == ("a", "b")


def test_a_minor_factor_is_gathered_and_the_merged_rows_tiled_if_the_major_one_has_no_room():
    counts, low = run(merged, (2, 8, 3), [("a", 1)])
    assert counts == {"all_gather": 1}
    assert low.out_shardings.spec[0] == "a"


def test_an_axis_larger_than_the_first_factor_is_refused_and_reported():
    counts, low = run(split, (16, 3), [("c", 0)], ap.Mesh({"c": 8}))
    assert counts == {"all_gather": 1}
    assert "4 is not a multiple of 8: axes of 4 and 2 instead of c would fit" in str(low.metadata)
    counts, _ = run(split, (16, 3), [("c0", 0), ("c1", 0)], ap.Mesh({"c0": 4, "c1": 2}))
    assert not counts


@pytest.mark.parametrize("tiles", [[("a", 0), ("b", 0)], [("b", 0), ("a", 0)], [("b", 1), ("a", 0)]])
@pytest.mark.parametrize(
    ("shape", "target"), [((8, 6), (2, 4, 6)), ((16, 8), (4, 32)), ((8, 8), (2, 2, 2, 8)), ((8, 8), (64,))]
)
def test_whatever_is_tiled_the_numbers_are_those_of_the_whole(tiles, shape, target):
    run(lambda x: jnp.tanh(x.reshape(target)), shape, tiles)


def factors(rng, count):
    """A random way to write 2 ** count as dims."""
    cuts = np.sort(rng.choice(np.arange(1, count), rng.integers(0, 4), replace=False))
    return tuple(2 ** int(n) for n in np.diff([0, *cuts, count]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_reshapes_of_random_tiles_keep_the_numbers(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(4, 8))
    shape, there, back = (factors(rng, count) for _ in range(3))
    mesh = ap.Mesh([{"a": 4, "b": 2}, {"a": 2, "b": 2, "c": 2}, {"a": 8}][seed % 3])
    tiles, ways = [], dict.fromkeys(range(len(shape)), 1)
    for axis in rng.permutation(list(mesh.shape)).tolist():
        room = [d for d in ways if shape[d] % (ways[d] * mesh.shape[axis]) == 0]
        if room:
            dim = int(rng.choice(room))
            ways[dim] *= mesh.shape[axis]
            tiles.append((axis, dim))
    run(lambda x: jnp.tanh(jnp.tanh(x.reshape(there)).reshape(back)), shape, tiles, mesh)
