"""Arrays that are written because several slices are taken of them, or because they are laid beside others.

    %y = exp %x                        f32[256,256,1024]
    %e = slice %y [:, ::2]             XLA:TPU writes %y: it computes nothing inside a slice with strides, nor inside a
    %o = slice %y [:, 1::2]            pad or a concatenation
    %h = slice %y [:, :128]            one slice without strides, and nothing else, is computed of %x

    %z = concatenate %y, %b            laid out inside whatever reads it, however many do, be they products:
    %p = dot %z, %w                    %y and %b are read there, and %y is written
    %q = dot %z, %v

    %j = concatenate %a, %b            of arguments alone: inside one reader; written for two, part by part
    %k = pad %a                        inside all that read it

    %z = concatenate %y, %b            a convolution computes nothing of parts inside: %n is written, in bf16 where it
    %n = add (multiply %z, %s), %t     alone reads it; else in f32, and what is computed of it for the convolution alone
    %c = convolution (max %n, 0), %w   is computed there. A DenseNet writes each of its norms so

What is looked up in whole rows of lanes and what a scatter or a loop leaves goes for an argument: there is nothing that
could be computed where it comes to lie. What an associative scan combines is written at each of its levels so. Found
with libtpu 0.0.51 on v5e, in such scans of a model of states and in a hundred programs of two to four ops.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Convolution, Elementwise, Matmul, Slicing, View
from autopart.core.program import Program
from autopart.costmodel.compiled.facts.op_classes import looks_up
from autopart.costmodel.compiled.facts.reshape_barriers import is_view

NESTED, BY_PARTS = 1, 2
"""How parts are laid beside each other: inside each reader, or written one by one."""


class CutArrays(NamedTuple):
    """What is written for slices, pads, concatenations and readers of these; how parts are laid beside each other.

    written     bool[values]
    multiplied  bool[values]: parts of what a product reads, which are written however little they are computed
    laid        int8[values]: NESTED, BY_PARTS, 0 for what is no concatenation or pad, or which a convolution reads
    """

    written: np.ndarray
    multiplied: np.ndarray
    laid: np.ndarray


def _is_slice(spec: OpSpec) -> bool:
    return isinstance(traits_of(spec), Slicing) and not looks_up(spec)


def _joins(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    return isinstance(traits, Elementwise) and traits.joins


def _reads_written(spec: OpSpec) -> bool:
    """True for an op whose operands are written, whoever else reads them."""
    traits = traits_of(spec)
    if isinstance(traits, Slicing):
        return traits.strided is not None and traits.strided(spec)
    return _joins(spec)


def _convolves(spec: OpSpec) -> bool:
    return isinstance(traits_of(spec), Convolution)


def _multiplies(spec: OpSpec) -> bool:
    return isinstance(traits_of(spec), Matmul)


def cut_arrays(program: Program, given: np.ndarray, lanes: int) -> CutArrays:
    """Those of a program; given: bool[ops], arguments and whatever else has results that no reader can compute."""

    def looks_up_lanes(spec: OpSpec) -> bool:
        return looks_up(spec) and sum(spec.results[0].shape[-1:]) % lanes == 0

    slices, joins, reads_written, views, convolves, multiplies, looked_up = (
        np.array([test(spec) for spec in program.specs], np.bool_)[program.op_spec]
        for test in (_is_slice, _joins, _reads_written, is_view, _convolves, _multiplies, looks_up_lanes)
    )
    written = np.zeros(program.value_count, np.bool_)
    readers = np.bincount(program.operands, minlength=program.value_count)
    first = np.zeros(len(program.operands), np.bool_)
    first[program.operand_ptr[:-1][slices]] = True
    written[program.operands[first & (readers[program.operands] > 1)]] = True
    merged = joins[program.value_op[program.operands]] & joins[program.use_op]
    written[program.operands[reads_written[program.use_op] & ~merged]] = True
    by_views = views[program.use_op]
    readers -= np.bincount(program.operands[by_views], minlength=program.value_count)
    readers += np.bincount(program.outputs, minlength=program.value_count)
    of_images = np.zeros(program.value_count, np.bool_)
    of_images[program.operands[convolves[program.use_op]]] = True
    multiplied = np.zeros(program.value_count, np.bool_)
    multiplied[program.operands[multiplies[program.use_op]]] = True
    behind, shown = program.operands[by_views], program.result_ptr[:-1][program.use_op[by_views]]
    for value, view in zip(behind[::-1], shown[::-1], strict=True):
        readers[value] += readers[view]
        of_images[value] |= of_images[view]
        multiplied[value] |= multiplied[view]
    given = (given | looked_up)[program.value_op]
    for value, view in zip(behind, shown, strict=True):
        given[view] = given[value]
    computes = np.bincount(program.use_op[~given[program.operands]], minlength=program.op_count) > 0
    joined = joins[program.value_op] & ~of_images
    nested = computes[program.value_op] | (readers == 1)
    laid = (np.where(nested, NESTED, BY_PARTS) * joined).astype(np.int8)
    parts = np.zeros(program.value_count, np.bool_)
    of_products = np.append((laid == NESTED) & multiplied, False)[program.result_ptr[:-1]]
    parts[program.operands[of_products[program.use_op]]] = True
    written |= _for_convolutions(program, laid == NESTED, convolves)
    return CutArrays(written, parts & ~given, laid)


def _for_convolutions(program: Program, nested: np.ndarray, convolves: np.ndarray) -> np.ndarray:
    """bool[values]: what is computed, element by element, of parts that lie beside each other inside it, and read by a
    convolution, or by what this alone computes of it."""
    found, of_parts = np.zeros(program.value_count, np.bool_), nested.copy()
    source = np.full(program.value_count, -1)
    if not nested.any() or not convolves.any():
        return found
    by_element = np.array([isinstance(traits_of(spec), Elementwise | View) for spec in program.specs], np.bool_)
    by_element, elements = by_element[program.op_spec], program.value_shape.prod(axis=1)
    users, use = program.users
    for op in np.flatnonzero(by_element).tolist():
        result = int(program.result_ptr[op])
        for read in program.operands_of(op).tolist():
            if of_parts[read] and elements[read] == elements[result] and not nested[result]:
                of_parts[result], source[result] = True, read
    inside, ends = np.zeros((2, program.value_count), np.bool_)
    for value in np.flatnonzero(of_parts & ~nested)[::-1].tolist():
        readers = program.use_op[use[users[value] : users[value + 1]]]
        into = convolves[readers] | by_element[readers] & inside[program.result_ptr[readers]]
        inside[value], ends[value] = into.all() and len(into) > 0, convolves[readers].any()
        found[value] = into.any() and not into.all()
    for value in np.flatnonzero(ends).tolist():
        above = value
        while above >= 0 and not found[above]:
            above = int(source[above])
        found[value] |= above < 0
    return found
