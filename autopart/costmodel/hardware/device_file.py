"""Devices as files: what `ap.calibrate` measured of the devices that are there, loaded by `Mesh(device="file.json")`.

    {"autopart_device": 1, "name": "my_a100", "like": "a100_80gb", "source": "...",
     "measured": {"peak_flop_per_s": {"bf16": 2.3e14}, "hbm_bytes_per_s": 1.7e12, ...},
     "switch": {"domain": 8, "bytes_per_s": 2.1e11, "latency_s": 5e-6, "curves": {"all_reduce": {...}, ...}},
     "residuals": {"products": 0.06, ...}}

What a file does not say is as the device that it is like. A file is read once in a process. Raises `DeviceError` for a
file that is missing or says anything else.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from autopart.base.written_file import write_text
from autopart.costmodel.hardware.devices import DEVICES, Device
from autopart.costmodel.hardware.fabric import CollectiveCurve, DeviceError, Switch

MEASURED = (
    "peak_flop_per_s", "hbm_bytes", "hbm_bytes_per_s", "vector_flop_per_s", "launch_s", "matmul_launch_s",
)  # fmt: skip
"""Fields of a device that are measured; shares of peaks and rates are one then."""


def write_device(
    path: str | Path, name: str, like: str, measured: Mapping[str, Any], switch: Switch | None, source: str,
    residuals: Mapping[str, float],
) -> Path:  # fmt: skip
    """Writes a device; returns where it is."""
    said = {
        "autopart_device": 1, "name": name, "like": like, "source": source, "measured": dict(measured),
        "switch": None if switch is None else _plain(switch), "residuals": dict(residuals),
    }  # fmt: skip
    return write_text(path, json.dumps(said, indent=1) + "\n", "the device")


@functools.cache
def read_device(path: str) -> Device:
    """The device in a file, named by the file."""
    try:
        said = json.loads(Path(path).read_text(encoding="utf-8"))
        measured, switch = said["measured"], said["switch"]
        if unknown := set(measured) - set(MEASURED):
            raise DeviceError(f"{path}: {sorted(unknown)[0]!r} is not measured", hint=", ".join(MEASURED))
        more = {} if switch is None else {"fast": _switch(switch), "link_bytes_per_s": None}
        like = DEVICES.named(said["like"])
        return replace(
            like, name=path, source=said["source"], matmul_efficiency={"": 1.0}, hbm_efficiency=1.0, **measured, **more
        )
    except OSError as error:
        raise DeviceError(f"no device in {path}", why=error.strerror or str(error), hint="autopart calibrate") from None
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, DeviceError):
            raise
        why = f"it says no {error}" if isinstance(error, KeyError) else str(error)
        raise DeviceError(f"{path} is no device", why=why, hint="a file by `autopart calibrate`") from None


@functools.cache
def residual_of(name: str) -> float | None:
    """The largest residual of a device in a file, relative, of nine of ten points; None for a registered device."""
    if not name.endswith(".json"):
        return None
    return max(json.loads(Path(name).read_text(encoding="utf-8"))["residuals"].values(), default=None)


def _plain(switch: Switch) -> dict[str, Any]:
    """A switch without what is as by default."""
    curves = {kind: _changed(curve) for kind, curve in switch.curves.items()}
    return {**{n: getattr(switch, n) for n in ("domain", "bytes_per_s", "latency_s")}, "curves": curves}


def _changed(curve: CollectiveCurve) -> dict[str, float]:
    usual = {field.name: field.default for field in fields(CollectiveCurve)}
    return {name: value for name, value in asdict(curve).items() if value != usual[name]}


def _switch(said: Mapping[str, Any]) -> Switch:
    curves = {kind: CollectiveCurve(**curve) for kind, curve in said["curves"].items()}
    return Switch(said["domain"], said["bytes_per_s"], said["latency_s"], curves=curves)
