"""How a value comes to the stretches that a use reads, and what that costs beside the move to a tile.

    a convolution reads rows and their neighbours, rows tiled over a: label (1 | stretch 3, 0)

    by way of (1, 0)     all_permutes of the rows between neighbours, and a copy       12 us
    by way of (0, 0)     every device slices what it reads                              0 us, but the gather

A lowering takes what costs less (`spmd/redistribution/stretch_step.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from autopart.core.mesh import Mesh
from autopart.core.op import TensorType
from autopart.core.stretch import Stretch
from autopart.costmodel.compiled.links.redistribution_seconds import RedistributionSeconds
from autopart.search.ilp.labels import Label, distributed_types, in_tiles, stretches_of
from autopart.spmd.lowering.shared_stretches import may_share
from autopart.spmd.redistribution.stretch_step import stretch_steps, whole_on


def labels_on_the_way(
    label: Label, stretches: Sequence[tuple[int, Stretch]]
) -> Iterator[tuple[Label, tuple[bool, ...]]]:
    """(label without stretches, which of its stretched dims are whole in it): all from which stretches are read."""
    dims, tiles = [stretches[number][0] for number in stretches_of(label)], in_tiles(label)
    for whole in itertools.product((False, True), repeat=len(dims)):
        left_out = {dim + 1 for dim, is_whole in zip(dims, whole, strict=True) if is_whole}
        yield tuple(0 if code in left_out else code for code in tiles), whole


def stretch_ways(
    type_: TensorType, label: Label, stretches: Sequence[tuple[int, Stretch]], mesh: Mesh
) -> list[tuple[Label, float]]:
    """(label, seconds from there at least) of each way to what a use reads, over the orders of axes on a dim.

    One exchange may bring several stretches: of each it is a part, as many as there are.
    """
    numbers = list(stretches_of(label))
    dims = tuple(stretches[number] for number in numbers)
    price, found = RedistributionSeconds(mesh), list[tuple[Label, float]]()
    sharing = may_share(tuple(stretches), numbers[0]) if len(numbers) == 1 else 1
    for begin, whole in labels_on_the_way(label, stretches):
        seconds = [
            sum(
                price.step_seconds(step, type_.element_bytes).total_s
                for step in stretch_steps(between, to, dims, whole)
            )
            for to in distributed_types(type_.shape, in_tiles(label), mesh)
            for between in [whole_on(to, [dim for (dim, _), each in zip(dims, whole, strict=True) if each])]
        ]
        found.append((begin, min(seconds) / sharing))
    return found
