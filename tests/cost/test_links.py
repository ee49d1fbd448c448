"""Which wires does an axis run over?"""

from __future__ import annotations

import pytest

from autopart.core.errors import MeshError, UnknownNameError
from autopart.core.mesh import Mesh
from autopart.costmodel import Device, Switch, mesh_links, register_device
from autopart.costmodel.hardware.fabric import CHIP, FAST, NETWORK
from autopart.costmodel.hardware.links import AXIS, FABRIC, RING, SIZE, STRIDE


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
        for device in ("tpu_v3", "tpu_v4", "tpu_v5e", "h100", "gb200"):
            rows = wires({"a": size, "b": 6}, device)
            for name, wanted in (("a", size), ("b", 6)):
                placed = 1
                for _, part, _, _ in rows[name]:
                    placed *= part
                assert placed == wanted, (device, size)


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
