"""Which share of a program's flop each mesh axis divides.

    x [{batch},{}]  ->  reshape to [k, n/k, d]  ->  scan over k: dot, tanh, dot, ...

    flop of the ops that have a loop over "batch"                0
    flop of the program                                          5.5e11      share 0: every device computes everything

Flop are those of the whole, unpartitioned op, as its rule's traits state them, times how often it runs. A share does
not depend on the other axes, needs no device, and costs a product of two arrays once the flop of the distinct ops are
known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.compiled.facts.op_classes import op_work
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.lowering.gathered import tiled_dims

IDLE_SHARE = 0.01
"""An axis that divides less than this share of the flop is idle: however many devices it has, the step's arithmetic is
at most 1 % shorter for it. What is left below it is bookkeeping beside the model: masks, casts, an update of a bias."""

PARTLY_SHARE = 0.5
"""An axis that divides less than this is worth a note: at best it makes the arithmetic of a step half as long."""


@dataclass(frozen=True)
class AxisUse:
    """What a mesh axis is used for, and what it divides.

    axis      its name
    share     of the program's flop, 0 to 1, the part in ops that have a loop over the axis; None for a program without
    users     arguments that it tiles, by name, then values that a tactic tiled ("%12")
    state     True if it tiles nothing but state, arguments whose next value the program returns: memory is divided
    lost_at   where the largest tiled value stops being tiled: op kind, type and source line; "" if nowhere
    """

    axis: str
    share: float | None
    users: tuple[str, ...]
    state: bool
    lost_at: str

    @property
    def is_partial(self) -> bool:
        """True if the axis is used, but divides less than half the flop."""
        return bool(self.users) and self.share is not None and self.share < PARTLY_SHARE

    @property
    def is_idle(self) -> bool:
        """True if the axis is used, and not for storing state alone, but divides next to no flop."""
        return bool(self.users) and not self.state and self.share is not None and self.share < IDLE_SHARE

    def __str__(self) -> str:
        """`batch: used by x, divides 0 % of the flop; lost at dynamic_slice f32[16,512,64], train.py:12`."""
        more = f" and {len(self.users) - 3} more" if len(self.users) > 3 else ""
        lost = f"; lost at {self.lost_at}" if self.lost_at else ""
        users = ", ".join(self.users[:3]) + more
        users = f"state alone ({users})" if self.state else users
        divides = "divides no flop, since the program has none"
        if self.share is not None:
            divides = f"divides {percent(self.share)} of the flop"
        return f"{self.axis}: used by {users}, {divides}{lost}"


def percent(share: float) -> str:
    """A share in percent, in three digits: `0.031 %`, `4.21 %`, `99.7 %`."""
    return f"{100 * share:.3g} %"


def op_flop(program: Program) -> np.ndarray:
    """float64[ops]: flop of each op of the unpartitioned program in one step, loops counted by their trips.

    Ops whose flop nobody knows count as none.
    """
    works = [op_work(spec) for spec in program.specs]
    per_spec = np.array([w.matrix_flop + w.vector_flop if w else 0.0 for w in works], float)
    return per_spec[program.op_spec] * program.scope_trips[program.op_scope]


def flop_shares(flop: np.ndarray, local: DeviceLocal) -> dict[str, float]:
    """Axis -> share of the flop that it divides; empty for a program without flop. `flop` is `op_flop` of it."""
    total = flop.sum()
    return dict(zip(local.mesh.axis_names, (flop @ _loops(local) / total).tolist(), strict=True)) if total > 0 else {}


def divided(uses: tuple[AxisUse, ...]) -> dict[str, float]:
    """Axis -> the share of the flop that it divides; empty for a program without flop."""
    return {use.axis: use.share for use in uses if use.share is not None}


def axis_uses(flop: np.ndarray, partitioning: Partitioning, local: DeviceLocal) -> tuple[AxisUse, ...]:
    """What each mesh axis is used for and divides, in the mesh's order."""
    shares = flop_shares(flop, local)
    names = local.mesh.axis_names
    return tuple(_use_of(flop, partitioning, local, axis, shares.get(name)) for axis, name in enumerate(names))


def _loops(local: DeviceLocal) -> np.ndarray:
    """bool[ops, axes]: the op has a loop over the axis, and does not just pass the parts of a sum on."""
    return (local.mapping >= 0) & ((local.passing[:, None] >> np.arange(local.mapping.shape[1]) & 1) == 0)


def _use_of(
    flop: np.ndarray, partitioning: Partitioning, local: DeviceLocal, axis: int, share: float | None
) -> AxisUse:
    program = local.program
    arguments = np.flatnonzero(tiled_dims(local.settled[program.arguments], axis) >= 0).tolist()
    decided = np.flatnonzero(partitioning.state.action[:, axis] > 0)
    decided = decided[~partitioning.graph.is_argument[program.value_op[decided]]].tolist()
    tag_of = {value: tag for tag, values in program.tags.items() for value in values}
    names = [program.argument_names[a] for a in arguments]
    names += [tag_of.get(v, program.shown_name(v)) for v in decided]
    state = not decided and set(arguments) <= set(program.ties.values())
    lost = _lost_at(flop, local, axis) if names and share is not None and share < PARTLY_SHARE else ""
    return AxisUse(local.mesh.axis_names[axis], share, tuple(dict.fromkeys(names)), state, lost)


def _lost_at(flop: np.ndarray, local: DeviceLocal, axis: int) -> str:
    """The reader of the largest tiled value, of the ops that are not divided and leave no tiled result themselves."""
    program = local.program
    held = tiled_dims(local.settled, axis) >= 0
    goes_on = _loops(local)[:, axis] & (flop > 0)
    goes_on[program.value_op[held]] = True
    goes_on[program.value_op[program.arguments]] = True
    uses = np.flatnonzero(held[program.operands] & ~goes_on[program.use_op])
    if not len(uses):
        return ""
    values = program.operands[uses]
    size = program.value_shape[values].prod(axis=1, dtype=float) * program.element_bytes[values]
    use = int(uses[np.argmax(size)])
    op = int(program.use_op[use])
    where = program.where(op)
    return f"{program.spec(op).kind} of {program.type_of(int(program.operands[use]))}" + (f", {where}" if where else "")
