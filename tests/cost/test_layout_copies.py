"""When is an update made on copies in another layout, when is an output, and what do they cost?

%g = all_reduce(dot ...)
%w' = %w - transpose %g      %w is read and written once more, and so is %w'

Sums go on through a transpose while they are pending, so here a tag says that they are done before it.

%s = %w[part] - ...
%w' = all_gather %s          %w is copied at the start, %w' at the end; only %w' where the gather leaves another order
"""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.costmodel.hardware.devices import AroundMatmul
from tests.cost.programs import between, f32, plain_device, simulated

ROWS, N = 16, 1024
SQUARE = 4.0 * N * N
TILED = [
    ap.ManualPartition({"total": ap.REPLICATED}, axis="x", name="where the sum is reduced"),
    ap.ManualPartition({"x": 0, "y": 0}, axis="x"),
]


def run(function, n=N, copies=True, **options):
    name = plain_device(f"copies_{copies}", around_matmul=AroundMatmul(copies_updates=copies))
    args = (f32(n, n), f32(ROWS, n), f32(ROWS, n))
    return simulated(function, *args, device=name, ways=2, schedule=TILED, donate=0, **options)


def total(x, y):
    return ap.tag("total", jnp.einsum("bi,bj->ij", x, y))


def transposed_update(w, x, y):
    return w - total(x, y).T


def copied_bytes(function, **how):
    """Bytes through HBM that copies add."""
    return run(function, **how).hbm_bytes - run(function, layout_copies=False, **how).hbm_bytes


def test_an_update_from_a_transposed_sum_is_copied_to_and_fro():
    """Argument and result are read and written once more."""
    assert copied_bytes(transposed_update) == 2 * (SQUARE + SQUARE)


def test_the_argument_and_its_copy_live_beside_the_sum():
    assert between(run(transposed_update)) == 2 * SQUARE
    assert between(run(transposed_update, layout_copies=False)) == SQUARE


def test_an_update_that_follows_such_an_update_is_copied_too():
    def twice(w, x, y):
        first = w - total(x, y).T
        return first, first * w

    assert copied_bytes(twice) == 2 * copied_bytes(transposed_update)


def test_an_update_from_a_sum_as_it_is_needs_no_copies():
    assert copied_bytes(lambda w, x, y: w - total(x, y)) == 0


def test_an_update_from_a_transposed_matmul_without_a_collective_needs_no_copies():
    assert copied_bytes(lambda w, x, y: w - ap.tag("total", w @ w).T) == 0


def test_what_reads_no_argument_in_step_has_nothing_to_copy():
    assert copied_bytes(lambda w, x, y: jnp.sort(jnp.exp(total(x, y).T))) == 0


@pytest.mark.parametrize(("n", "is_copied"), [(384, False), (512, True)])
def test_below_a_mebibyte_copies_are_not_counted(n, is_copied):
    assert (copied_bytes(transposed_update, n=n) > 0) == is_copied


def test_devices_whose_compiler_makes_no_copies_have_none():
    assert copied_bytes(transposed_update, copies=False) == 0


def replaced(update, dim, ways, shape=(N, N), **options):
    """A run in which an argument that is held whole is replaced by `update`, whose other operand is tiled."""
    name = plain_device("tiled", around_matmul=AroundMatmul(copies_updates=True), layout_tile=(8, 128))
    schedule = [ap.ManualPartition({"w": ap.REPLICATED, "s": dim}, axis="x")]
    args = (f32(*shape), f32(*shape))
    return simulated(update, *args, device=name, ways=ways, schedule=schedule, donate=0, **options)


def added_bytes(update, **how):
    """Bytes through HBM that copies of outputs and their arguments add."""
    return replaced(update, **how).hbm_bytes - replaced(update, layout_copies=False, **how).hbm_bytes


def updated(w, s):
    return w - s


@pytest.mark.parametrize(
    ("dim", "ways", "copies"),
    [(0, 2, 2), (1, 2, 2), (1, 8, 2), (1, 16, 1)],
    ids=["rows", "columns", "columns of a tile", "columns of half a tile"],
)
def test_a_gathered_output_is_copied_and_its_argument_too_unless_shards_are_no_whole_tiles(dim, ways, copies):
    assert added_bytes(updated, dim=dim, ways=ways) == copies * 2 * SQUARE


def test_the_copy_of_the_argument_lives_until_it_is_read():
    kept = between(replaced(updated, 0, 2, layout_copies=False))
    assert between(replaced(updated, 0, 2)) == kept + SQUARE


def test_where_columns_waste_less_the_other_dim_is_the_minor_one():
    """f32[4,1024,192]: of 8 shards of 128, the columns are of 1024."""
    whole = 4.0 * 4 * 1024 * 192
    assert added_bytes(updated, dim=1, ways=8, shape=(4, 1024, 192)) == 2 * 2 * whole
    assert added_bytes(updated, dim=1, ways=16, shape=(4, 1024, 192)) == 2 * whole


def test_a_summed_output_is_written_into_its_argument():
    name = plain_device("copies_True", around_matmul=AroundMatmul(copies_updates=True))
    args = (f32(N, N), f32(ROWS, N), f32(ROWS, N))
    runs = [
        simulated(lambda w, x, y: total(x, y), *args, device=name, ways=2, schedule=TILED, donate=0, layout_copies=c)
        for c in (True, False)
    ]
    assert runs[0].hbm_bytes == runs[1].hbm_bytes


@pytest.mark.parametrize(("room", "copies"), [(2.5, 2), (3.0, 0)])
def test_copies_of_what_passes_the_chip_take_no_time_but_the_room_of_the_argument(room, copies):
    name = plain_device(
        f"passing_{room}", around_matmul=AroundMatmul(copies_updates=True), on_chip_bytes=room * SQUARE,
        assigns_on_chip=True,
    )  # fmt: skip
    runs = [
        simulated(updated, f32(N, N), f32(N, N), device=name, ways=2, donate=0, layout_copies=layout_copies, schedule=[
            ap.ManualPartition({"w": ap.REPLICATED, "s": 0}, axis="x", name="update of a part"),
        ])
        for layout_copies in (True, False)
    ]  # fmt: skip
    assert runs[0].hbm_bytes - runs[1].hbm_bytes == copies * 2 * SQUARE
    assert runs[0].peak_bytes > runs[1].peak_bytes
