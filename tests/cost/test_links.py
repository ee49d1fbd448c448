"""Which wires does an axis run over?"""

from __future__ import annotations

import json
import re

import pytest

from autopart.base.errors import MeshError, PartitionError, UnknownNameError
from autopart.core.mesh import Mesh
from autopart.costmodel import (
    Device,
    DeviceError,
    Network,
    Switch,
    Torus,
    collective_seconds,
    device,
    mesh_links,
    register_device,
)
from autopart.costmodel.hardware.fabric import CHIP, FAST, NETWORK
from autopart.costmodel.hardware.links import AXIS, FABRIC, RING, SIZE, STRIDE
from autopart.costmodel.hardware.networks import NETWORKS, SHARE


def wires(axes, device, links=None):
    mesh = Mesh(axes, device, links)
    found = {name: [] for name in axes}
    for row in mesh_links(mesh).segments:
        segment = (int(row[FABRIC]), int(row[SIZE]), int(row[STRIDE]), int(row[RING]))
        found[mesh.axis_names[int(row[AXIS])]].append(segment)
    return found


def test_v3_minor_axis_takes_the_cores_and_the_other_a_square_of_chips():
    found = wires({"batch": 16, "model": 2}, "tpu_v3")
    assert found == {"model": [(CHIP, 2, 1, 0)], "batch": [(FAST, 4, 1, 0), (FAST, 4, 1, 0)]}


def test_v5e_axes_of_16_are_rings():
    assert wires({"batch": 16, "model": 16}, "tpu_v5e") == {"batch": [(FAST, 16, 1, 16)], "model": [(FAST, 16, 1, 16)]}


def test_v5e_shorter_axes_are_lines():
    assert wires({"batch": 8, "model": 4}, "tpu_v5e") == {"batch": [(FAST, 8, 1, 0)], "model": [(FAST, 4, 1, 0)]}


def test_v5p_axes_of_4_are_rings():
    assert wires({"a": 4, "b": 4, "c": 4}, "tpu_v5p") == {n: [(FAST, 4, 1, 4)] for n in "abc"}


def test_an_axis_that_shares_a_torus_dimension_is_strided():
    """c takes 8 chips of one dimension; on the other its last 2 are neighbours, b skips them, a skips both."""
    assert wires({"a": 2, "b": 2, "c": 16}, "tpu_v5e") == {
        "a": [(FAST, 2, 4, 0)],
        "b": [(FAST, 2, 2, 0)],
        "c": [(FAST, 8, 1, 0), (FAST, 2, 1, 0)],
    }


def test_what_exceeds_the_pod_is_on_the_network():
    assert wires({"slice": 2, "batch": 16, "model": 16}, "tpu_v5e")["slice"] == [(NETWORK, 2, 1, 0)]


def test_nvlink_domain_fills_from_the_minor_axis():
    assert wires({"batch": 4, "model": 8}, "h100") == {"batch": [(NETWORK, 4, 1, 0)], "model": [(FAST, 8, 1, 0)]}
    assert wires({"batch": 16}, "h100") == {"batch": [(FAST, 8, 1, 0), (NETWORK, 2, 1, 0)]}
    assert wires({"batch": 8, "model": 8}, "gb200")["batch"] == [(FAST, 8, 1, 0)]


def test_an_override_names_the_wires():
    found = wires({"batch": 2, "model": 16}, "tpu_v5e", {"batch": "dcn"})
    assert found["batch"] == [(NETWORK, 2, 1, 0)]
    assert wires({"model": 4}, "tpu_v5e", {"model": "ring"})["model"] == [(FAST, 4, 1, 4)]
    assert wires({"model": 16}, "tpu_v5e", {"model": "line"})["model"] == [(FAST, 16, 1, 0)]
    assert wires({"batch": 2, "model": 4}, "h100", {"model": "ib"})["batch"] == [(FAST, 2, 1, 0)]


def test_every_size_is_placed_completely():
    for size in range(1, 70):
        for name_of in ("tpu_v3", "tpu_v4", "tpu_v5e", "h100", "gb200"):
            rows = wires({"a": size, "b": 6}, name_of)
            for name, wanted in (("a", size), ("b", 6)):
                placed = 1
                for _, part, _, _ in rows[name]:
                    placed *= part
                assert placed == wanted, (name_of, size)


def test_an_axis_without_a_link_says_what_is_missing():
    register_device(
        Device(
            "lone_node", peak_flop_per_s={"bf16": 1e12}, hbm_bytes=1e9, hbm_bytes_per_s=1e9, source="test",
            fast=Switch(8, 1e9, 1e-6),
        )
    )  # fmt: skip
    with pytest.raises(MeshError, match='axis "batch" \\(size 16\\) has no link') as error:
        mesh_links(Mesh({"batch": 16}, "lone_node"))
    assert "lone_node" in str(error.value)
    assert "network=Network" in str(error.value)


def own(name, **wiring):
    return Device(name, peak_flop_per_s={"bf16": 1e12}, hbm_bytes=1e9, hbm_bytes_per_s=1e9, source="test", **wiring)


OWN = {
    "alone": {},
    "switch": {"fast": Switch(8, 1e9, 1e-6)},
    "torus": {"fast": Torus((4, 4), 1e9, 1e-6, wrap_multiple=4)},
    "torus and network": {"fast": Torus((4, 4), 1e9, 1e-6, wrap_multiple=4), "network": Network(1e9, 1e-5)},
    "network": {"network": Network(1e9, 1e-5, "ib")},
}
"""Devices by their wires."""


@pytest.mark.parametrize(
    ("wiring", "axes", "links"),
    [
        ("alone", {"d": 8}, None),
        ("alone", {"d": 8}, {"d": "dcn"}),
        ("alone", {"d": 8}, {"d": "nvlink"}),
        ("switch", {"d": 16}, None),
        ("switch", {"d": 8}, {"d": "dcn"}),
        ("switch", {"d": 8}, {"d": "ring"}),
        ("switch", {"d": 8}, {"d": "chip"}),
        ("torus", {"d": 32}, None),
        ("torus", {"d": 4}, {"d": "nvlink"}),
        ("torus", {"d": 4}, {"d": "dcn"}),
        ("torus and network", {"a": 2, "b": 2, "c": 2}, {"a": "ici", "b": "ici", "c": "ici"}),
        ("network", {"d": 8}, {"d": "nvlink"}),
    ],
)
def test_each_hint_of_an_axis_without_a_link_works_when_it_is_followed(wiring, axes, links):
    with pytest.raises(MeshError, match="has no link") as error:
        mesh_links(Mesh(axes, own(f"own {wiring}", **OWN[wiring]), links))
    hints = str(error.value).split("try ")[1].split(", or ")
    for number, hint in enumerate(hints):
        tried, by = dict(axes), dict(links or {})
        wires = dict(OWN[wiring])
        if link := re.search(r'links={"(\w+)": "(\w+)"}', hint):
            by[link[1]] = link[2]
        elif most := re.search(r"axes of (\d+) devices", hint):
            tried, by = dict.fromkeys(axes, int(most[1])), {}
        elif "link_bytes_per_s" in hint:
            wires, by = {**wires, "link_bytes_per_s": 1e9}, {}
        else:
            assert "network=Network(bytes_per_s, latency_s)" in hint
            wires, by = {**wires, "network": Network(1e9, 1e-5)}, {a: "dcn" for a in by}
        found = mesh_links(Mesh(tried, own(f"own {wiring}, {links}, hint {number}", **wires), by))
        assert len(found.segments)


def test_a_device_from_a_datasheet_needs_no_more_than_the_rate_of_its_links():
    chip = own("datasheet chip", link_bytes_per_s=100e9)
    mesh = Mesh({"a": 16, "b": 64}, chip)
    assert mesh.device == "datasheet chip"
    assert wires({"a": 16, "b": 64}, chip) == {"a": [(FAST, 16, 1, 0)], "b": [(FAST, 64, 1, 0)]}
    large = collective_seconds(mesh_links(mesh), "all_gather", 1e9, "a")
    assert large == pytest.approx(15e9 / 100e9, rel=1e-3)


def test_a_mesh_takes_a_device_that_nobody_registered_and_an_equal_one_again():
    assert Mesh({"a": 2}, own("new chip", link_bytes_per_s=1e9)) == Mesh(
        {"a": 2}, own("new chip", link_bytes_per_s=1e9)
    )
    assert Mesh({"a": 2}, device("h100")) == Mesh({"a": 2}, "h100")
    with pytest.raises(PartitionError, match="new chip"):
        Mesh({"a": 2}, own("new chip", link_bytes_per_s=2e9))


def test_a_device_has_its_wires_in_one_way():
    with pytest.raises(DeviceError, match="both fast and link_bytes_per_s"):
        own("wired twice", fast=Switch(8, 1e9, 1e-6), link_bytes_per_s=1e9)
    with pytest.raises(DeviceError, match="link_bytes_per_s"):
        own("wired badly", link_bytes_per_s=-1.0)


@pytest.mark.parametrize(
    ("axes", "device", "links", "what"),
    [
        ({"a": 2}, "tpu_v5e", {"a": "nvlink"}, "has no link"),
        ({"a": 2}, "h100", {"a": "ring"}, "has no link"),
        ({"a": 2}, "h100", {"a": "chip"}, "has no link"),
        ({"a": 2}, "h100", {"a": "wire"}, "known links"),
        ({"a": 2, "b": 2, "c": 2}, "tpu_v5e", dict.fromkeys("abc", "ici"), "all are taken"),
        ({"a": 2}, None, None, "names no device"),
    ],
)
def test_a_link_the_device_does_not_have_is_an_error(axes, device, links, what):
    with pytest.raises(MeshError, match=what):
        mesh_links(Mesh(axes, device, links))


def test_an_unknown_device_is_an_error():
    with pytest.raises(UnknownNameError, match="tpu_v3"):
        mesh_links(Mesh({"a": 2}, "tpu_v33"))


def test_links_are_described_in_words():
    text = mesh_links(Mesh({"one": 1, "batch": 16, "model": 2}, "tpu_v3")).describe()
    assert text.splitlines() == [
        "one:1  one device",
        "batch:16  4 chips of a torus line (stride 1), 4 chips of a torus line (stride 1)",
        "model:2  2 cores of a chip",
    ]


def over_nodes(kind, bytes_in, link):
    mesh = Mesh({"node": 4, "gpu": 8}, "h100", {"node": link} if link else None)
    return collective_seconds(mesh_links(mesh), kind, bytes_in, "node")


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_gpus_have_rates_by_name(name):
    large = 1 << 34
    rate, message_s = NETWORKS[name]
    assert over_nodes("all_gather", large, name) == pytest.approx(3 * large / (SHARE * rate), rel=0.02)
    small = over_nodes("all_reduce", 8.0, name)
    assert (small > 1.5 * over_nodes("all_reduce", 8.0, "ib_ndr")) == (message_s is not None)


def test_infiniband_of_400_gbit_is_what_an_h100_has_by_itself():
    for kind in ("all_gather", "all_reduce", "all_to_all"):
        for size in (1e3, 1e6, 1e9):
            assert over_nodes(kind, size, "ib_ndr") == pytest.approx(over_nodes(kind, size, None))


def test_links_go_through_measured_points(tmp_path):
    path = tmp_path / "mine.json"
    points = [(8.0, 3e-5), (1e6, 3e-5 + 1e6 / 2e10), (1e9, 3e-5 + 1e9 / 2e10)]
    path.write_text(json.dumps({"all_reduce": points}))
    for size, seconds in points:
        assert over_nodes("all_reduce", size, str(path)) == pytest.approx(seconds, rel=1e-3)
    expected = 3e-5 + 3 * 1e9 / (2 * 3 / 4 * 2e10)
    assert over_nodes("all_gather", 1e9, str(path)) == pytest.approx(expected, rel=1e-3)


def test_files_without_points_and_networks_that_contradict_each_other_are_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text("[]")
    with pytest.raises(DeviceError, match="no points of links"):
        over_nodes("all_reduce", 1.0, str(path))
    with pytest.raises(DeviceError, match="no points of links"):
        over_nodes("all_reduce", 1.0, str(tmp_path / "missing.json"))
    with pytest.raises(MeshError, match="one network"):
        mesh_links(Mesh({"a": 2, "b": 2}, "h100", {"a": "ib_hdr", "b": "ib_ndr"}))
    with pytest.raises(MeshError, match="not wired by a switch"):
        mesh_links(Mesh({"a": 2}, "tpu_v3", {"a": "ib_hdr"}))
