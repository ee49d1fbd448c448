"""Products and convolutions that a vendor's library computes, as on a GPU.

    %m = multiply %x, %scale        f32[100352,1024]
    %a = add %m, %bias              read by the products of queries, keys and values, and by those of their gradients
    %q = dot_general %a, %w         each of the six computes %a for itself, into memory of its own

XLA joins what is cheap to a product's kernel of its own first. Where the library then turns out faster, as it does for
large ones, what was joined is left as a kernel for this product alone; so is a transpose. A product for each image and
head reads them one after the other: what lies with its rows before its heads is copied for each product that reads it.

A convolution runs through tiles of channels, and each place of its window sums over whole tiles; the gradient of a
kernel through tiles of both its channels, slower. Found on an H100 with jax 0.11.2 (`experiments/on_device`): 220
convolutions of a UNet and a ResNet in f32, and the kernels of 16 models.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.program import Program
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE, MATMUL

CHEAP = 1
"""Elementwise ops of at most this weight are computed again for each product."""

COPY_PASSES = 2.0
"""What is made once more is read and written."""


def operands_alone(
    program: Program, op_class: np.ndarray, weight: np.ndarray, is_view: np.ndarray, batches: np.ndarray,
    behind: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """int8[ops]: bits of a product's operands, 1 the left and 2 the right, that are made once more for it.

    What is given by op is as in `SpecCosts`."""
    found = np.zeros(program.op_count, np.int8)
    source = _sources(program, is_view)
    cheap = (op_class == ELEMENTWISE) & (weight <= CHEAP) & (_arrays_read(program) == 1)
    read: set[int] = set()
    for op in np.flatnonzero(op_class == MATMUL).tolist():
        for place, use in enumerate(range(program.operand_ptr[op], program.operand_ptr[op + 1])):
            value = int(source[program.operands[use]])
            maker = int(program.value_op[value])
            if batches[op] and behind[op] >> place & 1:
                found[op] |= (op_class[maker] != ELEMENTWISE or value in read) << place
            elif not batches[op] and cheap[maker]:
                found[op] |= (value in read) << place
            read.add(value)
    return found


def _sources(program: Program, is_view: np.ndarray) -> np.ndarray:
    """int[values]: what each is a view of, itself for most."""
    found = np.arange(program.value_count)
    for op in np.flatnonzero(is_view).tolist():
        found[program.result_ptr[op]] = found[program.operands[program.operand_ptr[op]]]
    return found


def _arrays_read(program: Program) -> np.ndarray:
    """int[ops]: operands that are no smaller array, or constant, spread out."""
    elements = program.value_shape.prod(axis=1)
    largest = np.zeros(program.op_count, elements.dtype)
    np.maximum.at(largest, program.use_op, elements[program.operands])
    is_array = largest[program.value_op] >= elements
    is_array[program.arguments] = True
    return np.bincount(program.use_op, is_array[program.operands], program.op_count)


@kernel
def unfilled_by_library(
    inner: float, columns: float, of_kernel: bool, tiles: tuple[float, float, float, float]
) -> float:
    """The work of a convolution with its channels filled up, over its work; `tiles` as in `LibraryCalls`, in order."""
    left, summed, kernel_tile, kernel_share = tiles
    if of_kernel:
        return _filled(inner, kernel_tile) * _filled(columns, kernel_tile) / kernel_share
    return _filled(inner, summed) * _filled(columns, left)


@kernel
def _filled(size: float, tile: float) -> float:
    """Whole tiles over what fills them; 1 where there is no such dim."""
    return np.ceil(size / tile) * tile / size if size > 0 else 1.0
