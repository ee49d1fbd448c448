"""Schedules of the UNet beside the same decisions as a single tactic: python -m experiments.incremental."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

import autopart as ap
from autopart.api.tactics.schedule import run_schedule
from autopart.core.program import Program
from autopart.core.table.actions import Action, Propagate
from autopart.core.table.conflicts import conflicts
from autopart.core.table.partitioning import Partitioning
from experiments.kept import write
from experiments.models import unet
from experiments.models.tactics import UNET_BP, UNET_MP, UNET_Z2, UNET_Z3

RESULTS = Path(__file__).with_name("results.json")
MESH = ap.Mesh({"batch": 8, "model": 2}, device="tpu_v3")
SCHEDULES = {"BP+Z2": [UNET_BP, UNET_Z2], "BP+Z3": [UNET_BP, UNET_Z3], "BP+MP": [UNET_BP, UNET_MP]}


@dataclass(frozen=True)
class SingleTactic:
    """The decisions of several tactics, with no propagation between them."""

    tactics: Sequence[ap.ManualPartition]
    name: str = "single tactic"

    def act(self, partitioning: Partitioning, context: Any) -> ap.TacticResult:
        """See `Tactic.act`."""
        actions: list[Action] = []
        for tactic in self.tactics:
            for _, _, asked in tactic.asked(partitioning):
                if not isinstance(asked, str):
                    partitioning.apply(asked)
                    actions.append(asked)
        partitioning.propagate()
        return ap.TacticResult([*actions, *map(Propagate, partitioning.mesh.axis_names)])


def main() -> None:
    config = unet.Config()
    step = ap.jit(unet.step(config), MESH, [], donate_argnums=(0, 1))
    program = step.lower(*unet.abstract_args(config)).traced.program
    rows = [measured(program, name, schedule) for name, schedule in SCHEDULES.items()]
    for row in rows:
        print(row["schedule"], row["incremental"], row["single"], f"{row['slowdown']:.3f}")
    kept = {"jax": jax.__version__, "mesh": MESH.shape, "rows": rows}
    write(RESULTS, kept)


def measured(program: Program, name: str, schedule: list[ap.ManualPartition]) -> dict[str, Any]:
    """Both ways, and how many times slower the single tactic is."""
    incremental, single = (figures(program, tactics) for tactics in (schedule, [SingleTactic(schedule)]))
    slowdown = single["step_s"] / incremental["step_s"]
    return {"schedule": name, "incremental": incremental, "single": single, "slowdown": slowdown}


def figures(program: Program, schedule: Sequence[ap.Tactic]) -> dict[str, Any]:
    found = run_schedule(program, MESH, schedule)
    assert found.estimate is not None
    return {
        "step_s": found.estimate.step_s,
        "peak_bytes": found.estimate.peak_bytes,
        "fits": found.estimate.fits,
        "conflicts": len(conflicts(found.partitioning)),
    }


if __name__ == "__main__":
    main()
