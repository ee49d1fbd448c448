"""What a state costs, which of two is better, and what an optimizer should minimise.

which is better    fits before not; then seconds; then peak bytes; then fewer actions
                   where neither fits: peak bytes; then seconds; then fewer actions
the objective      one number for the optimizer's eyes: seconds, with a penalty above the device's memory
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autopart.base.arguments import check_fields, number, shown
from autopart.base.errors import MeshError, PartitionError
from autopart.core.doors.user_function import called, name_of
from autopart.core.mesh import Mesh
from autopart.core.program import Program
from autopart.costmodel.compiled.arena import NEW, Kept, Room
from autopart.costmodel.compiled.fusion.left_out import LeftOut
from autopart.costmodel.compiled.layers.batch_period import MayWait, Repeats, repeats
from autopart.costmodel.compiled.simulator import Priced, Simulator
from autopart.costmodel.compiled.whole_program import WholeProgram
from autopart.costmodel.estimate import CostModel, priced_by
from autopart.costmodel.hardware.devices import device
from autopart.spmd.device_local import DeviceLocal


@dataclass(frozen=True)
class Cost:
    """Estimates of one state, per device.

    excess     peak bytes over the device's memory, as a share of it; 0 where it fits
    actions    number of tile and atomic actions that lead to it
    score      the objective's value; less is better
    """

    step_s: float
    peak_bytes: float
    excess: float
    actions: int
    score: float = math.inf

    @property
    def fits(self) -> bool:
        """Whether the step fits in the device's memory."""
        return self.excess <= 0

    @property
    def rank(self) -> tuple[float, ...]:
        """Of two costs, the one with the smaller rank is better; see the module."""
        excess = math.ceil(100 * self.excess) if math.isfinite(self.excess) else math.inf
        return (excess, self.score, self.peak_bytes, self.actions)

    def after(self, actions: int, objective: Objective) -> Cost:
        """The cost of what runs alike after another number of actions."""
        return scored(Cost(self.step_s, self.peak_bytes, self.excess, actions), objective)


Objective = Callable[[Cost], float]
"""Turns a cost (whose `score` is not set yet) into the number to minimise."""


@dataclass(frozen=True)
class StepSeconds:
    """The default objective: `step_s * (1 + penalty * excess)`.

    With the default penalty, a step that needs twice the memory there is counts as eleven times as long.
    """

    penalty: float = 10.0

    def __post_init__(self) -> None:
        check_fields(self, penalty=number(0))

    def __call__(self, cost: Cost) -> float:
        """The number to minimise."""
        return cost.step_s * (1 + self.penalty * cost.excess)


class ObjectiveError(PartitionError):
    """An objective that raises, or returns what is not a number to minimise."""


def score_of(objective: Objective, cost: Cost) -> float:
    """The objective's value; infinity is one: "never". Raises `ObjectiveError` naming the objective."""
    name, hint = f"the objective {name_of(objective)}", "`Cost -> float`, less is better"
    value: Any = called(ObjectiveError, name, objective, cost, beside=f", on {cost}", hint=hint)
    if isinstance(value, (str, bytes, type)) or not hasattr(value, "__float__") or getattr(value, "shape", ()) != ():
        raise ObjectiveError(f"{name} returned {shown(value)}", why=f"on {cost}", hint="a float to minimise")
    score = float(value)
    if math.isnan(score) or score == -math.inf:
        raise ObjectiveError(f"{name} returned {score}", why=f"on {cost}", hint="a number, or math.inf for never")
    return score


def scored(cost: Cost, objective: Objective) -> Cost:
    """The cost with the objective's value."""
    return Cost(cost.step_s, cost.peak_bytes, cost.excess, cost.actions, score_of(objective, cost))


def memory_bytes(mesh: Mesh) -> float:
    """Memory of the device that the mesh names; infinite where it names none."""
    return device(mesh.device).hbm_bytes if mesh.device is not None else math.inf


LARGE_OPS = 100_000
"""Runs of programs with so many ops have their arrays where those of the run before were."""


class StateCosts:
    """Costs of one program's lowerings on one mesh, by the simulator or by a cost model the user brings.

    `left_out` says what a program with fewer layers leaves out; runs have their arrays in `room`, one after the other.
    Raises `MeshError` where there is neither a device nor a cost model.
    """

    def __init__(
        self,
        program: Program,
        mesh: Mesh,
        cost_model: CostModel | None,
        objective: Objective,
        left_out: LeftOut | None = None,
        room: Room | None = None,
    ):
        if mesh.device is None and cost_model is None:
            raise MeshError(
                f"nothing to search by: the mesh {mesh} names no device",
                hint='ap.Mesh({...}, device="tpu_v3"), or cost_model=...',
            )
        self._mesh, self._cost_model, self._objective = mesh, cost_model, objective
        self._limit_bytes = memory_bytes(mesh)
        self._room = room or (Kept() if program.op_count >= LARGE_OPS else NEW)
        self._simulator = None
        if cost_model is None:
            self._simulator = Simulator.of(program, mesh, left_out=left_out, room=self._room)

    def __call__(self, local: DeviceLocal, actions: int) -> Cost:
        """The cost of a device-local program reached by that many actions."""
        if self._simulator is not None:
            run = self._simulator.run(local)
            cost = Cost(run.step_s, run.peak_bytes, self._excess(run.peak_bytes, None), actions)
        else:
            assert self._cost_model is not None
            found: Any = priced_by(self._cost_model, local, self._mesh)
            cost = Cost(found.step_s, found.peak_bytes, self._excess(found.peak_bytes, found), actions)
        return scored(cost, self._objective)

    def of_part(self, program: Program, left_out: LeftOut) -> StateCosts:
        """The same costs for a program with fewer layers."""
        return StateCosts(program, self._mesh, self._cost_model, self._objective, left_out, self._room)

    def of_whole(
        self, local: DeviceLocal, actions: int, whole: WholeProgram, priced: Priced | None = None
    ) -> Cost | None:
        """By a device-local program with fewer layers the cost of the whole one; None where that would not be exact."""
        if self._simulator is None or self._simulator.overlaps:
            return None
        totals = whole.totals(self._simulator.run(local, priced))
        if totals is None:
            return None
        cost = Cost(totals.step_s, totals.peak_bytes, self._excess(totals.peak_bytes, None), actions)
        return scored(cost, self._objective)

    def repeats(self, local: DeviceLocal, may_wait: MayWait) -> tuple[Repeats | None, Priced]:
        """Where batches of reductions repeat themselves, by a program with fewer layers; its prices."""
        assert self._simulator is not None
        priced, known = self._simulator.priced(local), self._simulator.known_plans
        combine_bytes = self._simulator.links.device.combine_bytes
        return repeats(may_wait, local.at_def, priced.rows, known.figures, known.kinds, combine_bytes), priced

    def _excess(self, peak_bytes: float, found: Any) -> float:
        over = max(0.0, peak_bytes / self._limit_bytes - 1)
        fits = getattr(found, "fits", None)
        if fits is None:
            return over
        return 0.0 if fits else over or 1.0
