"""A device that no catalogue lists."""

import autopart as ap
from autopart.costmodel import Network, Switch

CHIP = ap.register_device(
    ap.Device(
        "acme_chip",
        peak_flop_per_s={"bf16": 100e12},
        hbm_bytes=16e9,
        hbm_bytes_per_s=1e12,
        fast=Switch(domain=8, bytes_per_s=100e9, latency_s=1e-6),
        network=Network(10e9, 20e-6),
        source="made up for a test",
    )
)
