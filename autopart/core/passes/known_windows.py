"""The pass `known_windows`: a window read or written at a place known beforehand is a slice, or a choice by place.

    gather %x at (1, 1), 62 x 62             ->      slice %x [1:63, 1:63]
    scatter %u into %x at (1, 1)             ->      select(1 <= iota < 63 in both dims, pad %u by 1 and 1, %x)
    scatter by add                           ->      add(%x, pad %u by 1 and 1, with -0.0)
    pad %x by -1 and -1                      ->      slice %x [1:63, 1:63]

So jax writes `x.at[1:-1, 1:-1].set(u)` and its gradients: stencils with borders. A window that leaves out a small part
of a dim is of a length that no axis divides; slices and pads of such lengths are evened out (`even_slices`), scatters
and gathers are not. A window that is a small part stays as it is: it is written in place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autopart.core.op import MAX, MIN, MUL, SUM, WHOLE, OpSpec, TensorType
from autopart.core.ops.rules.index_vectors import index_array
from autopart.core.ops.rules.reduce import identity
from autopart.core.passes.even_slices import is_shortened
from autopart.core.passes.padding.padding_text import constant
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.passes.rewritten_as import Place, location_of, mlir_type, put_in
from autopart.core.program import Program
from autopart.core.splats import splat_behind

_COMBINED = {"add": (SUM, "add"), "mul": (MUL, "multiply"), "max": (MAX, "maximum"), "min": (MIN, "minimum")}


@register_pass("known_windows")
@dataclass(frozen=True)
class KnownWindows(Pass):
    """Gathers, scatters and updates of a window at a known place, and pads that only cut, become slices and choices."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        wanted = np.array([_window_of(spec) is not None for spec in program.specs], np.bool_)
        if program.source is None or not wanted.any():
            return program
        rewriting = Rewriting(program)
        for op in np.flatnonzero(wanted[program.op_spec]).tolist():
            starts = _starts(program, op)
            if starts is not None:
                _put(rewriting, op, starts)
        return rewriting.program()


def _window_of(spec: OpSpec) -> tuple[int, ...] | None:
    """The sizes of the one window that an op reads or writes, in dims of operand 0; None where it is left as it is."""
    if spec.kind == "dynamic_update_slice":
        window = spec.operands[1].shape
    elif spec.kind == "pad":
        if any(spec.attributes["interior_padding"]) or max(*_edges(spec, "low"), *_edges(spec, "high"), 0) > 0:
            return None
        window = spec.results[0].shape
    elif not _has_one_vector(spec):
        return None
    elif spec.kind == "gather":
        window = tuple(spec.attributes["slice_sizes"])
    else:
        if len(spec.results) != 1 or spec.region not in ("overwrite", *_COMBINED) or spec.results[0].dtype == "i1":
            return None
        inserted = spec.attributes["scatter_dimension_numbers"]["inserted_window_dims"]
        sizes = iter(spec.operands[-1].shape)
        window = tuple(1 if d in inserted else next(sizes) for d in range(len(spec.operands[0].shape)))
    cut = [(long, short) for long, short in zip(spec.operands[0].shape, window, strict=True) if long != short]
    return window if cut and all(is_shortened(long, short) for long, short in cut) else None


def _edges(pad: OpSpec, end: str) -> Sequence[int]:
    return pad.attributes[f"edge_padding_{end}"]


def _has_one_vector(spec: OpSpec) -> bool:
    """True for a gather or scatter whose indices are one vector."""
    array = index_array(spec)
    return (
        array is not None and len(spec.operands[array.operand].shape) == 1 and not (array.vector_dim or array.batching)
    )


def _starts(program: Program, op: int) -> list[int] | None:
    """Where the window begins; None where that is not known, or the window does not fit."""
    spec, operands = program.spec(op), program.operands_of(op).tolist()
    window = _window_of(spec)
    assert window is not None
    if spec.kind == "pad":
        return [-low for low in _edges(spec, "low")]
    starts = [0] * len(window)
    if spec.kind == "dynamic_update_slice":
        known = [splat_behind(program, value) for value in operands[2:]]
        indexed: Sequence[int] = range(len(window))
    else:
        array = index_array(spec)
        assert array is not None
        indexed, known = array.indexed, list(_components(program, operands[array.operand]))
    if len(known) != len(indexed) or any(k is None for k in known):
        return None
    for dim, start in zip(indexed, known, strict=True):
        assert start is not None
        starts[dim] = int(start)
    most = [long - short for long, short in zip(spec.operands[0].shape, window, strict=True)]
    if spec.kind != "scatter":
        starts = [min(max(start, 0), last) for start, last in zip(starts, most, strict=True)]
    return starts if all(0 <= start <= last for start, last in zip(starts, most, strict=True)) else None


def _components(program: Program, value: int) -> Iterator[np.generic | None]:
    """The entries of an index vector."""
    op = int(program.value_op[value])
    if program.spec(op).kind == "concatenate":
        for part in program.operands_of(op).tolist():
            yield from _components(program, part)
    else:
        yield from [splat_behind(program, value)] * math.prod(program.type_of(value).shape)


def _put(rewriting: Rewriting, op: int, starts: list[int]) -> None:
    """Puts the slice, or the choice, in the place of an op."""
    program, spec = rewriting.before, rewriting.before.spec(op)
    updated = {"gather": (0,), "pad": (0,), "scatter": (0, 2)}.get(spec.kind, (0, 1))
    types = [spec.operands[k] for k in updated]
    at, made = location_of(rewriting, op), mlir_type(spec.results[0])
    lines = _written(spec, types[1], starts) if len(types) > 1 else _sliced(spec, starts)
    taken = ", ".join(f"%a{k}: {mlir_type(t)}" for k, t in enumerate(types))
    body = "".join(f"{line} {at}\n" for line in lines)
    text = f"func.func @main({taken}) -> {made} {{\n{body}return %y : {made}\n}}"
    operands = program.operands_of(op).tolist()
    [value] = put_in(rewriting, text, [operands[k] for k in updated], Place(int(program.op_scope[op]), op, op))
    rewriting.replace(int(program.result_ptr[op]), value)


def _sliced(spec: OpSpec, starts: list[int]) -> Iterator[str]:
    """The window, in the shape of the result."""
    window, source, result = _window_of(spec), spec.operands[0], spec.results[0]
    assert window is not None
    limits = [start + size for start, size in zip(starts, window, strict=True)]
    cut = TensorType(window, source.dtype)
    name = "%y" if cut == result else "%w"
    yield (
        f'{name} = "stablehlo.slice"(%a0) {{start_indices = {_list(starts)}, limit_indices = {_list(limits)},'
        f" strides = {_list([1] * len(starts))}}} : ({mlir_type(source)}) -> {mlir_type(cut)}"
    )
    if cut != result:
        yield f'%y = "stablehlo.reshape"(%w) : ({mlir_type(cut)}) -> {mlir_type(result)}'


def _written(spec: OpSpec, update: TensorType, starts: list[int]) -> Iterator[str]:
    """The update moved to its place, and what it is combined with."""
    window, whole = _window_of(spec), spec.operands[0]
    assert window is not None
    code, combine = _COMBINED.get(spec.region, (WHOLE, ""))
    least = 0 if code == WHOLE else identity(code, whole.dtype)
    moved, array = TensorType(window, update.dtype), mlir_type(whole)
    high = [n - start - size for n, start, size in zip(whole.shape, starts, window, strict=True)]
    yield f'%u = "stablehlo.reshape"(%a1) : ({mlir_type(update)}) -> {mlir_type(moved)}'
    yield constant("%z", whole.dtype, -0.0 if code == SUM and not whole.dtype.startswith(("i", "ui")) else least)
    yield (
        f'%p = "stablehlo.pad"(%u, %z) {{edge_padding_low = {_list(starts)}, edge_padding_high = {_list(high)},'
        f" interior_padding = {_list([0] * len(starts))}}} : ({mlir_type(moved)},"
        f" {mlir_type(TensorType((), whole.dtype))}) -> {array}"
    )
    if combine:
        yield f'%y = "stablehlo.{combine}"(%a0, %p) : ({array}, {array}) -> {array}'
        return
    ends = [(d, s, s + n) for d, (s, n) in enumerate(zip(starts, window, strict=True)) if n != whole.shape[d]]
    yield from inside("%m", whole.shape, ends)
    flags = mlir_type(TensorType(whole.shape, "i1"))
    yield f'%y = "stablehlo.select"(%m, %p, %a0) : ({flags}, {array}, {array}) -> {array}'


def inside(name: str, shape: Sequence[int], ends: Sequence[tuple[int, int, int]]) -> Iterator[str]:
    """Lines that make a mask of a shape: true from place `begin` to `end` of each (dim, begin, end)."""
    places, flags = (mlir_type(TensorType(tuple(shape), dtype)) for dtype in ("i32", "i1"))
    bounds = [(d, "GE", begin) for d, begin, _ in ends if begin]
    bounds += [(d, "LT", end) for d, _, end in ends if end != shape[d]]
    for k, (dim, direction, bound) in enumerate(bounds):
        yield f'{name}i{k} = "stablehlo.iota"() {{iota_dimension = {dim} : i64}} : () -> {places}'
        yield constant(f"{name}n{k}", "i32", bound)
        spread = "broadcast_dimensions = array<i64>"
        yield f'{name}b{k} = "stablehlo.broadcast_in_dim"({name}n{k}) {{{spread}}} : (tensor<i32>) -> {places}'
        compared = name if len(bounds) == 1 else f"{name}c{k}"
        how = f"comparison_direction = #stablehlo<comparison_direction {direction}>"
        yield f'{compared} = "stablehlo.compare"({name}i{k}, {name}b{k}) {{{how}}} : ({places}, {places}) -> {flags}'
        if k:
            both = name if k == len(bounds) - 1 else f"{name}a{k}"
            before = f"{name}c0" if k == 1 else f"{name}a{k - 1}"
            yield f'{both} = "stablehlo.and"({before}, {name}c{k}) : ({flags}, {flags}) -> {flags}'


def _list(numbers: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>" if len(numbers) else "array<i64>"
