"""Are collective times the closed forms, in seconds, and monotone; and how far are they from measured ones?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autopart.base.errors import MeshError, UnknownNameError
from autopart.core.mesh import Mesh
from autopart.costmodel import (
    Device,
    Network,
    RedistributionSeconds,
    Switch,
    Torus,
    collective_seconds,
    mesh_links,
    register_device,
)
from autopart.costmodel.hardware.fabric import COLLECTIVE_KINDS

MB = 1e6
W, A = 100e9, 1e-6


def entry(name, **wiring):
    return register_device(
        Device(name, peak_flop_per_s={"bf16": 1e12}, hbm_bytes=1e9, hbm_bytes_per_s=1e9, source="test", **wiring)
    )


SWITCH = entry("test_switch", fast=Switch(64, W, A), network=Network(W / 10, 10 * A)).name
TORUS = entry("test_torus", fast=Torus((64, 64), W, A, wrap_multiple=4)).name


def seconds(kind, bytes_in, axes, device, over=None, links=None):
    return collective_seconds(mesh_links(Mesh(axes, device, links)), kind, bytes_in, over or tuple(axes))


@pytest.mark.parametrize("n", [2, 4, 8, 64])
def test_switch_times_are_the_ring_and_direct_formulas(n):
    axes, m = {"x": n}, 64 * MB
    assert seconds("all_gather", m, axes, SWITCH) == pytest.approx((n - 1) * A + (n - 1) * m / W)
    assert seconds("reduce_scatter", m, axes, SWITCH) == pytest.approx((n - 1) * A + (n - 1) / n * m / W)
    assert seconds("all_reduce", m, axes, SWITCH) == pytest.approx(2 * (n - 1) * A + 2 * (n - 1) / n * m / W)
    assert seconds("all_to_all", m, axes, SWITCH) == pytest.approx(A + (n - 1) / n * m / W)
    assert seconds("all_permute", m, axes, SWITCH) == pytest.approx(A + m / W)


@pytest.mark.parametrize("n", [4, 8, 16])
def test_ring_times_use_both_directions(n):
    m, ring = 64 * MB, {"x": "ring"}
    assert seconds("all_gather", m, {"x": n}, TORUS, links=ring) == pytest.approx(n / 2 * A + (n - 1) * m / (2 * W))
    assert seconds("all_to_all", m, {"x": n}, TORUS, links=ring) == pytest.approx(n / 2 * A + m * n / (8 * W))
    assert seconds("all_permute", m, {"x": n}, TORUS, links=ring) == pytest.approx(n / 2 * A + m / W)


def test_all_to_all_on_a_ring_takes_a_quarter_of_the_gather():
    ring, big = {"x": "ring"}, 1e12
    gather = seconds("all_gather", big / 16, {"x": 16}, TORUS, links=ring)
    exchange = seconds("all_to_all", big / 16, {"x": 16}, TORUS, links=ring)
    assert exchange / gather == pytest.approx(1 / 4 * 16 / 15, rel=1e-3)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_line_times_use_one_direction(n):
    m, line = 64 * MB, {"x": "line"}
    assert seconds("all_gather", m, {"x": n}, TORUS, links=line) == pytest.approx((n - 1) * A + (n - 1) * m / W)
    assert seconds("all_to_all", m, {"x": n}, TORUS, links=line) == pytest.approx((n - 1) * A + m * n / (4 * W))


def test_two_torus_axes_gather_twice_as_fast_as_one_of_their_size():
    links = {"x": "ring", "y": "ring"}
    both = seconds("all_gather", MB, {"x": 8, "y": 8}, TORUS, links=links)
    one = seconds("all_gather", MB, {"z": 64}, TORUS, links={"z": "ring"})
    assert both == pytest.approx(8 * A + 63 * MB / (4 * W))
    assert one == pytest.approx(32 * A + 63 * MB / (2 * W))


def test_all_reduce_is_reduce_scatter_and_all_gather():
    for device in (TORUS, SWITCH):
        whole = seconds("all_reduce", 64 * MB, {"x": 16}, device)
        parts = seconds("reduce_scatter", 64 * MB, {"x": 16}, device) + seconds("all_gather", 4 * MB, {"x": 16}, device)
        assert whole == pytest.approx(parts)


def test_a_group_over_two_fabrics_reduces_within_before_it_reduces_across():
    axes = {"node": 4, "gpu": 64}
    within = seconds("reduce_scatter", 64 * MB, axes, SWITCH, "gpu") + seconds("all_gather", MB, axes, SWITCH, "gpu")
    across = seconds("all_reduce", MB, axes, SWITCH, "node")
    assert seconds("all_reduce", 64 * MB, axes, SWITCH) == pytest.approx(within + across)


def test_cores_of_a_chip_share_its_links():
    v3 = {"batch": 4, "model": 2}
    alone = seconds("all_gather", 64 * MB, v3, "tpu_v3", "batch")
    assert alone > 3 * 64 * MB / (2 * 70e9) * 0.99


@given(
    kind=st.sampled_from(COLLECTIVE_KINDS),
    small=st.floats(1, 1e9),
    factor=st.floats(1, 1e3),
    device=st.sampled_from(["tpu_v3", "tpu_v4", "tpu_v5e", "a100_40gb", "h100", "b200", "gb200", "cpu_host"]),
    n=st.sampled_from([2, 4, 8, 16]),
)
def test_more_bytes_never_take_less_time(kind, small, factor, device, n):
    first, second = seconds(kind, small, {"x": n}, device), seconds(kind, small * factor, {"x": n}, device)
    assert 0 <= first <= second * (1 + 1e-9)
    assert (first > 0) == (kind != "all_slice")


@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
@pytest.mark.parametrize("device", ["tpu_v5e", "h100", "gb200"])
def test_the_network_is_never_faster_than_the_fast_fabric(kind, device):
    fast = seconds(kind, 64 * MB, {"x": 4}, device)
    assert fast <= seconds(kind, 64 * MB, {"x": 4}, device, links={"x": "dcn"})


GPUS = ("a100_40gb", "a100_80gb", "h100", "h200", "b200", "gb200")
NODES = (2, 4, 8, 16, 64)


def between_nodes(kind, bytes_, nodes, device="h100", gpus=8):
    """Over all devices of so many nodes; `bytes_` of the whole array for gathers, before it for all others."""
    links = mesh_links(Mesh({"node": nodes, "gpu": gpus}, device, {"node": "ib"}))
    bytes_in = bytes_ / nodes / gpus if kind == "all_gather" else bytes_
    return collective_seconds(links, kind, bytes_in, ("node", "gpu"))


@pytest.mark.parametrize("device", GPUS)
def test_a_scalar_is_summed_over_eight_gpu_nodes_in_tens_of_microseconds(device):
    assert 30e-6 < between_nodes("all_reduce", 4, 8, device) < 150e-6


def test_a_scalar_is_summed_over_64_gpus_in_the_time_that_the_documentation_says():
    assert between_nodes("all_reduce", 4, 8, "h100") == pytest.approx(62e-6, abs=0.5e-6)


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize("device", GPUS)
def test_a_gradient_of_few_numbers_is_summed_over_sixteen_nodes_by_a_tree(device, gpus):
    assert between_nodes("all_reduce", 512 * 2, 16, device, gpus) < 0.2e-3


def test_each_doubling_of_nodes_adds_a_level_to_the_tree_of_a_small_all_reduce():
    times = [between_nodes("all_reduce", 4, nodes) for nodes in (2, 4, 8, 16, 32)]
    assert np.diff(times) == pytest.approx([2 * 5.0e-6] * 4, rel=1e-2)


def test_a_small_gather_between_nodes_waits_for_each_step_of_a_ring_over_all_devices():
    times = [between_nodes("all_gather", 4, nodes) for nodes in (2, 3, 4)]
    assert np.diff(times) == pytest.approx([2.7e-6 + 7 * 1.0e-6] * 2, rel=1e-2)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
@pytest.mark.parametrize("device", GPUS)
def test_large_arrays_move_between_nodes_at_the_networks_rate(device, kind):
    large = between_nodes(kind, 1e12, 16, device, gpus=1)
    wire = 15 / 16 * 1e12 * (2 if kind == "all_reduce" else 1)
    assert wire / large == pytest.approx(22.5e9 if "a100" in device else 45e9, rel=1e-3)


@given(
    kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_permute"]),
    bytes_=st.floats(1, 1e11),
    device=st.sampled_from(GPUS),
    nodes=st.sampled_from(NODES[:-1]),
    gpus=st.sampled_from([1, 2, 4, 8]),
)
def test_between_gpu_nodes_more_bytes_or_nodes_take_no_less_time_and_none_has_a_step(kind, bytes_, device, nodes, gpus):
    took = between_nodes(kind, bytes_, nodes, device, gpus)
    assert took <= between_nodes(kind, bytes_ * 1.001, nodes, device, gpus) <= took * 1.0011
    assert took <= between_nodes(kind, bytes_, NODES[NODES.index(nodes) + 1], device, gpus) * (1 + 1e-9)


@given(
    kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_permute"]),
    device=st.sampled_from(GPUS),
    nodes=st.sampled_from(NODES),
    gpus=st.sampled_from([1, 2, 4]),
)
def test_a_few_bytes_take_no_less_time_with_more_devices_in_each_node(kind, device, nodes, gpus):
    assert between_nodes(kind, 64, nodes, device, gpus) <= between_nodes(kind, 64, nodes, device, 2 * gpus)


@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
@pytest.mark.parametrize("device", GPUS)
@pytest.mark.parametrize("bytes_", [4, 1e5, 1e9])
def test_the_network_between_gpus_is_never_faster_than_nvlink(kind, device, bytes_):
    for n in (2, 4, 8):
        assert seconds(kind, bytes_, {"x": n}, device) <= seconds(kind, bytes_, {"x": n}, device, links={"x": "ib"})


@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
def test_nothing_to_move_takes_no_time(kind):
    assert seconds(kind, 0, {"x": 8}, "h100") == 0
    assert seconds(kind, MB, {"x": 1, "y": 8}, "h100", "x") == 0


def test_small_messages_are_latency():
    one, two = seconds("all_reduce", 8, {"x": 8}, "h100"), seconds("all_reduce", 8192, {"x": 8}, "h100")
    assert 20e-6 < one < 60e-6
    assert two < 1.1 * one


def test_bad_input_is_an_error():
    links = mesh_links(Mesh({"x": 8}, "h100"))
    with pytest.raises(UnknownNameError, match="all_reduce"):
        collective_seconds(links, "allreduce", 1.0, "x")
    with pytest.raises(MeshError, match="zero or more"):
        collective_seconds(links, "all_reduce", -1.0, "x")
    with pytest.raises(MeshError, match="zero or more"):
        collective_seconds(links, "all_reduce", math.nan, "x")
    with pytest.raises(MeshError, match="not in the mesh"):
        collective_seconds(links, "all_reduce", 1.0, "y")


def test_redistribution_steps_cost_what_the_collective_does():
    mesh = Mesh({"batch": 4, "model": 8}, "h100")
    price, links = RedistributionSeconds(mesh), mesh_links(mesh)
    whole = (("batch", 4), ("model", 8))
    for kind in COLLECTIVE_KINDS:
        expected = collective_seconds(links, kind, 4e6, ("batch", "model"))
        assert price.step_cost(kind, 1_000_000, 1, 4, whole) == pytest.approx(expected)
    part = price.step_cost("all_gather", 1_000_000, 4_000_000, 4, (("model", 4),))
    assert part < price.step_cost("all_gather", 1_000_000, 8_000_000, 4, (("model", 8),))
    assert price == RedistributionSeconds(Mesh({"batch": 4, "model": 8}, "h100"))
    assert hash(price) == hash(RedistributionSeconds(Mesh({"batch": 4, "model": 8}, "h100")))


def test_fits_are_within_their_error_on_measured_rows_they_have_not_seen():
    from autopart.costmodel import device
    from experiments.collective_accuracy.__main__ import DEVICES, IN_SWITCH_GROUP, curves_to_fit
    from experiments.collective_accuracy.fitting import predict
    from experiments.collective_accuracy.measured import SMALL_BYTES

    bounds = dict(all_gather=0.05, reduce_scatter=0.07, all_reduce=0.06, all_to_all=0.10, all_permute=0.13)
    found = {kind: [] for kind in bounds}
    for xla, name in DEVICES.items():
        assert device(name).fast.in_switch_group == IN_SWITCH_GROUP[name]
        for curve_name, (kind, rows) in curves_to_fit(name, xla).items():
            unseen = rows.where((rows.whole_bytes >= SMALL_BYTES) & ~rows.seen)
            found[kind].append(np.abs(predict(kind, device(name).fast.curves[curve_name], unseen) / unseen.seconds - 1))
    medians = {kind: float(np.median(np.concatenate(errors))) for kind, errors in found.items()}
    assert all(medians[kind] <= bound for kind, bound in bounds.items()), medians


def test_shipped_curves_are_what_the_fit_gives():
    from autopart.costmodel import device
    from experiments.collective_accuracy.__main__ import DEVICES, curves_to_fit
    from experiments.collective_accuracy.fitting import fit_curve

    for xla, name in DEVICES.items():
        for curve_name, (kind, rows) in curves_to_fit(name, xla).items():
            fitted, shipped = fit_curve(kind, rows.where(rows.seen)), device(name).fast.curves[curve_name]
            assert fitted.row() == pytest.approx(shipped.row(), rel=2e-3, abs=1e-9), (name, curve_name)
