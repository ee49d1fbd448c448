"""The pass `pooling_gradients`: the gradient of a padded max pool knows its padding.

    %p = pad %x by the least number, 0 and 1                   f32[1,65,64]
    %s = select_and_scatter %p, %gradient, no padding          f32[1,65,64]     ->     select_and_scatter %x, %gradient,
    slice %s [:, :64]                                          f32[1,64,64]              0 and 1 around

jax writes it so on CPU and GPU. In between is a dim that no axis divides, and what is left has tiles
(`core/ops/rules/select_and_scatter.py`, which emits the pad again).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from autopart.core.jax_internals import ir
from autopart.core.op import OpSpec
from autopart.core.op_spec_import import spec_of
from autopart.core.ops.rules.select_and_scatter import EXPANDED, least
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.passes.rewritten_as import mlir_type
from autopart.core.program import Program
from autopart.core.splats import splat_behind


@register_pass("pooling_gradients")
@dataclass(frozen=True)
class PoolingGradients(Pass):
    """A pad before, and a slice behind, the gradient of a max pool become its padding."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        found = np.array([spec.kind == "select_and_scatter" for spec in program.specs], np.bool_)
        if program.source is None or not found.any():
            return program
        rewriting = Rewriting(program)
        for op in np.flatnonzero(found[program.op_spec]).tolist():
            _take_in(rewriting, op)
        return rewriting.program()


def _take_in(rewriting: Rewriting, op: int) -> None:
    program, spec = rewriting.before, rewriting.before.spec(op)
    padded, *others = program.operands_of(op).tolist()
    pad = int(program.value_op[padded])
    padding = _padding(program, pad, spec)
    readers = _readers(program, int(program.result_ptr[op]))
    if padding is None or not readers or any(not _cuts(program.spec(r), padding) for r in readers):
        return
    value = int(program.operands_of(pad)[0])
    made = _padding_itself(rewriting, op, [value, *others], padding)
    number = rewriting.spec(spec_of(made), made)
    scope = int(program.op_scope[op])
    [result] = rewriting.add(number, [value, *others], scope, op, op)
    rewriting.mark(result, EXPANDED)
    for reader in readers:
        rewriting.replace(int(program.result_ptr[reader]), result)


def _padding(program: Program, pad: int, spec: OpSpec) -> list[tuple[int, int]] | None:
    """What a pad adds before and behind each dim, if it adds what no comparison selects and the op pads nothing."""
    made = program.spec(pad)
    if made.kind != "pad" or any(made.attributes["interior_padding"]) or np.any(spec.attributes.get("padding") or 0):
        return None
    fill, low, high = splat_behind(program, int(program.operands_of(pad)[1])), *_edges(made)
    known = least(spec) is not None and fill is not None and bool(fill == least(spec))
    return list(zip(low, high, strict=True)) if known and min(*low, *high) >= 0 else None


def _edges(pad: OpSpec) -> tuple[Sequence[int], Sequence[int]]:
    return pad.attributes["edge_padding_low"], pad.attributes["edge_padding_high"]


def _readers(program: Program, value: int) -> list[int]:
    """The ops that read a value; none where the program returns it or a tag names it."""
    pointer, uses = program.users
    named = value in program.output_place or value in program.tags_of
    return [] if named else program.use_op[uses[pointer[value] : pointer[value + 1]]].tolist()


def _cuts(spec: OpSpec, padding: list[tuple[int, int]]) -> bool:
    """True for a slice, or a pad that only cuts, of all but the padding."""
    shape = spec.operands[0].shape
    if spec.kind == "pad" and not any(spec.attributes["interior_padding"]):
        low, high = _edges(spec)
        return [(-a, -b) for a, b in zip(low, high, strict=True)] == padding
    if spec.kind != "slice" or set(spec.attributes["strides"]) != {1}:
        return False
    starts, limits = spec.attributes["start_indices"], spec.attributes["limit_indices"]
    return [(a, n - b) for a, b, n in zip(starts, limits, shape, strict=True)] == padding


def _padding_itself(rewriting: Rewriting, op: int, operands: list[int], padding: list[tuple[int, int]]) -> ir.Operation:
    """The op on what is not padded."""
    program = rewriting.before
    source = program.source.representatives[program.op_spec[op]]
    types = [program.type_of(value) for value in operands]
    arguments = ", ".join(f"%a{k}: {mlir_type(t)}" for k, t in enumerate(types))
    with source.context, source.location:
        module = ir.Module.parse(f"func.func @main({arguments}) {{\nreturn\n}}")
        block = module.body.operations[0].regions[0].blocks[0]
        made = source.clone(ip=ir.InsertionPoint.at_block_terminator(block)).operation
        for number, argument in enumerate(block.arguments):
            made.operands[number] = argument
        made.results[0].set_type(ir.Type.parse(mlir_type(types[0])))
        made.attributes["padding"] = ir.DenseElementsAttr.get(cast(Any, np.array(padding, np.int64)))
    rewriting.modules.append(module)
    return made
