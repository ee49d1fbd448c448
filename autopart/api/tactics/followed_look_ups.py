"""The step that ends what is written by hand of a schedule: rows that are looked up by whole indices are tiled.

See `looked_up_rows.py`. It comes after the last tactic, since a later one may divide otherwise what reads the
rows, as Megatron does behind a look-up of tokens, and before a search. It is priced along each axis, and kept where the
axis divides more of the flop by it and the step is faster.
"""

from __future__ import annotations

from autopart.core.table.actions import Action, Propagate
from autopart.core.table.looked_up_rows import looked_up, tile_looked_up
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.estimate import estimate
from autopart.costmodel.flop_shares import IDLE_SHARE, flop_shares, op_flop
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.spmd.device_local import LoweringOptions


def follow_look_ups(partitioning: Partitioning, options: LoweringOptions) -> list[Action]:
    """The actions of that step, which are applied; none where the mesh names no device, so that nothing is priced."""
    taken: list[Action] = []
    for axis in partitioning.mesh.axis_names if partitioning.mesh.device is not None else ():
        if not any(looked_up(partitioning, axis)):
            continue
        mark, (share, before) = partitioning.mark(), _priced(partitioning, options, axis)
        tiles = tile_looked_up(partitioning, axis)
        divides, after = _priced(partitioning, options, axis)
        if after < before and divides > share + IDLE_SHARE:
            taken += [*tiles, Propagate(axis)]
        elif tiles:
            partitioning.undo(mark)
    return taken


def _priced(partitioning: Partitioning, options: LoweringOptions, axis: str) -> tuple[float, tuple[bool, float]]:
    """The share of the flop that an axis divides, and (too large, seconds)."""
    lowered = lower_for_device(partitioning, options)
    price = estimate(lowered, partitioning.mesh)
    share = flop_shares(op_flop(partitioning.program), lowered).get(axis, 0.0)
    return share, (not price.fits, price.step_s)
