"""The cost model: seconds, peak bytes and flop of a device-local program, by device and mesh.

devices, tpus, gpus   what one device can do, each number with its source
fabric, links         how devices are wired, and which wires a mesh axis runs over
collectives           seconds of a collective
compute               seconds of an op
cost_models           cost models by name
"""

from autopart.costmodel.compiled.links.collective_seconds import collective_seconds
from autopart.costmodel.compiled.links.redistribution_seconds import RedistributionSeconds
from autopart.costmodel.compiled.simulator import Simulation, Simulator, SimulatorOptions
from autopart.costmodel.cost_models import Simulated, cost_model_of, register_cost_model
from autopart.costmodel.estimate import CollectiveTotal, CostModel, Estimate, estimate, estimate_of
from autopart.costmodel.hardware.devices import Device, device, devices, register_device
from autopart.costmodel.hardware.fabric import CollectiveCurve, DeviceError, Network, Switch, Torus
from autopart.costmodel.hardware.links import Links, mesh_links
from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.xla_compile import XlaCompile, XlaCpuMemory
from autopart.spmd.device_local import DeviceLocal

__all__ = [
    "CollectiveCurve",
    "CollectiveTotal",
    "CostModel",
    "Device",
    "DeviceError",
    "DeviceLocal",
    "Estimate",
    "Links",
    "Network",
    "RedistributionSeconds",
    "Simulated",
    "Simulation",
    "Simulator",
    "SimulatorOptions",
    "Switch",
    "Torus",
    "XlaCompile",
    "XlaCpuMemory",
    "collective_seconds",
    "cost_model_of",
    "device",
    "devices",
    "estimate",
    "estimate_of",
    "mesh_links",
    "register_cost_model",
    "register_device",
    "topology_devices",
]
