"""Which ops take images that are cut into parts as they are: static facts for `few_images.py`.

    %y = convolution %x, %w                 images [b, h, w, f]: b are images, w may be cut
    %n = multiply %y, %scale                %scale is the same for all places of w: %n is cut as %y is
    %s = reduce %n over b, h, w             reads the parts; %s is whole
    %m = reduce %n over h, w                the parts of each image have to come together first
    %d = subtract %n, %m spread over h, w   cut as %n is; %m, which differs by image, is written for every place
    %r = reshape %n to [b, h, w, 16, f/16]  cut along the same dim
    %p = reduce_window %n                   cut, if the first window begins with the image; its gradient too

Tile mappings of an op say which dim of a result an operand's dim becomes. A window that begins before the images, in
their padding, reads whole images.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.rule import mappings_of, traits_of
from autopart.core.ops.traits import Constant, Convolution, LastSpace, Opaque, View
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.op_classes import CONV, ELEMENTWISE, REDUCE, SLICING

WHOLE_IMAGES, IN_PARTS, ANY_PLACE, SUMMED_UP, BY_IMAGE = range(5)
"""How an op reads an operand: as whole images; in parts, which makes its results parts; the same for all places along
the dim that is cut; in parts, all of which it sums up; the same for all places of an image, and not for all images."""


SAME_STEPS = 12
"""Ops back to which two values are compared: from what is spread to the sums that it is computed from."""


class ImageUses(NamedTuple):
    """reads int8[uses]: one of the five ways; spaces: `LastSpace` of convolutions, a row per distinct op, of which
    `is_one` is false for others; gradient bool[ops]: a convolution that sums over images, the gradient of a kernel;
    strides int64[ops]: of windows along the dim that is cut; of a convolution, of windows over what comes from it."""

    reads: np.ndarray
    spaces: np.ndarray
    gradient: np.ndarray
    strides: np.ndarray


class ImageDims(NamedTuple):
    """Dims of a value: of its images, and of the space that may be cut."""

    images: int
    space: int


SPACE_FIELDS = np.dtype([("is_one", np.bool_), *((name, np.int64) for name in LastSpace._fields)], align=True)


def image_uses(program: Program, op_class: np.ndarray) -> ImageUses:
    """The facts of a program; `op_class` is that of each op."""
    spaces = np.zeros(len(program.specs), SPACE_FIELDS)
    for row, spec in enumerate(program.specs):
        traits = traits_of(spec)
        if isinstance(traits, Convolution) and traits.last_space is not None and (space := traits.last_space(spec)):
            spaces[row] = (True, *space)
    found = ImageUses(
        np.zeros(len(program.operands), np.int8),
        spaces,
        np.zeros(program.op_count, np.bool_),
        np.ones(program.op_count, np.int64),
    )
    if spaces["is_one"].any():
        _Walk(program, found).walk(op_class)
    return found


class _Walk:
    """The walk over a program that fills in `found`.

    dims[value]   of values that come from a convolution
    same[value]   a bit for each dim along which all its elements are the same
    spread        the first value that is computed so of those that are spread over images
    computed      per value and steps back how it is computed, by its number in `numbers`
    """

    def __init__(self, program: Program, found: ImageUses):
        self.program, self.found = program, found
        self.dims: dict[int, ImageDims] = {}
        self.same: dict[int, int] = {}
        self.mappings: dict[int, tuple[TileMapping, ...]] = {}
        self.known: dict[Any, tuple[int, list[int], ImageDims | None]] = {}
        self.spread: dict[int, int] = {}
        self.computed: dict[tuple[int, int], int] = {}
        self.numbers: dict[tuple[int, ...], int] = {}

    def walk(self, op_class: np.ndarray) -> None:
        """Takes the ops in order."""
        program = self.program
        ptr, results, operands = program.operand_ptr.tolist(), program.result_ptr.tolist(), program.operands.tolist()
        for op, row in enumerate(program.op_spec.tolist()):
            given, result, kind, traits = operands[ptr[op] : ptr[op + 1]], results[op], op_class[op], self._traits(row)
            if kind == CONV:
                self._convolution(op, row, result, given)
            elif isinstance(traits, Constant):
                self.same[result] = -1
            elif given and (kind in (ELEMENTWISE, SLICING) or (isinstance(traits, View) and not traits.fence)):
                self._in_step(row, ptr[op], result, given)
            elif kind == REDUCE and given[0] in self.dims:
                self._reduction(op, row, ptr[op], result, given)
            elif isinstance(traits, Opaque) and traits.slides:
                self._spread_windows(op, row, ptr[op], result, given)
        if (self.found.strides > 1).any():
            self._ahead_of_windows(ptr, results, operands)

    def _traits(self, row: int) -> object:
        return traits_of(self.program.specs[row])

    def _mappings(self, row: int) -> tuple[TileMapping, ...]:
        if row not in self.mappings:
            self.mappings[row] = mappings_of(self.program.specs[row]) or ()
        return self.mappings[row]

    def _convolution(self, op: int, row: int, result: int, given: list[int]) -> None:
        space = self.found.spaces[row]
        if not space["is_one"]:
            return
        lhs, rhs = (self.dims[value].images if value in self.dims else -1 for value in given)
        self.found.gradient[op] = lhs == space["features"] or rhs == space["kernel_features"]
        if not self.found.gradient[op]:
            self.dims[result] = ImageDims(int(space["images_out"]), int(space["space_out"]))

    def _in_step(self, row: int, first: int, result: int, given: list[int]) -> None:
        """Finds the dims of an op's result, if all its operands have them or are the same along the space.

        Layers are alike: what was found for an op is so for an equal one that is given the same.
        """
        dims, same = tuple(map(self.dims.get, given)), tuple(self.same.get(value, 0) for value in given)
        if (row, dims, same) not in self.known:
            self.known[row, dims, same] = _carried(self.program.specs[row], self._mappings(row), dims, same)
        self.same[result], reads, left = self.known[row, dims, same]
        if left is not None:
            self.found.reads[first : first + len(given)] = reads
            self.dims[result] = left
            for use, value in enumerate(given):
                if reads[use] == BY_IMAGE and self.spread.setdefault(self._computed(value), value) != value:
                    self.found.reads[first + use] = ANY_PLACE

    def _computed(self, value: int, steps: int = SAME_STEPS) -> int:
        """A number for how a value is computed, equal for those that the compiler computes once."""
        if (value, steps) in self.computed:
            return self.computed[value, steps]
        program, how = self.program, (-1, value)
        op = int(program.value_op[value])
        first, end = program.operand_ptr[op], program.operand_ptr[op + 1]
        is_one = program.result_ptr[op + 1] - program.result_ptr[op] == 1
        if steps and is_one and end > first and not self.found.spaces["is_one"][program.op_spec[op]]:
            given = program.operands[first:end].tolist()
            how = (int(program.op_spec[op]), *(self._computed(operand, steps - 1) for operand in given))
        return self.computed.setdefault((value, steps), self.numbers.setdefault(how, len(self.numbers)))

    def _reduction(self, op: int, row: int, first: int, result: int, given: list[int]) -> None:
        """Windows leave parts, sums over images and space whole values."""
        spec, (images, space), summed = self.program.specs[row], self.dims[given[0]], set[int]()
        slides = len(spec.results[0].shape) == len(spec.operands[0].shape)
        for m in self._mappings(row):
            if not 0 <= m.results[0] < max(1, len(spec.results[0].shape)):
                summed.add(m.operands[0])
            elif slides and m.operands[0] == m.results[0] == space and _begins_inside(m):
                self.found.reads[first : first + len(given)] = [IN_PARTS] + [ANY_PLACE] * (len(given) - 1)
                self.dims[result] = ImageDims(images, space)
                self.found.strides[op] = spec.operands[0].shape[space] // spec.results[0].shape[space]
        if space in summed and (images in summed or spec.operands[0].shape[images] == 1):
            self.found.reads[first] = SUMMED_UP

    def _spread_windows(self, op: int, row: int, first: int, result: int, given: list[int]) -> None:
        """What is spread over windows of an array leaves parts like it, if both are in parts."""
        spec, dims = self.program.specs[row], tuple(map(self.dims.get, given))
        reads = [IN_PARTS if operand.shape else ANY_PLACE for operand in spec.operands]
        if (known := dims[0]) is None or any(
            of_use == IN_PARTS and other != known for of_use, other in zip(reads, dims, strict=True)
        ):
            return
        if any(m.operands[0] == m.results[0] == known.space and _begins_inside(m) for m in self._mappings(row)):
            self.found.reads[first : first + len(given)] = reads
            self.dims[result] = known
            self.found.strides[op] = spec.operands[0].shape[known.space] // spec.operands[1].shape[known.space]

    def _ahead_of_windows(self, ptr: list[int], results: list[int], operands: list[int]) -> None:
        """Convolutions leave parts that windows over what comes from them fit into."""
        wanted: dict[int, int] = {}
        for op in reversed(range(len(results) - 1)):
            stride, result = int(self.found.strides[op]), results[op]
            if self.found.spaces["is_one"][self.program.op_spec[op]]:
                self.found.strides[op] = wanted.get(result, 1)
            elif stride > 1:
                wanted[operands[ptr[op]]] = math.lcm(stride, wanted.get(operands[ptr[op]], 1))
            elif result in wanted:
                for use in range(ptr[op], ptr[op + 1]):
                    if self.found.reads[use] == IN_PARTS:
                        wanted[operands[use]] = math.lcm(wanted[result], wanted.get(operands[use], 1))


def _carried(
    spec: OpSpec, mappings: tuple[TileMapping, ...], dims: tuple[ImageDims | None, ...], same: tuple[int, ...]
) -> tuple[int, list[int], ImageDims | None]:
    """Dims along which an op's result is the same, how it reads its operands, and the dims of its result; None if that
    is not in parts. `dims` and `same` are those of its operands."""
    mappings = tuple(m for m in mappings if 0 <= m.results[0] < len(spec.results[0].shape))
    equal = sum(1 << m.results[0] for m in mappings if all(map(_is_same, same, m.operands)))
    i = next((i for i, known in enumerate(dims) if known is not None), -1)
    if i < 0 or (known := dims[i]) is None:
        return equal, [], None
    along = next((m for m in mappings if _keeps(spec, m, i, known.space)), None)
    reads = list(map(_reads, dims, same, along.operands)) if along is not None else [WHOLE_IMAGES]
    if along is None or WHOLE_IMAGES in reads:
        return equal, reads, None
    images = next((m for m in mappings if _keeps(spec, m, i, known.images)), None)
    if images is None:
        return equal, reads, ImageDims(known.images, along.results[0])
    for j, dim in enumerate(images.operands):
        if reads[j] == ANY_PLACE and not _is_same(same[j], dim):
            reads[j] = BY_IMAGE
    return equal, reads, ImageDims(images.results[0], along.results[0])


def _is_same(same: int, dim: int) -> bool:
    return dim == WHOLE or same >> dim & 1 == 1


def _reads(dims: ImageDims | None, same: int, dim: int) -> int:
    if _is_same(same, dim):
        return ANY_PLACE
    return IN_PARTS if dims is not None and dims.space == dim else WHOLE_IMAGES


def _keeps(spec: OpSpec, mapping: TileMapping, operand: int, dim: int) -> bool:
    """True if the whole dim of an operand becomes a dim of the result."""
    given, left = spec.operands[operand].shape, spec.results[0].shape
    return mapping.operands[operand] == dim and not mapping.reads and given[dim] == left[mapping.results[0]]


def _begins_inside(mapping: TileMapping) -> bool:
    """True for windows of which the first begins at the first element: what a tile reads begins as many windows ahead
    as it needs of what is spread over them."""
    stretch, spread = mapping.stretch(0), mapping.stretch(1) if len(mapping.operands) > 1 else None
    return stretch is None or stretch.low == (0 if spread is None else stretch.stride * spread.low)
