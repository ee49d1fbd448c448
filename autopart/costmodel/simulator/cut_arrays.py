"""Arrays that are written because several slices are taken of them, or because they are laid beside others.

    %y = exp %x                        f32[256,256,1024]
    %e = slice %y [:, ::2]             XLA:TPU writes %y: it computes nothing inside a slice with strides, nor inside a
    %o = slice %y [:, 1::2]            pad or a concatenation
    %h = slice %y [:, :128]            one slice without strides, and nothing else, is computed of %x
    %z = concatenate %y, %b            both are written, then put beside each other
    %p = dot %z, %w                    %z is written for a product, part by part: %y is computed where it comes to lie

What an associative scan combines is written at each of its levels so. Found with libtpu 0.0.51 on v5e, in such scans
of a model of states and in programs of two ops; for products in two networks of graphs.
"""

from __future__ import annotations

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise, Matmul, Slicing, Traits, View
from autopart.core.program import Program


def _is_slice(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    return isinstance(traits, Slicing) and not traits.indexed


def _reads_written(spec: OpSpec) -> bool:
    """True for an op whose operands are written, whoever else reads them."""
    traits = traits_of(spec)
    if isinstance(traits, Slicing):
        return traits.strided is not None and traits.strided(spec)
    return _joins(traits)


def _joins(traits: Traits) -> bool:
    return isinstance(traits, Elementwise) and traits.joins


def _is_view(spec: OpSpec) -> bool:
    return isinstance(traits_of(spec), View) and len(spec.operands) == len(spec.results) == 1


def cut_arrays(program: Program) -> np.ndarray:
    """bool[values]: what is written for slices, pads and concatenations."""
    slices, written = (
        np.array([test(spec) for spec in program.specs], np.bool_)[program.op_spec]
        for test in (_is_slice, _reads_written)
    )
    readers = np.bincount(program.operands, minlength=program.value_count)
    found = np.zeros(program.value_count, np.bool_)
    first = np.zeros(len(program.operands), np.bool_)
    first[program.operand_ptr[:-1][slices]] = True
    found[program.operands[first & (readers[program.operands] > 1)]] = True
    joins, multiplies = (
        np.array([test(traits_of(spec)) for spec in program.specs], np.bool_)[program.op_spec]
        for test in (_joins, lambda traits: isinstance(traits, Matmul))
    )
    multiplied = np.zeros(program.value_count, np.bool_)
    multiplied[program.operands[multiplies[program.use_op]]] = True
    views = np.array([_is_view(spec) for spec in program.specs], np.bool_)[program.op_spec]
    for op in np.flatnonzero(views)[::-1].tolist():
        multiplied[program.operands[program.operand_ptr[op]]] |= multiplied[program.result_ptr[op]]
    multiplied &= joins[program.value_op]
    written[program.value_op[multiplied]] = False
    found[program.operands[written[program.use_op]]] = True
    found |= multiplied
    return found
