"""The pass `folded_padding`: padding goes into the op that reads it, and what is sliced and padded becomes one pad.

    %p = pad %x, 0 by 3 before          [.., 16384, ..] -> [.., 16387, ..]
    convolution %p, %w, no padding  ->  convolution %x, %w, 3 before

    slice (pad %x by 1 and 1) [2:]  ->  pad %x by -1 and 1                         a stencil's neighbour, a shift
    slice (slice %x [1:]) [::2]     ->  slice %x [1::2]                            the gradient of what is interleaved
    pad (pad %x by 0 and 1) by -1   ->  pad %x by -1 and 1                         its gradient
    pad %y by -3 and 0, of the convolution that leaves %y  ->  a convolution that pads 3 less before

What is in between is as long as no axis divides, so every tile would be gathered for it; compilers fold it too. It is
folded where all its readers take it so, and no tag names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from autopart.core.jax_internals import func, ir, numpy_dtype
from autopart.core.op import OpSpec, TensorType, splat_value
from autopart.core.op_spec_import import spec_of
from autopart.core.ops.rules.factors import reduction_codes
from autopart.core.ops.rules.reduce import identity
from autopart.core.passes.dead_code import DeadCode
from autopart.core.passes.only_readers import only_read
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.program import Program

TURNS = 3
"""Rounds at most: what was folded may be folded again."""


class _Folded(NamedTuple):
    """An op that reads what the op before it read.

    operands    where they stand: (0, k) is operand k of the op before, (1, k) of the reader
    attributes  those that differ from the reader's
    like        whose kind it has: 0 of the op before, 1 of the reader; None: it is a pad
    """

    operands: tuple[tuple[int, int], ...]
    attributes: dict[str, Any]
    like: int | None = 1


@register_pass("folded_padding")
@dataclass(frozen=True)
class FoldedPadding(Pass):
    """Pads and slices go into convolutions, windows, pads and slices beside them.

    A round goes over all uses by arrays, and looks at the ops of which every reader may take them.
    """

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        for _ in range(TURNS if program.source is not None else 0):
            rewriting, folds = Rewriting(program), dict[tuple[int, int], int]()
            for op in _candidates(program):
                for reader, how in _readers(program, op).items():
                    _fold(rewriting, op, reader, how, folds)
            if rewriting.is_empty:
                break
            program = DeadCode().apply(rewriting.program())
        return program


_READERS = {
    "convolution": ("slice", "pad"),
    "slice": ("slice", "pad"),
    "pad": ("slice", "pad", "convolution", "reduce_window"),
}
"""What may be folded, and into what."""


def _candidates(program: Program) -> list[int]:
    """The ops of which all readers stand beside them and are of a kind that may take them, and which nothing names."""
    stays = np.zeros(program.value_count, np.bool_)
    stays[[*program.tags_of, *program.outputs]] = True
    made, uses = program.value_op[program.operands], np.arange(len(program.operands))
    beside = program.op_scope[made] == program.op_scope[program.use_op]
    first = program.operand_ptr[program.use_op] == uses
    found = np.zeros(program.op_count, np.bool_)
    for kind, readers in _READERS.items():
        takes = np.array([spec.kind in readers for spec in program.specs], np.bool_)
        taken = only_read(program, takes[program.op_spec[program.use_op]] & beside & first) & ~stays
        is_kind = np.array([spec.kind == kind for spec in program.specs], np.bool_)
        ops = np.flatnonzero(is_kind[program.op_spec])
        found[ops] = taken[program.result_ptr[ops]]
    return np.flatnonzero(found).tolist()


def _readers(program: Program, op: int) -> dict[int, _Folded]:
    """What each reader of a candidate becomes; {} if one of them stays, or the op would be computed for several."""
    (pointer, uses), value = program.users, int(program.result_ptr[op])
    if program.spec(op).kind == "convolution" and pointer[value + 1] - pointer[value] != 1:
        return {}
    found: dict[int, _Folded] = {}
    for reader in program.use_op[uses[pointer[value] : pointer[value + 1]]].tolist():
        how = _folded(program, op, reader)
        if how is None:
            return {}
        found[reader] = how
    return found


def _folded(program: Program, op: int, reader: int) -> _Folded | None:
    """What the reader of a pad, a slice or a convolution becomes, if it can do without."""
    inner, outer = program.spec(op), program.spec(reader)
    if inner.kind == "convolution":
        return _cropped(inner, outer)
    if inner.kind == "slice":
        return _padded_slice(inner, outer) if outer.kind == "pad" else _sliced_slice(inner, outer)
    fill = _constant(program, op, 1)
    match outer.kind:
        case "slice":
            return _sliced_pad(inner, outer)
        case "pad":
            return _padded_pad(inner, outer, fill, _constant(program, reader, 1))
        case "convolution" if fill is not None and fill == 0:
            space = outer.attributes["dimension_numbers"]["input_spatial_dimensions"]
            return _with_padding(inner, outer, space, "lhs_dilation")
        case "reduce_window" if fill is not None and len(outer.results) == 1:
            codes, start = reduction_codes(outer.region, outer.results), _constant(program, reader, 1)
            if codes is None or start is None or not fill == start == identity(codes[0], outer.results[0].dtype):
                return None
            return _with_padding(inner, outer, range(len(outer.operands[0].shape)), "base_dilations")
        case _:
            return None


def _with_padding(pad: OpSpec, outer: OpSpec, dims: Sequence[int], dilated: str) -> _Folded | None:
    """The reader with what is padded in its own padding; None if other dims than its windows' are padded."""
    low, high = pad.attributes["edge_padding_low"], pad.attributes["edge_padding_high"]
    interior = pad.attributes["interior_padding"]
    if any(low[d] or high[d] or interior[d] for d in range(len(low)) if d not in dims):
        return None
    own = outer.attributes.get("padding") or ((0, 0),) * len(dims)
    steps = outer.attributes.get(dilated) or (1,) * len(dims)
    if any(interior[d] and step > 1 for d, step in zip(dims, steps, strict=True)):
        return None
    padding = tuple(
        (before + low[d] * step, after + high[d] * step)
        for d, step, (before, after) in zip(dims, steps, own, strict=True)
    )
    attributes: dict[str, Any] = {"padding": padding}
    if any(interior):
        attributes[dilated] = tuple(step * (interior[d] + 1) for d, step in zip(dims, steps, strict=True))
    return _Folded(((0, 0), (1, 1)), attributes)


def _cropped(convolution: OpSpec, outer: OpSpec) -> _Folded | None:
    """A convolution that leaves what its reader, a slice or a pad that only cuts, takes of it."""
    shape = convolution.results[0].shape
    if outer.kind == "slice" and set(outer.attributes["strides"]) == {1}:
        ends = zip(shape, outer.attributes["limit_indices"], strict=True)
        before, after = outer.attributes["start_indices"], [n - limit for n, limit in ends]
    elif outer.kind == "pad" and not any(outer.attributes["interior_padding"]):
        before, after = ([-n for n in outer.attributes[f"edge_padding_{end}"]] for end in ("low", "high"))
    else:
        return None
    space = convolution.attributes["dimension_numbers"]["output_spatial_dimensions"]
    if min(*before, *after) < 0 or any(before[d] or after[d] for d in range(len(shape)) if d not in space):
        return None
    own = convolution.attributes.get("padding") or ((0, 0),) * len(space)
    strides = convolution.attributes.get("window_strides") or (1,) * len(space)
    padding = tuple(
        (low - before[d] * stride, high - after[d] * stride)
        for d, stride, (low, high) in zip(space, strides, own, strict=True)
    )
    return _Folded(((0, 0), (0, 1)), {"padding": padding}, like=0)


def _sliced_pad(pad: OpSpec, outer: OpSpec) -> _Folded | None:
    if set(outer.attributes["strides"]) != {1} or any(pad.attributes["interior_padding"]):
        return None
    starts, limits = outer.attributes["start_indices"], outer.attributes["limit_indices"]
    low = [p - s for p, s in zip(pad.attributes["edge_padding_low"], starts, strict=True)]
    sizes = zip(limits, pad.attributes["edge_padding_low"], pad.operands[0].shape, strict=True)
    high = [limit - before - size for limit, before, size in sizes]
    return _pad(pad.operands[0], low, high, ((0, 0), (0, 1)))


def _padded_pad(inner: OpSpec, outer: OpSpec, fill: np.generic | None, other: np.generic | None) -> _Folded | None:
    """One pad of two: the second cuts off what the first put there, or both put the same there."""
    if any((*inner.attributes["interior_padding"], *outer.attributes["interior_padding"])):
        return None
    cuts = max(_edges(outer)) <= 0
    if not cuts and not (fill is not None and fill == other and min(*_edges(inner), *_edges(outer)) >= 0):
        return None
    low, high = ([a + b for a, b in zip(inner.attributes[s], outer.attributes[s], strict=True)] for s in _SIDES)
    return _pad(inner.operands[0], low, high, ((0, 0), (0, 1)))


_SIDES = ("edge_padding_low", "edge_padding_high")


def _edges(pad: OpSpec) -> tuple[int, ...]:
    return tuple(n for side in _SIDES for n in pad.attributes[side])


def _sliced_slice(inner: OpSpec, outer: OpSpec) -> _Folded | None:
    """One slice of two."""
    if outer.kind != "slice":
        return None
    steps = inner.attributes["strides"]
    starts, limits, strides = (outer.attributes[name] for name in ("start_indices", "limit_indices", "strides"))
    first = [a + b * step for a, b, step in zip(inner.attributes["start_indices"], starts, steps, strict=True)]
    end = [a + (b - start - 1) * step + 1 for a, b, start, step in zip(first, limits, starts, steps, strict=True)]
    both = [a * b for a, b in zip(steps, strides, strict=True)]
    return _Folded(((0, 0),), {"start_indices": first, "limit_indices": end, "strides": both})


def _padded_slice(inner: OpSpec, pad: OpSpec) -> _Folded | None:
    if set(inner.attributes["strides"]) != {1} or any(pad.attributes["interior_padding"]):
        return None
    whole, starts = inner.operands[0].shape, inner.attributes["start_indices"]
    cut = [(s, n - limit) for s, limit, n in zip(starts, inner.attributes["limit_indices"], whole, strict=True)]
    edges = list(zip(pad.attributes["edge_padding_low"], pad.attributes["edge_padding_high"], strict=True))
    if any(c and e > 0 for cuts, both in zip(cut, edges, strict=True) for c, e in zip(cuts, both, strict=True)):
        return None
    low, high = ([e[side] - c[side] for c, e in zip(cut, edges, strict=True)] for side in (0, 1))
    return _pad(inner.operands[0], low, high, ((0, 0), (1, 1)))


def _pad(array: TensorType, low: list[int], high: list[int], operands: tuple[tuple[int, int], ...]) -> _Folded | None:
    """A pad of an array; None if it would leave less than nothing of it."""
    if any(min(a, 0) + min(b, 0) <= -n for a, b, n in zip(low, high, array.shape, strict=True)):
        return None
    attributes = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": [0] * len(low)}
    return _Folded(operands, attributes, like=None)


def _constant(program: Program, op: int, operand: int) -> np.generic | None:
    """The number that an operand is, if it is a constant, or one of another type or shape."""
    maker = int(program.value_op[program.operands_of(op)[operand]])
    spec = program.spec(maker)
    if spec.kind not in ("convert", "broadcast_in_dim", "reshape"):
        return splat_value(spec)
    known = _constant(program, maker, 0)
    return None if known is None else known.astype(numpy_dtype(spec.results[0].dtype))


def _fold(rewriting: Rewriting, op: int, reader: int, how: _Folded, folds: dict[tuple[int, int], int]) -> None:
    """Puts what the reader becomes in its place; `folds` has what came of two specs before."""
    program = rewriting.before
    ends = op, reader
    specs = int(program.op_spec[op]), int(program.op_spec[reader])
    uses = [int(program.operand_ptr[ends[which]]) + k for which, k in how.operands]
    if specs not in folds:
        types = [program.type_of(int(program.operands[use])) for use in uses]
        folds[specs] = _folded_spec(rewriting, specs[1 if how.like is None else how.like], types, specs[1], how)
    operands, scope = [rewriting.read_by(use) for use in uses], int(program.op_scope[reader])
    [result] = rewriting.add(folds[specs], operands, scope, reader, reader)
    rewriting.replace(int(program.result_ptr[reader]), result)


def _folded_spec(rewriting: Rewriting, like: int, types: Sequence[TensorType], reader: int, how: _Folded) -> int:
    """The spec of what a reader becomes, in a module of its own; `like`: the spec whose kind it has."""
    program, source = rewriting.before, rewriting.before.source
    assert source is not None
    representative = source.representatives[like]
    assert representative is not None
    with representative.context, representative.location:
        module = ir.Module.create()
        made = _emitted(module, representative, types, program.specs[reader].results[0], how)
    rewriting.modules.append(module)
    return rewriting.spec(spec_of(made), made)


def _emitted(
    module: ir.Module, like: ir.Operation, types: Sequence[TensorType], result: TensorType, how: _Folded
) -> ir.Operation:
    """The op, in a function of its operands."""
    *inputs, output = (ir.RankedTensorType.get(t.shape, ir.Type.parse(t.dtype)) for t in (*types, result))
    with ir.InsertionPoint(module.body):
        main = func.FuncOp("main", ir.FunctionType.get(inputs, [output]))
        block = main.add_entry_block()
    with ir.InsertionPoint(block):
        if how.like is None:
            attributes = {name: _attribute(value) for name, value in how.attributes.items()}
            made = ir.Operation.create("stablehlo.pad", [output], list(block.arguments), attributes)
        else:
            made = like.clone().operation
            made.results[0].set_type(output)
            for k, value in enumerate(block.arguments):
                made.operands[k] = value
            for name, value in how.attributes.items():
                made.attributes[name] = _attribute(value)
        func.ReturnOp(made.results)
    return made


def _attribute(value: Any) -> ir.Attribute:
    """Numbers per dim, or pairs of them."""
    if np.ndim(value) == 1:
        return ir.DenseI64ArrayAttr.get(list(value))
    return ir.DenseElementsAttr.get(cast(Any, np.array(value, np.int64)))
