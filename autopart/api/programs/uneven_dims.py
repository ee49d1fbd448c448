"""Dims of arguments and tagged values that an axis does not divide, as paddings that a search may choose.

    table f32[50257,768], tokens i32[66,1024]     mesh {data: 4, model: 8}

    50,257   to a multiple of 32    41 % of the flop      ap.Pad({"params/table": (0, 32)})
    66       to a multiple of 4     99 %                  ap.Pad({"tokens": (0, 4)}): 32 would add too many

Dims of one size are padded together: sizes that meet have to stay equal. A tag names what no argument has: 25 heads of
64 in a dim of 1,600, `ap.tag("heads", q.reshape(b, s, 25, 64))`. Padding goes from these values through the ops
that it makes longer (`core/passes/padding/`), and their flop say whether it could matter; costs say whether it pays.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from autopart.api.tactics.pad_tactic import Pad
from autopart.api.tracing.globs import with_globs
from autopart.api.tracing.names import Keys, Names, named_values
from autopart.core.mesh import Mesh
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise
from autopart.core.passes.padding import PaddedDims
from autopart.core.program import Program
from autopart.costmodel.flop_shares import IDLE_SHARE, op_flop

MOST = 4
"""Sizes that are padded on trial, those with most flop: each costs the named schedules once more."""

LARGEST_GROWTH = 1 / 8
"""Share of a dim that is added for an axis beside the first."""

Place = tuple[int, int]
"""(value, dim)."""


def uneven_dims(program: Program, mesh: Mesh, axes: Sequence[str]) -> list[Pad]:
    """A padding for each size that some axis does not divide, with which most flop can be divided first.

    A size that is smaller than the axes, or whose ops have less than `IDLE_SHARE` of the flop, is none.
    """
    flop, found = op_flop(program), list[tuple[float, Pad]]()
    for size, places in _places(program).items():
        sizes = [mesh.shape[axis] for axis in axes]
        if any(size > n and size % n for n in sizes):
            multiple = _multiple(size, sizes)
            longer = PaddedDims(program)
            longer.ask(dict.fromkeys(places, -(-size // multiple) * multiple))
            share = float(flop[list(longer.joined)].sum()) / max(float(flop.sum()), 1.0)
            if share >= IDLE_SHARE:
                found.append((share, _pad(program, places, multiple)))
    found.sort(key=lambda one: -one[0])
    return [pad for _, pad in found[:MOST]]


def both(pad: Pad, other: Pad) -> Pad:
    """What two paddings of this module make longer."""
    inputs = {name: list(pairs) for name, pairs in pad.inputs.items()}
    for name, pairs in other.inputs.items():
        inputs.setdefault(name, []).extend(pairs)
    return Pad(inputs)


def _places(program: Program) -> Mapping[int, list[Place]]:
    """Size -> where arguments have it; tagged values, where none of them does.

    What is read element by element alone, such as optimizer state, is padded where it meets the others, not by itself.
    """
    named, found = Keys(program).arguments, dict[int, list[Place]]()
    for value in program.arguments:
        if value in named:
            for dim, size in enumerate(program.type_of(value).shape):
                found.setdefault(size, []).append((value, dim))
    met = {value for value in program.arguments if not _is_elementwise(program, value)}
    sizes = {size: [p for p in places if p[0] in met] or places for size, places in found.items()}
    return {**_tagged_places(program), **sizes}


def _tagged_places(program: Program) -> dict[int, list[Place]]:
    """The same for values that tags name, such as heads that are split off a merged dim."""
    found: dict[int, list[Place]] = {}
    for value in _tags(program):
        for dim, size in enumerate(program.type_of(value).shape):
            found.setdefault(size, []).append((value, dim))
    return found


def _tags(program: Program) -> dict[int, str]:
    """Tagged value -> the key of its tag, where that names nothing else."""
    others = {named.head for named in named_values(program) if named.name not in program.tags}
    plain = [tag for tag in program.tags if tag not in others and tag == re.sub(r"[*?[]", "", tag)]
    return {value: tag for tag in plain for value in program.tags[tag]}


def _is_elementwise(program: Program, value: int) -> bool:
    """True if each op that reads the value works element by element."""
    pointer, uses = program.users
    readers = np.unique(program.use_op[uses[pointer[value] : pointer[value + 1]]])
    return all(isinstance(traits_of(program.spec(int(op))), Elementwise) for op in readers)


def _multiple(size: int, axes: Sequence[int]) -> int:
    """The product of as many axes as can tile the dim with little added; where none can, the one that adds least."""
    products = {math.prod(some) for n in range(1, len(axes) + 1) for some in itertools.combinations(axes, n)}
    added = {product: -size % product for product in products if product < size}
    added = {multiple: more for multiple, more in added.items() if more}
    few = [multiple for multiple, more in added.items() if more <= LARGEST_GROWTH * size]
    return max(few) if few else min(added, key=lambda multiple: (added[multiple], -multiple))


def _pad(program: Program, places: Sequence[Place], multiple: int) -> Pad:
    named, pairs = {**_tags(program), **Keys(program).arguments}, dict[int, tuple[tuple[int, int], ...]]()
    for value, dim in places:
        pairs[value] = (*pairs.get(value, ()), (dim, multiple))
    inputs = with_globs(list(dict.fromkeys((named[v], each) for v, each in pairs.items())), Names.of(program))
    return Pad({name: list(each) for name, each in inputs.items()})
