"""How many groups of a convolution are one on a TPU, with zeros between them, where by itself none fills a tile.

    %y = convolution %x, %w      f32[16,28,28,128], 32 groups of 4 features

XLA:TPU takes a tile of the matrix unit for each group, and lays each out by itself: with 4 features of 128 along the
lanes, copied into that and back. As one group, whose kernel of 128 x 128 is zero but along its diagonal, it is a
convolution like any other. With libtpu 0.0.51 a step of a ResNeXt on v3:4x4 takes 0.23 of the compute so, and of 94
steps of one layer in groups none takes longer (`experiments/beside_jit`).
"""

from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Convolution, View
from autopart.core.program import Program

LANES = 128
"""Of a layout tile, and columns of a tile of the matrix unit."""

SUBLANES = 8

BESIDE, APART = 1.5, 2.0
"""A tile of groups that stay beside others takes as long as so many tiles of one group: of groups that fill whole
tiles, and of others. With these the least tiles are the least cycles, on v3 and v5e, of 24 to 192 features a group."""

WORTH_A_KERNEL = 4
"""Places for each feature of a larger group: of fewer the larger kernel takes longer than its groups did."""


@kernel
def merged(groups: int, inner: float, columns: float, images: float, places: float, of_tasks: bool) -> int:
    """How many groups are one: a divisor of their number, 1 where they stay as they are.

    inner, columns, images  features of one group that are read, features that are made, images; of the gradient of a
                            kernel the features of either side, and the images that are summed over
    places                  of all images that are read
    of_tasks                groups are the tasks of a `vmap`, which XLA reads in place; merged, they would be copied
    """
    lies_along_images = images >= LANES and min(inner, columns) >= SUBLANES
    if groups == 1 or of_tasks or (inner == 1 and columns == 1) or lies_along_images:
        return 1
    best, least = 1, np.inf
    for each in range(1, groups + 1):
        if groups % each == 0:
            tiles = _tiles(groups, inner, columns, each)
            if tiles <= least:
                best, least = each, tiles
    return best if places >= WORTH_A_KERNEL * best * max(inner, columns) else 1


@kernel
def _tiles(groups: int, inner: float, columns: float, each: int) -> float:
    """Tiles of the matrix unit that a convolution takes with so many groups as one."""
    tiles = groups / each * _tiles_along(inner * each) * _tiles_along(columns * each)
    if each == groups:
        return tiles
    return BESIDE * tiles if (inner * each) % LANES == 0 and (columns * each) % LANES == 0 else APART * tiles


@kernel
def _tiles_along(features: float) -> float:
    """Tiles along some features; neighbours of a window share those that are not filled, of more than a tile."""
    return max(1.0, features / LANES)


def is_in_groups(spec: OpSpec) -> bool:
    """True for a convolution in groups."""
    return isinstance(traits_of(spec), Convolution) and group_counts(spec) != (1, 1)


def group_counts(spec: OpSpec) -> tuple[int, int]:
    """Groups of a convolution's features, and of its images."""
    return spec.attributes["feature_group_count"], spec.attributes["batch_group_count"]


def grouped_convolutions(program: Program) -> dict[int, bool]:
    """The convolutions in groups, and whether these are tasks: it reads a reshape, as those that `vmap` makes."""
    grouped = np.array([is_in_groups(spec) for spec in program.specs], np.bool_)[program.op_spec]
    return {op: _reads_a_reshape(program, op) for op in np.flatnonzero(grouped).tolist()}


def _reads_a_reshape(program: Program, op: int) -> bool:
    maker = program.spec(int(program.value_op[program.operands_of(op)[0]]))
    return isinstance(traits_of(maker), View) and maker.operands[0].shape != maker.results[0].shape
