"""The registered devices as a table.

name       memory    bandwidth   bf16
tpu_v3     16.0 GB   0.90 TB/s   61 TFLOP/s
"""

from __future__ import annotations

from typing import Any

from autopart.costmodel.hardware.devices import devices


def device_rows() -> list[dict[str, Any]]:
    """Each device's numbers, by name, in SI units."""
    return [
        {
            "name": name, "hbm_bytes": device.hbm_bytes, "hbm_bytes_per_s": device.hbm_bytes_per_s,
            "bf16_flop_per_s": device.peak("bf16"), "f32_flop_per_s": device.peak("f32"),
        }
        for name, device in sorted(devices().items())
    ]  # fmt: skip


def device_table() -> str:
    """The table, a device per line."""
    rows = [["device", "memory", "bandwidth", "bf16", "f32"]]
    for row in device_rows():
        memory, bandwidth = f"{row['hbm_bytes'] / 1e9:.1f} GB", f"{row['hbm_bytes_per_s'] / 1e12:.2f} TB/s"
        rates = [f"{row[rate] / 1e12:.4g} TFLOP/s" for rate in ("bf16_flop_per_s", "f32_flop_per_s")]
        rows.append([row["name"], memory, bandwidth, *rates])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
