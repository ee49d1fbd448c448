"""The pass `joined_reductions`: what is joined and reduced over other dims is reduced part by part, and then joined.

    %g = concatenate %up, %gate        f32[8,1024,4096]         %u = reduce %up over [0, 1]        f32[2048]
    reduce %g over [0, 1]              f32[4096]          ->    %v = reduce %gate over [0, 1]      f32[2048]
                                                                concatenate %u, %v                 f32[4096]

The gradient of a bias is written so wherever what it was added to is split: by a gated MLP, or into queries, keys and
values. Compilers read all parts again for such a reduction, and choose place by place; that of a part goes into the
kernel that makes the part. So are sums of pads that are apart, the gradients of slices. Short reductions stay: their
parts are small, and each is a kernel of its own. And so does what is joined for the reduction alone, in its kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.core.op import OpSpec, TensorType
from autopart.core.op_spec_import import REDUCERS
from autopart.core.ops.traits import elements
from autopart.core.passes.pads import MOST_PARTS, Pad, pad_of
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.passes.rewritten_as import Place, location_of, mlir_type, put_in
from autopart.core.program import Program

OP_OF = {name: op for op, name in REDUCERS.items() if name in ("add", "max", "min", "mul")}
"""The op of each reducer that is taken."""

FEWEST = 512
"""Of fewer elements for each of the result a reduction stays as it is."""

LEAST = 48
"""Nor where a part's result has fewer: a DenseNet's parts, of 32 features each, are as fast together."""


@register_pass("joined_reductions")
@dataclass(frozen=True)
class JoinedReductions(Pass):
    """Reductions of concatenations over other dims become concatenations of reductions."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        found = np.array([_is_long(spec) for spec in program.specs], np.bool_)
        if program.source is None or not found.any():
            return program
        rewriting = Rewriting(program)
        for op in np.flatnonzero(found[program.op_spec]).tolist():
            joined = _joined(program, op) if _has_other_readers(program, op) else None
            if joined is not None and _are_long(program, joined, program.spec(op)):
                _reduce_parts(rewriting, op, joined)
        return rewriting.program()


def _is_long(spec: OpSpec) -> bool:
    """One array, reduced with a reducer of its own kind, many elements into one."""
    if spec.kind != "reduce" or len(spec.results) != 1 or spec.region not in OP_OF:
        return False
    return math.prod(spec.operands[0].shape[d] for d in spec.attributes["dimensions"]) >= FEWEST


def _has_other_readers(program: Program, op: int) -> bool:
    """True if what a reduction reads is read otherwise too, or returned."""
    pointer, _ = program.users
    value = int(program.operands_of(op)[0])
    return bool(pointer[value + 1] - pointer[value] > 1) or value in program.output_place


class _Joined(NamedTuple):
    """Values that fill an array one after the other along a dim."""

    dim: int
    values: list[int]


def _are_long(program: Program, joined: _Joined, reduction: OpSpec) -> bool:
    """Parts of a dim that is not reduced, and none leaves few elements."""
    if joined.dim in reduction.attributes["dimensions"]:
        return False
    shortest = min(program.type_of(value).shape[joined.dim] for value in joined.values)
    whole = reduction.operands[0].shape[joined.dim]
    return elements(reduction.results[0]) * shortest >= LEAST * whole


def _joined(program: Program, op: int) -> _Joined | None:
    """What a reduction reads: a concatenation or, where it adds, a sum of pads that are apart; None for all else."""
    value = int(program.operands_of(op)[0])
    maker = int(program.value_op[value])
    if program.op_scope[maker] != program.op_scope[op]:
        return None
    if program.spec(maker).kind == "concatenate" and len(program.operands_of(maker)) <= MOST_PARTS:
        return _Joined(program.spec(maker).attributes["dimension"], program.operands_of(maker).tolist())
    return _padded_apart(program, value) if program.spec(op).region == "add" else None


def _padded_apart(program: Program, value: int) -> _Joined | None:
    """A sum of pads by zero, each of other places of one dim, all places together."""
    pads, left, scope = list[Pad](), [value], program.op_scope[program.value_op[value]]
    while left:
        maker = int(program.value_op[left.pop()])
        pad = pad_of(program, maker)
        if program.op_scope[maker] != scope or len(pads) == MOST_PARTS:
            return None
        if pad is not None:
            pads.append(pad)
        elif program.spec(maker).kind == "add":
            left += program.operands_of(maker).tolist()
        else:
            return None
    pads.sort(key=lambda pad: pad.places.start)
    size = program.type_of(value).shape[pads[0].dim]
    ends = [0, *(pad.places.stop for pad in pads)]
    follow = ends[:-1] == [pad.places.start for pad in pads] and ends[-1] == size
    return _Joined(pads[0].dim, [pad.value for pad in pads]) if follow and len({pad.dim for pad in pads}) == 1 else None


def _reduce_parts(rewriting: Rewriting, op: int, joined: _Joined) -> None:
    program, place = rewriting.before, Place(int(rewriting.before.op_scope[op]), op, op)
    types = [program.type_of(value) for value in joined.values]
    text = _parts_reduced(types, joined.dim, program.spec(op), location_of(rewriting, op))
    [result] = put_in(rewriting, text, [*joined.values, int(program.operands_of(op)[1])], place)
    rewriting.replace(int(program.result_ptr[op]), result)


def _parts_reduced(types: list[TensorType], dim: int, reduction: OpSpec, line: str) -> str:
    """A function of the parts and of what the reduction starts from."""
    dims, result, start = reduction.attributes["dimensions"], reduction.results[0], mlir_type(reduction.operands[1])
    parts = [mlir_type(type_) for type_ in types]
    left = [
        mlir_type(TensorType(tuple(n for d, n in enumerate(type_.shape) if d not in dims), type_.dtype))
        for type_ in types
    ]
    reducer, over = OP_OF[reduction.region], ", ".join(map(str, dims))
    lines = "\n".join(
        f"%r{k} = stablehlo.reduce(%p{k} init: %init) applies {reducer} across dimensions = [{over}] "
        f": ({part}, {start}) -> {small} {line}"
        for k, (part, small) in enumerate(zip(parts, left, strict=True))
    )
    names = ", ".join(f"%r{k}" for k in range(len(parts)))
    arguments = ", ".join(f"%p{k}: {part}" for k, part in enumerate(parts))
    at = dim - sum(d < dim for d in dims)
    return f"""func.func @main({arguments}, %init: {start}) -> {mlir_type(result)} {{
        {lines}
        %j = stablehlo.concatenate {names}, dim = {at} : ({", ".join(left)}) -> {mlir_type(result)} {line}
        return %j : {mlir_type(result)} {line}
    }}"""
