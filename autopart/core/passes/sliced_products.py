"""The pass `sliced_products`: a product of which only slices are read is a product for each slice.

    %g = dot_general %dy, %w             f32[2048,2048]          %w0 = slice %w [:512]         f32[512,1024]
    slice %g [:, :512]                   f32[2048,512]     ->    dot_general %dy, %w0          f32[2048,512]
    slice %g [:, 512:]                   f32[2048,1536]          dot_general %dy, slice %w [512:]

The gradient of arrays that were joined before a product is written so, and a product for queries, keys and values. No
tile of the product is a tile of what reads it, so all of it would be computed, or exchanged; each of the products has
the tile that its reader wants. The operand that is sliced has to be smaller than the product, the slices apart, and all
products together may fill no more tiles of a matrix unit than the one did.

The slices are of %w reshaped to its own shape, `%v = reshape %w`: there it is gathered once for all products, if it is
stored in parts. No barrier stands there, behind which the gather could not be shared with other uses of %w.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rule import is_regathered
from autopart.core.ops.traits import elements
from autopart.core.passes.only_readers import only_read
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.passes.rewritten_as import Place, attributes_of, location_of, mlir_type, put_in
from autopart.core.program import Program

COLUMNS = 128
"""Columns of a matrix unit's tile: what a product is longer than whole tiles is computed as another tile."""


class _Cut(NamedTuple):
    """Dim `dim` of operand number `operand`, the product's `result_dim`, is read in `slices`: reader -> stretch."""

    operand: int
    dim: int
    result_dim: int
    slices: dict[int, range]


@register_pass("sliced_products")
@dataclass(frozen=True)
class SlicedProducts(Pass):
    """Products of which only slices are read become a product for each slice."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        found = np.array([spec.kind == "dot_general" for spec in program.specs], np.bool_)
        if program.source is None or not found.any():
            return program
        rewriting, (pointer, _) = Rewriting(program), program.users
        slices = np.array([spec.kind == "slice" for spec in program.specs], np.bool_)
        products = np.flatnonzero(found[program.op_spec])
        values = program.result_ptr[products]
        cut_up = only_read(program, slices[program.op_spec[program.use_op]])[values]
        for op in products[cut_up & (pointer[values + 1] - pointer[values] > 1)].tolist():
            cut = _cut(program, op)
            if cut is not None:
                _divide(rewriting, op, cut)
        return rewriting.program()


def _cut(program: Program, op: int) -> _Cut | None:
    """Where a product is cut, if it is read in slices of one dim alone and cutting its operand pays."""
    spec, value = program.spec(op), int(program.result_ptr[op])
    if value in program.output_place or value in program.tags_of:
        return None
    pointer, uses = program.users
    shape, slices, dims = spec.results[0].shape, {}, set()
    for reader in program.use_op[uses[pointer[value] : pointer[value + 1]]].tolist():
        taken = _taken(program.spec(reader), shape)
        if taken is None or program.op_scope[reader] != program.op_scope[op]:
            return None
        dims.add(taken[0])
        slices[reader] = taken[1]
    cut = _Cut(*_free(spec, dims.pop()), slices) if len(dims) == 1 else None
    return cut if cut is not None and cut.operand >= 0 and _pays(spec, cut) else None


def _taken(spec: OpSpec, shape: tuple[int, ...]) -> tuple[int, range] | None:
    """The one dim of which a slice takes a stretch, and the stretch."""
    if spec.kind != "slice" or set(spec.attributes["strides"]) != {1}:
        return None
    starts, limits = spec.attributes["start_indices"], spec.attributes["limit_indices"]
    taken = [(d, range(a, b)) for d, (a, b, n) in enumerate(zip(starts, limits, shape, strict=True)) if b - a != n]
    return taken[0] if len(taken) == 1 else None


def _free(spec: OpSpec, result_dim: int) -> tuple[int, int, int]:
    """(operand, its dim, the product's dim) of a dim of the product; operand -1 for a batching dim."""
    numbers = spec.attributes["dot_dimension_numbers"]
    place = len(numbers["lhs_batching_dimensions"])
    if result_dim >= place:
        for operand, side in enumerate(("lhs", "rhs")):
            bound = {*numbers[f"{side}_batching_dimensions"], *numbers[f"{side}_contracting_dimensions"]}
            free = [d for d in range(len(spec.operands[operand].shape)) if d not in bound]
            if result_dim < place + len(free):
                return operand, free[result_dim - place], result_dim
            place += len(free)
    return -1, -1, result_dim


def _pays(spec: OpSpec, cut: _Cut) -> bool:
    """True if the slices are apart, the operand is smaller than the product, and no more tiles are filled."""
    stretches = sorted(cut.slices.values(), key=lambda stretch: stretch.start)
    apart = all(a.stop <= b.start for a, b in pairwise(stretches))
    smaller = elements(spec.operands[cut.operand]) < elements(spec.results[0])
    tiles = sum(-(-len(stretch) // COLUMNS) for stretch in stretches)
    return apart and smaller and tiles <= -(-spec.results[0].shape[cut.result_dim] // COLUMNS)


def _divide(rewriting: Rewriting, op: int, cut: _Cut) -> None:
    """Puts the products in, and lets what read a slice read one of them."""
    program, place = rewriting.before, Place(int(rewriting.before.op_scope[op]), op, op)
    operands = program.operands_of(op).tolist()
    for k, value in enumerate(operands):
        if k == cut.operand or _follows_an_argument(program, value):
            [operands[k]] = put_in(rewriting, _as_it_is(rewriting, op, k), [value], place)
    for reader, stretch in cut.slices.items():
        result = program.spec(reader).results[0]
        text = _product_of_slice(rewriting, op, cut, stretch, result)
        [product] = put_in(rewriting, text, operands, place)
        rewriting.replace(int(program.result_ptr[reader]), product)


def _follows_an_argument(program: Program, value: int) -> bool:
    """True for what is gathered for each use, where it is stored in parts."""
    op = int(program.value_op[value])
    while is_regathered(program.spec(op)) and len(program.operands_of(op)):
        op = int(program.value_op[program.operands_of(op)[0]])
    return int(program.result_ptr[op]) in program.argument_place


def _as_it_is(rewriting: Rewriting, op: int, operand: int) -> str:
    """A function that reshapes an operand to its own shape: so it is gathered once for all products."""
    kind = mlir_type(rewriting.before.spec(op).operands[operand])
    return f"""func.func @main(%w: {kind}) -> {kind} {{
        %v = stablehlo.reshape %w : ({kind}) -> {kind} {location_of(rewriting, op)}
        return %v : {kind} {location_of(rewriting, op)}
    }}"""


def _product_of_slice(rewriting: Rewriting, op: int, cut: _Cut, stretch: range, result: TensorType) -> str:
    """A function of the product's operands that slices one of them and returns the product."""
    spec, line = rewriting.before.spec(op), location_of(rewriting, op)
    types, whole = [mlir_type(t) for t in spec.operands], spec.operands[cut.operand]
    ends = [(stretch.start, stretch.stop) if d == cut.dim else (0, n) for d, n in enumerate(whole.shape)]
    part = mlir_type(TensorType(tuple(b - a for a, b in ends), whole.dtype))
    arguments = ", ".join(f"%a{k}: {kind}" for k, kind in enumerate(types))
    taken = ", ".join(f"{a}:{b}" for a, b in ends)
    sides = ", ".join("%s" if k == cut.operand else f"%a{k}" for k in range(len(types)))
    kinds = ", ".join(part if k == cut.operand else kind for k, kind in enumerate(types))
    how = ", ".join(f"{name} = {attribute}" for name, attribute in attributes_of(rewriting, op).items())
    return f"""func.func @main({arguments}) -> {mlir_type(result)} {{
        %s = stablehlo.slice %a{cut.operand} [{taken}] : ({types[cut.operand]}) -> {part} {line}
        %p = "stablehlo.dot_general"({sides}) {{{how}}} : ({kinds}) -> {mlir_type(result)} {line}
        return %p : {mlir_type(result)} {line}
    }}"""
