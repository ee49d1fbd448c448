"""A cost model: the simulator's, with a step that takes as long as the energy for its bytes is worth."""

from dataclasses import dataclass, replace

import autopart as ap
from autopart.costmodel import DeviceLocal, estimate


@ap.register_cost_model("acme_energy")
@dataclass(frozen=True)
class Energy:
    """Seconds per byte are made up."""

    s_per_byte: float = 1e-9

    def __call__(self, local: DeviceLocal, mesh: ap.Mesh) -> ap.Estimate:
        """See `ap.CostModel`."""
        found = estimate(local, mesh)
        return replace(found, step_s=self.s_per_byte * found.bytes)
