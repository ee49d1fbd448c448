"""What an op is to the cost model, to placement, to the importer and to text: stated beside its rule, by a `Traits`.

    @rule("transpose", traits=Elementwise(0, turns=..., cheap_to_regather=True, shown=("permutation",)), examples=...)
    @rule("dot_general", traits=Matmul(flop=...), examples=...)

    traits                      work                                   bytes read
    Structural, Constant, View  none                                   none: no kernel runs
    Elementwise(weight)         weight x result elements               operands
    Slicing                     none                                   what is kept of an operand, not all of it
    Reduction(flop)             flop, or one per operand element       operands
    Matmul(flop)                flop, on the matrix unit               operands
    Convolution(flop)           flop, on the matrix unit               operands
    Update(flop)                flop                                   the update, twice; the rest stays in place
    Opaque(flop, read_bytes)    flop; None if nobody knows             operands, or `read_bytes` of them
    Collective                  none                                   operands

One flop is one operation on one number: a multiply-add is two, whatever the element type. Work that no matrix unit does
is counted in operations of the vector unit, an add being one, so an exponential is 2 and a sine 198. XLA counts both
of those as one transcendental. Where our flop of an example are more than 5 % off XLA's own count, `flop_reason` says
why; `python -m autopart ops --flop` prints both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from autopart.core.op import OpSpec, TensorType, TileMapping
from autopart.core.ops.passages import Passages

Count = Callable[[OpSpec], float]
"""A figure of an op from its spec: flop, or bytes."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What all traits may state besides their work.

    cheap_to_regather  a stored parameter seen through the op still counts as stored: gathering anew beats keeping it
    cloned_per_use     computed anew for each use, wherever it reads no array (a scalar's broadcast, not an array's)
    passes             the ways in which a reduction pending on its operands passes through it (`passages.py`)
    passes_rounded     True for a spec that rounds parts otherwise than the whole: `LoweringOptions` say if they pass
    keeps_numbers      zeros stay zeros and ones stay ones, whatever the types
    stops_sums         why sums that could pass through it, since it is linear, do not
    read_through       on one device it is its operand, so a program is read as if the op were not there
    shown              attributes that a reader of the program's text needs
    by_index           numbers known at run time only say which elements it touches
    flop_reason        why our flop are not XLA's, where they differ by more than 5 %
    platforms          those whose XLA runs the op, for others jax writes it with other ops; empty: all
    """

    cheap_to_regather: bool = False
    cloned_per_use: bool = False
    passes: Passages | None = None
    passes_rounded: Callable[[OpSpec], bool] = lambda spec: False
    keeps_numbers: bool = False
    stops_sums: str = ""
    read_through: bool = False
    shown: tuple[str, ...] = ()
    by_index: bool = False
    flop_reason: str = ""
    platforms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Structural(Traits):
    """Arguments, loops and branches: nothing runs."""


@dataclass(frozen=True)
class Constant(Traits):
    """Made inside each consumer; written out only where a consumer cannot make it."""


@dataclass(frozen=True)
class View(Traits):
    """Each result is the memory of the operand in its place, under another name.

    fence  no reader computes what is before it, and nothing behind it runs before it
    """

    fence: bool = False


@dataclass(frozen=True)
class Collective(Traits):
    """A collective that the program itself has: the mesh's links say how long it takes.

    communicates  False for a spec whose groups are of one device: a view
    priced_as     the collective whose seconds it takes
    """

    communicates: Callable[[OpSpec], bool]
    priced_as: str


GPU_CYCLES = 5.0
"""Clock cycles of an operation of the vector unit on a GPU: between a multiplication's 3 and an addition's 7."""


@dataclass(frozen=True)
class Elementwise(Traits):
    """`weight` operations of the vector unit per result element; 0 for an op that only moves elements.

    cycles   clock cycles per element on a GPU, where XLA:GPU counts more than `GPU_CYCLES` for each operation
    turns    True for an op that moves another dim into the minor place, which costs the layout of what it reads
    spreads  True for an op that makes a row along the minor dim of each number
    joins    lays what it reads beside other elements, in one array
    sums     adds up the two arrays that it reads
    reverses turns dims around, which a convolution that reads it does by its window
    neutral  where one of its two operands is this number, it leaves the other as it is; None: no number is known
    counts   the dim along which an op of no operands counts
    """

    weight: float = 1.0
    cycles: float | None = None
    turns: Callable[[OpSpec], bool] | None = None
    spreads: Callable[[OpSpec], bool] | None = None
    joins: bool = False
    sums: bool = False
    reverses: bool = False
    neutral: float | None = None
    counts: Callable[[OpSpec], int] | None = None


@dataclass(frozen=True)
class Slicing(Traits):
    """Reads only what it keeps.

    indexed  rows of a table at an array of indices; never computed inside a consumer, which would keep the table alive
    one_per_row  True for a spec that reads at one index in each row of a batch: a slice once the batch is divided
    strided  True for an op that leaves out every other element of a dim, or more
    """

    indexed: bool = False
    one_per_row: Callable[[OpSpec], bool] = lambda spec: False
    strided: Callable[[OpSpec], bool] | None = None


@dataclass(frozen=True)
class Reduction(Traits):
    """Walks through its operands. Without `flop`: one operation per element; a view where there is nothing to sum.

    slides      a window over its operands: an element for each place of it
    chooses     it leaves one of the elements that it combines, so it may as well be given them rounded
    """

    flop: Count | None = None
    slides: bool = False
    chooses: Callable[[OpSpec], bool] = lambda spec: False


FEW_FEATURES = 8
"""An image of fewer features fills no row of a layout tile with them: those of a picture, of a mask."""


class Sides(NamedTuple):
    """Dims of a matrix product or convolution that lie in a tile of the matrix unit; all else streams through it.

    summed    of the left operand, those that are summed over
    columns   of the result, those from the right operand
    rows      of the result, those that lie in the tile in place of the summed ones
    taps      neighbours along a window, which may lie beside each other in a tile; 0 where each place of the window has
              a tile by itself, of which it fills one row
    batch     of the result, those along which there are separate products
    walked    multiply-adds done over those counted as flop: of the places of a window also those in padding and holes
    images    of the left operand, those that count images
    apart     of a convolution, into how many places one of an image is spread by holes behind it: no two images' places
              lie in one tile then, and columns of so many places of the result lie side by side
    groups    of a convolution in groups: how many lie side by side along what is summed over or the rows, along the
              columns, and along the images
    in_padding  multiply-adds over those counted as flop where places of a window in padding are done, too, but no holes
    behind    operands, 0 the left and 1 the right, whose dims of separate products do not all come first
    inner_last  what is summed over is the last dim of a convolution's right operand
    """

    summed: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    taps: int = 1
    batch: tuple[int, ...] = ()
    walked: float = 1.0
    images: tuple[int, ...] = ()
    apart: int = 1
    groups: tuple[int, int, int] = (1, 1, 1)
    in_padding: float = 1.0
    behind: tuple[int, ...] = ()
    inner_last: bool = False


@dataclass(frozen=True)
class Matmul(Traits):
    """Matrix products: two flop per multiply-add.

    repeats  True for a mapping whose loop divides no work: each device still does all flop of what it holds
    sides    the dims that fill a tile of the matrix unit; without it every product is taken to fill them
    alone    compilers call a kernel that is written for it: nothing is computed inside, nor it inside another, and
             arrays are read and written as they are
    """

    flop: Count
    repeats: Callable[[OpSpec, TileMapping], bool] | None = None
    sides: Callable[[OpSpec], Sides] | None = None
    alone: bool = False


@dataclass(frozen=True)
class Convolution(Traits):
    """Convolutions: two flop per multiply-add; `sides` as of a product.

    of_kernel   True for a convolution that is another one's gradient with respect to its kernel
    minor_dims  its features and its images, dims of the result: they lie inside layout tiles, dims of space do not
    on_vector   operations of XLA:TPU's vector unit, if it does the convolution and the matrix unit does not; else None
    matrix      False where `flop` are those operations
    """

    flop: Count
    sides: Callable[[OpSpec], Sides] | None = None
    minor_dims: Callable[[OpSpec], tuple[int, int]] = lambda spec: (len(spec.results[0].shape) - 1, 0)
    read_minor_dims: Callable[[OpSpec], tuple[int, int]] = lambda spec: (len(spec.operands[0].shape) - 1, 0)
    of_kernel: Callable[[OpSpec], bool] = lambda spec: False
    on_vector: Callable[[OpSpec], float | None] = lambda spec: None
    matrix: bool = True


@dataclass(frozen=True)
class Update(Traits):
    """Changes part of its first operand, in place where that is not needed any more.

    one_per_row  True for a spec that adds one element to each row, which XLA:TPU makes a select over all elements
    adds         True for a spec that adds to what is there
    """

    flop: Count
    one_per_row: Callable[[OpSpec], bool] = lambda spec: False
    adds: Callable[[OpSpec], bool] = lambda spec: False


class Products(NamedTuple):
    """What an op is made of: the flop of its products, and how often its numbers are copied between these."""

    flop: float
    copies: float


@dataclass(frozen=True)
class Opaque(Traits):
    """A kernel of its own: nothing is computed inside it, nor it inside another.

    flop        of the vector unit, or of the matrix unit if `matrix`, or of both as `Work`; None where nobody knows
    read_bytes  what it reads of its operands, where that is not all of them
    by_products  what the compilers of TPUs make of it instead, if they make products
    sorts       the dim along which it sorts, None if it does not
    slides      a window over its first operand: an element of the others for each place of it
    """

    flop: Callable[[OpSpec], float | Work | None]
    matrix: bool = False
    read_bytes: Count | None = None
    by_products: Callable[[OpSpec], Products] | None = None
    sorts: Callable[[OpSpec], int | None] = lambda spec: None
    slides: bool = False


UNKNOWN_FLOP = Opaque(flop=lambda spec: None)
"""Of ops without a rule, and of custom calls whose rule states nothing: bytes are counted, flop are not, and estimates
list them."""


class Work(NamedTuple):
    """Flop of a whole op, by the unit that does them."""

    matrix_flop: float
    vector_flop: float


def work(traits: Traits, spec: OpSpec) -> Work | None:
    """The work of an op that has these traits; None if nobody knows it.

    >>> add = OpSpec("add", {}, (TensorType((8, 4), "f32"),) * 2, (TensorType((8, 4), "f32"),))
    >>> work(Elementwise(), add), work(UNKNOWN_FLOP, add)
    (Work(matrix_flop=0.0, vector_flop=32.0), None)
    """
    match traits:
        case Elementwise(weight=weight):
            return Work(0.0, weight * elements(spec.results[0]) if spec.results else 0.0)
        case Matmul(flop=flop) | Convolution(flop=flop, matrix=True):
            return Work(float(flop(spec)), 0.0)
        case Update(flop=flop) | Convolution(flop=flop):
            return Work(0.0, float(flop(spec)))
        case Reduction(flop=flop):
            return Work(0.0, float(flop(spec)) if flop is not None else largest(spec.operands))
        case Opaque(flop=flop, matrix=matrix):
            known = flop(spec)
            if known is None or isinstance(known, Work):
                return known
            return Work(float(known), 0.0) if matrix else Work(0.0, float(known))
        case _:
            return Work(0.0, 0.0)


def only_moves(traits: Traits, spec: OpSpec) -> bool:
    """True for an op that leaves the elements of its one operand, perhaps in another order: a reshape, a transpose."""
    moves = isinstance(traits, View) or (isinstance(traits, Elementwise) and traits.weight == 0)
    return moves and len(spec.operands) == 1 and list(map(elements, spec.operands)) == list(map(elements, spec.results))


def combines_two(traits: Traits, spec: OpSpec) -> bool:
    """True for an op that makes each element of one element each of two arrays: a product with a number, repeated."""
    alike = len(spec.results) == 1 and (*spec.operands,) == (spec.results[0],) * 2
    return alike and isinstance(traits, Elementwise) and not traits.joins


def repeated_elements(traits: Traits, spec: OpSpec) -> float:
    """How many elements an op repeats in a larger array: those of what it broadcasts; 0 where it repeats none."""
    if not traits.cloned_per_use or len(spec.operands) != 1:
        return 0.0
    few = elements(spec.operands[0])
    return few if few < elements(spec.results[0]) else 0.0


def elements(type_: TensorType) -> float:
    """How many elements an array has."""
    return float(math.prod(type_.shape))


def largest(types: tuple[TensorType, ...]) -> float:
    """Elements of the largest of some arrays; 0 if there are none."""
    return max(map(elements, types), default=0.0)
