"""Does every device say where its numbers are from, and does a bad entry say what is wrong?"""

from __future__ import annotations

import math

import pytest

from autopart.base.errors import UnknownNameError
from autopart.costmodel import Device, DeviceError, Network, Switch, device, devices, register_device
from autopart.costmodel.hardware.devices import DTYPE_CLASSES, device_row

SHIPPED = (
    "tpu_v2", "tpu_v3", "tpu_v4", "tpu_v5e", "tpu_v5p", "tpu_v6e", "tpu_v7", "a100_40gb", "a100_80gb", "h100", "h200",
    "b200", "gb200", "cpu_host",
)  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_device_has_positive_numbers_and_sources(name):
    entry = device(name)
    row = device_row(entry)
    assert (row[: len(DTYPE_CLASSES)] > 0).all()
    texts = [entry.source] if isinstance(entry.source, str) else list(entry.source.values())
    assert all(len(text) > 5 for text in texts)
    if not isinstance(entry.source, str):
        assert {"peak_flop_per_s", "hbm_bytes", "hbm_bytes_per_s", "fast", "fits"} <= set(entry.source)


def test_v3_device_is_half_a_chip():
    core = device("tpu_v3")
    assert core.cores == 2
    assert core.peak("bf16") == 123e12 / 2
    assert core.hbm_bytes == 32 * 2**30 / 2
    assert core.hbm_bytes_per_s == 900e9 / 2


def test_v4_megacore_is_two_cores():
    core, chip = device("tpu_v4"), device("tpu_v4_megacore")
    for field in ("hbm_bytes", "hbm_bytes_per_s", "vector_flop_per_s", "on_chip_bytes"):
        assert getattr(chip, field) == 2 * getattr(core, field)
    assert chip.peak("i8") == 2 * core.peak("i8")


def test_unknown_device_lists_the_known_ones():
    with pytest.raises(UnknownNameError) as error:
        device("tpu_v5")
    assert all(name in str(error.value) for name in SHIPPED)
    assert "'tpu_v5" in error.value.hint


def five_lines(name, **changes):
    entry = dict(
        peak_flop_per_s={"bf16": 500e12}, hbm_bytes=64e9, hbm_bytes_per_s=2e12, fast=Switch(8, 200e9, 5e-6),
        network=Network(25e9, 50e-6), source="datasheet",
    )  # fmt: skip
    return Device(name, **{**entry, **changes})


def test_a_device_is_registered_once():
    entry = register_device(five_lines("test_chip"))
    assert device("test_chip") is entry is devices()["test_chip"]
    with pytest.raises(DeviceError, match="registered already"):
        register_device(five_lines("test_chip"))


@pytest.mark.parametrize(
    "changes",
    [
        {"hbm_bytes": 0},
        {"hbm_bytes_per_s": -1.0},
        {"hbm_bytes": math.nan},
        {"hbm_bytes": True},
        {"peak_flop_per_s": {"bf16": 0.0}},
        {"matmul_efficiency": {"": -0.5}},
        {"launch_s": 0.0},
        {"vector_flop_per_s": math.inf},
    ],
)
def test_numbers_that_are_not_positive_are_rejected(changes):
    with pytest.raises(DeviceError, match="positive"):
        five_lines("bad", **changes)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"source": ""}, "no source"),
        ({"cores": 2}, "no wiring between them"),
        ({"peak_flop_per_s": {"bfloat16": 1e12}}, "bfloat16"),
    ],
)
def test_an_incomplete_entry_says_what_is_missing(changes, what):
    with pytest.raises(DeviceError, match=what):
        five_lines("bad", **changes)


@pytest.mark.parametrize("make", [lambda: Switch(8, 0, 1e-6), lambda: Network(1e9, -1), lambda: Switch(0, 1e9, 1e-6)])
def test_wiring_numbers_are_positive(make):
    with pytest.raises(DeviceError, match="positive"):
        make()


def test_missing_matmul_class_takes_the_next_wider_one():
    entry = five_lines("narrow")
    assert entry.peak("f8E4M3FN") == entry.peak("f32") == entry.peak("f64") == 500e12
    assert device("h100").peak("f32") == 494e12
    assert device("h100").peak("f16") == 989e12
