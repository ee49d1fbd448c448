"""Networks between nodes of GPUs by name, and by measured points: `Mesh(links={"node": "efa_p5"})`.

    "ib_ndr"        InfiniBand, 400 Gbit/s to a GPU        latencies of NCCL's own tuning model (`nccl.py`)
    "efa_p5"        Amazon's EFA, 3,200 Gbit/s to a node   a message takes 20 us, by the tuner of aws/aws-ofi-nccl
    "mine.json"     {"all_reduce": [[1e6, 6e-5], [1e9, 2.3e-2]], ...}    bytes and seconds over the axis, by nccl-tests

Rates are nominal, per GPU and one way, of nodes of eight; `SHARE` of them is reached. RoCE is taken for InfiniBand of
its rate: an assumption. Sources: NVIDIA's ConnectX-6, 7 and 8 (HDR, NDR, XDR); EC2's p4d, p5 and p5en; latencies of EFA
from `src/tuner/nccl_ofi_model.cpp` of aws/aws-ofi-nccl (Apache 2.0), with 3 us more of Simple's completions.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from autopart.costmodel.hardware.fabric import COLLECTIVE_KINDS, CollectiveCurve, DeviceError, Network, Switch
from autopart.costmodel.hardware.nccl import nccl_network

SHARE = 0.9
"""Of a nominal rate (calculon)."""


class _Class(NamedTuple):
    bytes_per_s: float
    message_s: float | None = None


NETWORKS = {
    "ib_hdr": _Class(25e9), "ib_ndr": _Class(50e9), "ib_xdr": _Class(100e9), "roce_200": _Class(25e9),
    "roce_400": _Class(50e9), "efa_p4d": _Class(6.25e9, 20e-6), "efa_p5": _Class(50e9, 20e-6),
    "efa_p5en": _Class(50e9, 18e-6),
}  # fmt: skip


def network_named(name: str, wires: Switch, devices: int) -> Network:
    """The network of a class, or through measured points over an axis of so many devices.

    Raises `DeviceError` for a file that has no points.
    """
    if name in NETWORKS:
        rate, message_s = NETWORKS[name]
        inside = {kind: wires.curve(kind) for kind in COLLECTIVE_KINDS}
        return nccl_network(SHARE * rate, inside, name, message_s)
    return measured_network(name, devices)


def is_network(name: str) -> bool:
    """Whether a name of links is a class of networks, or a file of points."""
    return name in NETWORKS or name.endswith(".json")


@functools.cache
def measured_network(path: str, devices: int) -> Network:
    """The network through the points of a file."""
    try:
        points: Mapping[str, Sequence[tuple[float, float]]] = json.loads(Path(path).read_text(encoding="utf-8"))
        n = float(devices)
        sent = dict.fromkeys(COLLECTIVE_KINDS, (n - 1) / n) | {"all_reduce": 2 * (n - 1) / n, "all_permute": 1.0}
        curves = {kind: _through(np.array(of, float), sent[kind]) for kind, of in points.items()}
        any_ = curves.get("all_reduce") or next(iter(curves.values()))
    except OSError as error:
        raise DeviceError(f"no points of links in {path}", why=error.strerror or str(error)) from None
    except (AttributeError, KeyError, IndexError, StopIteration, TypeError, ValueError) as error:
        hint = '{"all_reduce": [[bytes, seconds], [bytes, seconds]]}'
        raise DeviceError(f"{path} has no points of links", why=repr(error), hint=hint) from None
    return Network(
        any_.wire_bytes_per_s, any_.launch_s, Path(path).stem,
        {kind: (curves.get(kind, any_),) for kind in COLLECTIVE_KINDS},
    )  # fmt: skip


def _through(points: np.ndarray, sent: float) -> CollectiveCurve:
    """Launch and rate, neither below zero, by least squares of relative errors."""
    relative = np.stack([1 / points[:, 1], points[:, 0] / points[:, 1]], 1)
    fits = [np.linalg.lstsq(relative[:, used], np.ones(len(points)), rcond=None)[0] for used in ([0, 1], [1])]
    launch_s, byte_s = fits[0] if min(fits[0]) > 0 else (1e-9, fits[1][0])
    return CollectiveCurve(float(launch_s), 0.0, float(sent / byte_s))
