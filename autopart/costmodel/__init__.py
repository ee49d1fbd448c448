"""The cost model: seconds, peak bytes and flop of a device-local program, by device and mesh.

devices, tpus, gpus   what one device can do, each number with its source
fabric, links         how devices are wired, and which wires a mesh axis runs over
collectives           seconds of a collective
compute               seconds of an op
"""

from autopart.costmodel import gpus, tpus  # noqa: F401  (their entries register on import)
from autopart.costmodel.collectives import RedistributionSeconds, collective_seconds
from autopart.costmodel.devices import Device, device, devices, register_device
from autopart.costmodel.fabric import CollectiveCurve, DeviceError, Network, Switch, Torus
from autopart.costmodel.links import Links, mesh_links

__all__ = [
    "CollectiveCurve",
    "Device",
    "DeviceError",
    "Links",
    "Network",
    "RedistributionSeconds",
    "Switch",
    "Torus",
    "collective_seconds",
    "device",
    "devices",
    "mesh_links",
    "register_device",
]
