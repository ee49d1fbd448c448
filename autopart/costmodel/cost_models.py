"""Cost models by name: `cost_model="xla_cpu_memory"` wherever a cost model can be given.

    "simulator"         the estimate of `autopart.costmodel.compiled`; the mesh must name a device
    "xla_cpu_memory"    XLA:CPU's peak memory, the simulator's seconds
    "h100"              XLA's GPU compiler, without a GPU; and the other names of `GPU_TARGETS`
    "v5e:2x4"           a topology, with a colon: `XlaCompile` of it; "gpu": for the GPUs of this machine

    @register_cost_model("measured")
    @dataclass(frozen=True)
    class Measured:
        repeats: int = 10

        def __call__(self, local: DeviceLocal, mesh: Mesh) -> Estimate: ...

A cost model that needs an argument has no name: it is given as an object. Packages can also register one by the entry
point group "autopart.cost_models".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from autopart.base.arguments import NONE, TEXT, Kind, function_of, maker
from autopart.base.registry import Registry
from autopart.core.mesh import Mesh
from autopart.costmodel.estimate import CostModel, Estimate, estimate
from autopart.costmodel.hardware.gpu_targets import GPU_TARGETS
from autopart.costmodel.xla.xla_compile import XlaCompile, XlaCpuMemory
from autopart.spmd.device_local import DeviceLocal

COST_MODEL = function_of(2) | Kind("the name of a cost model", TEXT.legal) | NONE
"""What a cost model may be given as; None: the simulator, where the mesh names a device."""

COST_MODELS: Registry[Callable[[], CostModel]] = Registry(
    "cost model", accepts=maker("__call__(local, mesh)", "__call__"), entry_points="autopart.cost_models"
)
"""What makes a cost model with default settings, by name."""

T = TypeVar("T", bound=Callable[[], Any])


def register_cost_model(name: str) -> Callable[[T], T]:
    """Class decorator: `cost_model="name"` then means an instance with default fields. A name can be taken once."""
    return COST_MODELS.register(name)


@register_cost_model("simulator")
@dataclass(frozen=True)
class Simulated:
    """The simulator as a cost model. A search runs it on arrays, without an `Estimate` per state."""

    def __call__(self, local: DeviceLocal, mesh: Mesh) -> Estimate:
        """See `estimate`."""
        return estimate(local, mesh)


register_cost_model("xla_cpu_memory")(XlaCpuMemory)
for _name in GPU_TARGETS:
    register_cost_model(_name)(partial(XlaCompile, _name))


def cost_model_of(cost_model: str | CostModel | None) -> CostModel | None:
    """The cost model a user means; raises `UnknownNameError` listing the known names."""
    if isinstance(cost_model, str) and cost_model not in COST_MODELS and (":" in cost_model or cost_model == "gpu"):
        return XlaCompile(cost_model)
    return COST_MODELS.named(cost_model)() if isinstance(cost_model, str) else cost_model


def called_cost_model(cost_model: str | CostModel | None) -> CostModel | None:
    """What a search calls for each state: None for the simulator, which it runs itself."""
    found = cost_model_of(cost_model)
    return None if isinstance(found, Simulated) else found
