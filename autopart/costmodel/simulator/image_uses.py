"""Which ops take images that are cut into parts as they are: static facts for `few_images.py`.

    %y = convolution %x, %w                 images [b, h, w, f]: b are images, w may be cut
    %n = multiply %y, %scale                %scale is the same for all places of w: %n is cut as %y is
    %s = reduce %n over b, h, w             reads the parts; %s is whole
    %m = reduce %n over h, w                the parts of one image have to come together first
    %r = reshape %n to [b, h, w, 16, f/16]  cut along the same dim

Tile mappings of an op say which dim of a result an operand's dim becomes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.rule import mappings_of, traits_of
from autopart.core.ops.traits import Constant, Convolution, LastSpace, View
from autopart.core.program import Program
from autopart.costmodel.simulator.op_classes import CONV, ELEMENTWISE, REDUCE, SLICING

WHOLE_IMAGES, IN_PARTS, ANY_PLACE, SUMMED_UP = range(4)
"""How an op reads an operand: as whole images; in parts, which makes its results parts; the same for all places along
the dim that is cut; in parts, all of which it sums up."""


class ImageUses(NamedTuple):
    """reads int8[uses]: one of the four ways; spaces: `LastSpace` of convolutions, a row per distinct op, `no_images`
    where it is none; gradient bool[ops]: a convolution that sums over images, the gradient of a kernel."""

    reads: np.ndarray
    spaces: np.ndarray
    gradient: np.ndarray


SPACE_FIELDS = np.dtype([("is_one", np.bool_), *((name, np.int64) for name in LastSpace._fields)], align=True)


def image_uses(program: Program, op_class: np.ndarray) -> ImageUses:
    """The facts of a program; `op_class` is that of each op."""
    reads, gradient = np.zeros(len(program.operands), np.int8), np.zeros(program.op_count, np.bool_)
    spaces = np.zeros(len(program.specs), SPACE_FIELDS)
    for row, spec in enumerate(program.specs):
        if space := _last_space(spec):
            spaces[row] = (True, *space)
    if spaces["is_one"].any():
        _Walk(program, op_class, spaces, reads, gradient).walk()
    return ImageUses(reads, spaces, gradient)


def _last_space(spec: OpSpec) -> LastSpace | None:
    traits = traits_of(spec)
    return traits.last_space(spec) if isinstance(traits, Convolution) and traits.last_space is not None else None


class _Walk:
    """The walk over a program that finds them.

    dims[value]   its dims of images and of the space that may be cut; that of one image is where it was
    same[value]   a bit for each dim along which all its elements are the same
    """

    def __init__(
        self, program: Program, op_class: np.ndarray, spaces: np.ndarray, reads: np.ndarray, gradient: np.ndarray
    ):
        self.program, self.op_class, self.spaces = program, op_class, spaces
        self.reads, self.gradient = reads, gradient
        self.dims: dict[int, tuple[int, int]] = {}
        self.same: dict[int, int] = {}
        self.mappings = [None] * len(program.specs)

    def walk(self) -> None:
        program = self.program
        specs, ptr, operands = program.op_spec.tolist(), program.operand_ptr.tolist(), program.operands.tolist()
        for op, (spec, result) in enumerate(zip(specs, program.result_ptr.tolist(), strict=False)):
            given = operands[ptr[op] : ptr[op + 1]]
            kind = self.op_class[op]
            if kind == CONV:
                self._convolution(op, spec, result, given)
            elif isinstance(traits_of(program.specs[spec]), Constant):
                self.same[result] = -1
            elif given and (kind in (ELEMENTWISE, SLICING) or self._is_view(spec)):
                self._in_step(spec, ptr[op], result, given)
            elif kind == REDUCE and not self._windows(spec, ptr[op], result, given):
                self._reduction(spec, ptr[op], given)

    def _is_view(self, spec: int) -> bool:
        traits = traits_of(self.program.specs[spec])
        return isinstance(traits, View) and not traits.fence

    def _mappings(self, spec: int) -> tuple[TileMapping, ...]:
        if self.mappings[spec] is None:
            self.mappings[spec] = mappings_of(self.program.specs[spec]) or ()
        return self.mappings[spec]

    def _convolution(self, op: int, spec: int, result: int, given: list[int]) -> None:
        space = self.spaces[spec]
        if not space["is_one"]:
            return
        lhs, rhs = (self.dims.get(value, (-1, -1))[0] for value in given)
        self.gradient[op] = lhs == space["features"] or rhs == space["kernel_features"]
        if not self.gradient[op]:
            self.dims[result] = int(space["images_out"]), int(space["space_out"])

    def _in_step(self, spec: int, first: int, result: int, given: list[int]) -> None:
        """Finds the dims of an op's result, if all its operands have them or are the same along the space."""
        mappings = [m for m in self._mappings(spec) if 0 <= m.results[0] < len(self.program.specs[spec].results[0].shape)]
        same = 0
        for m in mappings:
            if all(d == WHOLE or self.same.get(v, 0) >> d & 1 for v, d in zip(given, m.operands, strict=True)):
                same |= 1 << m.results[0]
        self.same[result] = same
        known = next(((i, v) for i, v in enumerate(given) if v in self.dims), None)
        if known is None:
            return
        images, space = self.dims[known[1]]
        along = next((m for m in mappings if self._keeps(spec, m, known[0], space)), None)
        if along is None:
            return
        reads = [self._read(value, dim) for value, dim in zip(given, along.operands, strict=True)]
        if WHOLE_IMAGES in reads:
            return
        self.reads[first : first + len(given)] = reads
        carried = next((m.results[0] for m in mappings if self._keeps(spec, m, known[0], images)), images)
        self.dims[result] = carried, along.results[0]

    def _keeps(self, spec: int, mapping: TileMapping, operand: int, dim: int) -> bool:
        """True if the whole dim of an operand becomes a dim of the result."""
        given, left = self.program.specs[spec].operands[operand].shape, self.program.specs[spec].results[0].shape
        return mapping.operands[operand] == dim and not mapping.reads and given[dim] == left[mapping.results[0]]

    def _read(self, value: int, dim: int) -> int:
        if dim == WHOLE or self.same.get(value, 0) >> dim & 1:
            return ANY_PLACE
        return IN_PARTS if value in self.dims and self.dims[value][1] == dim else WHOLE_IMAGES

    def _windows(self, spec: int, first: int, result: int, given: list[int]) -> bool:
        """True for windows of parts, of which each begins in the part that it reads most of."""
        if given[0] not in self.dims:
            return False
        images, space = self.dims[given[0]]
        for m in self._mappings(spec):
            begins = not m.reads or m.reads[0] is None or m.reads[0].low == 0
            if m.operands[0] == space and m.results[0] == space and begins:
                self.reads[first : first + len(given)] = [IN_PARTS] + [ANY_PLACE] * (len(given) - 1)
                self.dims[result] = images, space
                return True
        return False

    def _reduction(self, spec: int, first: int, given: list[int]) -> None:
        rank = len(self.program.specs[spec].results[0].shape)
        for i, value in enumerate(given):
            if value in self.dims:
                summed = {m.operands[i] for m in self._mappings(spec) if not 0 <= m.results[0] < max(rank, 1)}
                images, space = self.dims[value]
                one = self.program.specs[spec].operands[i].shape[images] == 1
                if space in summed and (one or images in summed):
                    self.reads[first + i] = SUMMED_UP
