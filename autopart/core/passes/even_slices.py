"""The pass `even_slices`: what is sliced to a length that no axis divides is as long as what it is a slice of.

    %h = slice %logits [:, :-1]       f32[16,2047,V]     ->    %logits itself                    f32[16,2048,V]
    %y = slice %tokens [:, 1:]        i32[16,2047]             pad %tokens by -1 and 1           i32[16,2048]
    %t = reduce(loss) by add          f32[16,2047]             reduce(select(iota < 2047, loss, 0)) by add

The next token's loss, differences of neighbours and stencils are written so. Tiles of 2048 are then tiles all along,
and a shift is an exchange between neighbours, where everything was gathered. `padding/` makes the ops longer and masks
what is added. It is done where a small part of a dim is cut off, and where less is sliced afterwards than before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.passes.groups import MOST
from autopart.core.passes.padding import PaddedDims, written_longer
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.program import Program

EVENER = 8
"""How many times as many devices must be able to share the longer dim."""

LEAST_KEPT = 8
"""At most one in so many places of a dim may be cut off."""


@register_pass("even_slices")
@dataclass(frozen=True)
class EvenSlices(Pass):
    """Slices that leave out at most one in `least_kept` places of a dim become as long as the dim."""

    least_kept: int = LEAST_KEPT

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        if program.source is None:
            return program
        wanted = dict(self._shortened(program))
        while wanted:
            dims = PaddedDims(program)
            dims.ask(wanted)
            kept = _worth_it(dims, wanted)
            if kept == wanted:
                return written_longer(program, dims)
            wanted = kept
        return program

    def _shortened(self, program: Program) -> Iterable[tuple[tuple[int, int], int]]:
        """((value, dim), the size of what it is a slice of) of slices that are a little shorter and less even."""
        found = {number: dims for number, spec in enumerate(program.specs) if (dims := self._dims(spec))}
        shortened = np.zeros(len(program.specs), np.bool_)
        shortened[list(found)] = True
        for op in np.flatnonzero(shortened[program.op_spec]).tolist():
            for dim, size in found[int(program.op_spec[op])]:
                yield (int(program.result_ptr[op]), dim), size

    def _dims(self, spec: OpSpec) -> list[tuple[int, int]]:
        if spec.kind != "slice" or set(spec.attributes["strides"]) != {1}:
            return []
        sizes = zip(spec.operands[0].shape, spec.results[0].shape, strict=True)
        return [(dim, long) for dim, (long, short) in enumerate(sizes) if is_shortened(long, short, self.least_kept)]


def is_shortened(long: int, short: int, least_kept: int = LEAST_KEPT) -> bool:
    """True if a small part of a dim is cut off, and what is left is of a length that axes do not divide."""
    return 0 < (long - short) * least_kept <= long and ways(long) >= EVENER * ways(short)


def ways(size: int) -> int:
    """Into how many tiles, a power of two, a dim may be cut; more than there are devices are not counted."""
    return math.gcd(size, MOST)


def _worth_it(dims: PaddedDims, wanted: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """Of what was asked for, the parts for which fewer bytes are sliced than before."""
    program, parts = dims.program, _Parts()
    for op, joined in dims.joined.items():
        for one in joined:
            keys = [(value, dim) for value, dim, _ in (*one.operands(program), *one.results(program))]
            parts.join((op, one.mapping), *keys)
    before, after = dict[object, float](), dict[object, float]()
    for value, dim in wanted:
        if (value, dim) in parts:
            part = parts.of((value, dim))
            before[part] = before.get(part, 0.0) + program.type_of(value).bytes
    for value, sizes in dims.sizes.items():
        for dim in sizes:
            if dims.is_cut(value, dim):
                part = parts.of((value, dim))
                after[part] = after.get(part, 0.0) + program.type_of(value).bytes
    worth = {part for part, sliced in before.items() if after.get(part, 0.0) < sliced}
    return {key: size for key, size in wanted.items() if key in parts and parts.of(key) in worth}


class _Parts:
    """Things in groups that have nothing to do with one another."""

    def __init__(self) -> None:
        self._above: dict[object, object] = {}

    def __contains__(self, thing: object) -> bool:
        return thing in self._above

    def of(self, thing: object) -> object:
        """What stands for the group of a thing."""
        above = self._above.setdefault(thing, thing)
        while above != thing:
            self._above[thing] = self._above[above]
            thing, above = above, self._above[above]
        return thing

    def join(self, *things: object) -> None:
        """Makes one group of the groups of some things."""
        for thing in things[1:]:
            self._above[self.of(thing)] = self.of(things[0])
