"""Do estimate, text and emitted program agree on the form of each collective, the one for the device of the mesh?"""

from __future__ import annotations

import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.costmodel.hardware.links import mesh_links
from autopart.spmd.verify_local import verify

AXES = {"batch": 4, "model": 2}
TILES = [
    ap.ManualPartition({"x": 0}, axis="batch"),
    ap.ManualPartition({"x": 1}, axis="model"),
]
STABLEHLO = {"all_gather": "all_gather", "all_to_all": "all_to_all", "reduce_scatter": "reduce_scatter"}


def whole(x):
    """An op that needs both dims whole, of an argument that is stored in tiles."""
    return jax.lax.linalg.lu(x)[0]


def lowered(device, shape=(1024, 4096), fun=whole, tiles=TILES):
    mesh = ap.Mesh(AXES, device=device)
    return ap.jit(fun, mesh, tiles).lower(jax.ShapeDtypeStruct(shape, jnp.float32))


def counted(low):
    """Collectives by kind as the program, its two texts and its estimate have them."""
    stable, hlo = low.as_text("stablehlo"), low.as_text("hlo")
    return (
        dict(+low.program.collectives()),
        {k: n for k, name in STABLEHLO.items() if (n := stable.count(f'"stablehlo.{name}"'))},
        dict(Counter(re.findall(r"= (all_gather|all_to_all|reduce_scatter) ", hlo))),
        {k: t.count for k, t in low.estimate.collectives.items() if t.count},
        dict(+Counter(low.metadata.tactics[-1].collectives)),
    )


def test_on_tpu_two_dims_are_gathered_one_after_the_other_minor_dim_first():
    low = lowered("tpu_v5e")
    verify(low.program)
    assert all(found == {"all_gather": 2} for found in counted(low))
    dims = re.findall(r"all_gather_dim = (\d)", low.as_text("stablehlo"))
    assert dims == ["1", "0"]
    assert "transpose" not in low.as_text("stablehlo")


def test_without_a_device_two_dims_are_gathered_by_one_collective():
    low = ap.jit(whole, ap.Mesh(AXES), TILES).lower(jax.ShapeDtypeStruct((1024, 4096), jnp.float32))
    assert low.program.collectives()["all_gather"] == 1
    assert low.as_text("stablehlo").count('"stablehlo.all_gather"') == 1


def test_a_reduction_into_parts_of_a_dim_that_no_layout_tile_cuts_stays_scattered():
    r = np.random.default_rng(0)
    x, w = r.normal(size=(8, 16, 64)).astype("f4"), r.normal(size=(64, 32)).astype("f4")
    tactics = [ap.ManualPartition(tiles, axis="batch") for tiles in ({"x": 2, "w": 0}, {"outputs": 0})]
    low = ap.jit(lambda x, w: x @ w, ap.Mesh(AXES, device="tpu_v3"), tactics).lower(x, w)
    assert all(found == {"reduce_scatter": 1} for found in counted(low))


def test_the_form_is_the_same_every_time():
    texts = {lowered("tpu_v5e").as_text("stablehlo") for _ in range(2)}
    assert len(texts) == 1


@pytest.mark.parametrize("device", ["tpu_v3", "tpu_v5e", "h100"])
@pytest.mark.parametrize("shape", [(8, 16), (64, 40), (1024, 4096), (128, 96)])
def test_every_view_of_a_program_has_the_same_collectives(device, shape):
    program, *others = counted(lowered(device, shape))
    assert all(found == program for found in others)


@pytest.mark.parametrize("shape", [(8, 16), (64, 40), (128, 96)])
def test_the_program_computes_the_same_in_whatever_form(shape):
    x = np.random.default_rng(0).normal(size=shape).astype("f4")
    found = ap.jit(whole, ap.Mesh(AXES, device="tpu_v5e"), TILES)(x)
    np.testing.assert_allclose(found, jax.jit(whole)(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("device", "columns", "kind"),
    [
        ("tpu_v3", 32, "reduce_scatter"),
        ("tpu_v3", 20, "all_reduce"),
        ("tpu_v5e", 20, "all_reduce"),
        ("tpu_v5e", 16384, "reduce_scatter"),
        ("tpu_v5p", 20, "reduce_scatter"),
    ],
)
def test_reductions_into_parts_of_layout_tiles_on_v3_and_small_ones_on_v5e_are_sums_and_slices(device, columns, kind):
    r = np.random.default_rng(0)
    x, w = (r.normal(size=shape).astype("f4") for shape in ((64, 64), (64, columns)))
    tactics = [ap.ManualPartition(tiles, axis="batch") for tiles in ({"x": 1, "w": 0}, {"outputs": 1})]
    step = ap.jit(lambda x, w: x @ w, ap.Mesh(AXES, device=device), tactics)
    low = step.lower(x, w)
    assert +low.program.collectives() == {kind: 1}
    stable = low.as_text("stablehlo")
    assert [stable.count(f'"stablehlo.{k}"') for k in ("reduce_scatter", "all_reduce")] == [
        kind == "reduce_scatter", kind == "all_reduce",
    ]  # fmt: skip
    np.testing.assert_allclose(step(x, w), x @ w, rtol=1e-3, atol=1e-4)


def test_the_start_of_a_sums_slice_is_read_in_a_table_by_the_partition_number_as_it_is():
    """The TPU compiler makes a reduce_scatter of an all_reduce and a slice only if so."""
    tactics = [ap.ManualPartition(tiles, axis="batch") for tiles in ({"x": 1, "w": 0}, {"outputs": 1})]
    x, w = np.ones((64, 64), "f4"), np.ones((64, 32), "f4")
    stable = ap.jit(lambda x, w: x @ w, ap.Mesh(AXES, device="tpu_v5e"), tactics).lower(x, w).as_text("stablehlo")
    [start] = re.findall(r"dynamic_slice %\w+, %\w+, (%\w+), sizes = \[64, ", stable)
    [number] = re.findall(rf"{start} = stablehlo.multiply (%\w+), %\w+", stable)
    [table] = re.findall(rf"{number} = stablehlo.reshape (%\w+)", stable)
    [read] = re.findall(rf"{table} = stablehlo.dynamic_slice %\w+, (%\w+), sizes = \[1\]", stable)
    assert re.search(rf"{read} = stablehlo.partition_id : tensor<ui32>", stable)


def test_copies_are_compute_of_the_estimate_and_not_link_seconds():
    """An exchange between two dims that are not the major one copies before and after."""

    def turned(x):
        return jnp.sort(jnp.sort(x, axis=2), axis=1)

    tiles = [ap.ManualPartition({"x": 1, "outputs": 2}, axis="batch")]
    low = lowered("tpu_v5e", (8, 1024, 4096), turned, tiles)
    run = low.estimate.simulation
    moved = [c for part in run.plans for c in part if c.steps]
    assert [s.kind for c in moved for s in c.steps] == ["all_to_all"]
    local = 8 * 1024 * 4096 * 4 / 4
    assert moved[0].copied_bytes >= 4 * local
    device = mesh_links(low.mesh).device
    copy_s = moved[0].copied_bytes / (device.hbm_bytes_per_s * device.hbm_efficiency)
    assert moved[0].copy_s == pytest.approx(copy_s + 2 * device.launch_s, rel=1e-6)
    assert low.estimate.collective_s == pytest.approx(moved[0].seconds)
    assert low.estimate.compute_s > moved[0].copy_s
    assert low.estimate.serial_s == pytest.approx(low.estimate.compute_s + low.estimate.collective_s)
    assert moved[0].extra_bytes >= local
