"""How many layout tiles a device copies where places of an image are taken together as features (`patches.py`), or are
repeated (`repeats.py`)."""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import LocalArrays, Lowered, ProgramArrays
from autopart.costmodel.simulator.facts.patches import TOGETHER
from autopart.costmodel.simulator.facts.repeats import REPEATS, SUMS
from autopart.costmodel.simulator.local.few_images import filled_lanes, local_length
from autopart.costmodel.simulator.sizes import LANES_BIT

MOVED_TILE = 21.7
"""Numbers that are put along a row each while a tile is copied."""

SUMMED_TILE = 28.0
"""The same while a tile is added to what was repeated."""

FEWEST_IMAGES = 32
"""Of fewer images along the lanes the compiler puts down no cycles."""


@kernel
def moved_numbers(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> float:
    """Numbers that could be put along a row each while an op that is marked in `moved` copies or sums up its tiles."""
    first, result = program.operand_ptr[op], program.result_ptr[op]
    if program.ops.moved[op] == SUMS:
        read = program.uses.operands[first]
        return SUMMED_TILE * _repeated_tiles(program, lowered, read, held.uses.use_elements[first])
    elements = held.values.native_elements[result]
    if program.ops.moved[op] == REPEATS:
        return MOVED_TILE * _repeated_tiles(program, lowered, result, elements)
    return MOVED_TILE * _moved_tiles(program, lowered, op, elements)


@kernel
def _moved_tiles(program: ProgramArrays, lowered: Lowered, op: int, elements: float) -> float:
    """Layout tiles, or as many as take so long, that a transpose in `Patches.moved` copies for a result of so many
    elements on a device; none where nothing is padded."""
    rows, lanes = lowered.layout_tile
    value, mark = program.result_ptr[op], np.int64(program.ops.moved[op])
    layout, front = lowered.native[value], mark % TOGETHER - 1
    if lanes == 1:
        return 0.0
    features = local_length(program, lowered, value, layout, front + 1)
    images = local_length(program, lowered, value, layout, 0)
    near = local_length(program, lowered, value, layout, front)
    if filled_lanes(images) < filled_lanes(features):
        if images < FEWEST_IMAGES:
            return 0.0
        return elements * filled_lanes(images) / (rows * lanes) * (0.5 if images % lanes == 0 else 1.0)
    tiles = elements * filled_lanes(features) / (rows * lanes)
    if near % rows == 0:
        return 0.5 * tiles
    return tiles * rows / min(near, rows) if mark >= TOGETHER else tiles


@kernel
def _repeated_tiles(program: ProgramArrays, lowered: Lowered, value: int, elements: float) -> float:
    """Layout tiles of a value of so many elements on a device: of images, and of heads whose tokens lie along the lanes
    where features do not fill these; none where nothing is padded."""
    rows, lanes = lowered.layout_tile
    last, layout = np.int64(program.values.rank[value]) - 1, lowered.native[value]
    if lanes == 1:
        return 0.0
    filled = filled_lanes(local_length(program, lowered, value, layout, last))
    for d in range(last):
        if d == 0 or np.int64(program.values.outer[value]) & LANES_BIT << d:
            filled = min(filled, filled_lanes(local_length(program, lowered, value, layout, d)))
    return elements * filled / (rows * lanes)
