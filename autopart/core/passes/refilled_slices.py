"""The pass `refilled_slices`: what is cut off and filled up again, or joined of pieces, is chosen place by place.

    pad (slice %x [:, :-1]) by 0 and 1           ->      select(iota < 2047, %x, padding)
    concatenate %x[:, -1:], %x[:, :-1]           ->      select(iota < 1, %x[:, -1:] in 2048 places, %x moved on by 1)

In between are 2047 places, or one, which no axis divides; what is left has tiles all along. Gradients of shifts, and
`jnp.roll` and `jnp.concatenate` of slices are written so. A concatenation of pieces that axes divide stays one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autopart.core.op import OpSpec, TensorType
from autopart.core.passes.even_slices import EVENER, ways
from autopart.core.passes.known_windows import inside
from autopart.core.passes.padding.padding_text import constant
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.passes.rewritten_as import Place, location_of, mlir_type, put_in
from autopart.core.program import Program
from autopart.core.splats import splat_behind


@dataclass(frozen=True)
class _Piece:
    """An array of which a part is taken: element `start` of the dim stands at place `begin`, and so on up to `end`."""

    value: int
    type: TensorType
    start: int
    begin: int
    end: int


@register_pass("refilled_slices")
@dataclass(frozen=True)
class RefilledSlices(Pass):
    """Pads and concatenations of slices become choices by place, where axes divide only what is sliced."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        sliced = np.array([spec.kind == "slice" for spec in program.specs], np.bool_)
        if program.source is None or not sliced.any():
            return program
        rewriting = Rewriting(program)
        for op in _filled(program, sliced):
            if program.spec(op).kind == "pad":
                _pad(rewriting, op)
            else:
                _concatenate(rewriting, op)
        return rewriting.program()


def _filled(program: Program, sliced: np.ndarray) -> list[int]:
    """The pads and concatenations that read an op of one of the `sliced` specs, in order."""
    fills = np.array([spec.kind in ("pad", "concatenate") for spec in program.specs], np.bool_)
    reads = sliced[program.op_spec[program.value_op[program.operands]]]
    return np.unique(program.use_op[reads & fills[program.op_spec[program.use_op]]]).tolist()


def _pad(rewriting: Rewriting, op: int) -> None:
    """A pad that fills dims of a slice up to where the slice was cut off."""
    program, spec = rewriting.before, rewriting.before.spec(op)
    value, fill = program.operands_of(op).tolist()
    sliced = _source(program, op, value)
    if sliced is None or any(spec.attributes["interior_padding"]):
        return
    low, high = spec.attributes["edge_padding_low"], spec.attributes["edge_padding_high"]
    starts, whole = program.spec(sliced).attributes["start_indices"], program.spec(sliced).operands[0]
    changed = [
        d for d in range(len(low)) if low[d] or high[d] or starts[d] or whole.shape[d] != spec.results[0].shape[d]
    ]
    if whole != spec.results[0] or not changed or min(*low, *high) < 0:
        return
    cut = [n - start - size for n, start, size in zip(whole.shape, starts, spec.operands[0].shape, strict=True)]
    if not any((starts[d] and low[d]) or (cut[d] and high[d]) for d in changed):
        return
    if all(ways(whole.shape[d]) < EVENER * ways(spec.operands[0].shape[d]) for d in changed):
        return
    source = int(program.operands_of(sliced)[0])
    ends = [(d, low[d], whole.shape[d] - high[d]) for d in changed]
    if len(changed) > 1:
        _put_box(rewriting, op, (source, fill), [b - s for b, s in zip(low, starts, strict=True)], ends)
        return
    [(dim, begin, end)] = ends
    piece = _Piece(source, whole, starts[dim], begin, end)
    rest = [_Piece(fill, spec.operands[1], 0, *both) for both in ((0, begin), (end, whole.shape[dim]))]
    _put(rewriting, op, dim, [p for p in (rest[0], piece, rest[1]) if p.begin < p.end])


def _concatenate(rewriting: Rewriting, op: int) -> None:
    """A concatenation of slices, and of what is the same all over, whose lengths axes divide less than the whole."""
    program, spec = rewriting.before, rewriting.before.spec(op)
    dim, pieces, end = spec.attributes["dimension"], list[_Piece](), 0
    whole, least = ways(spec.results[0].shape[dim]), 2 if _is_roll(program, op) else EVENER
    wanted = least * min(whole, *(ways(t.shape[dim]) for t in spec.operands))
    if whole < wanted:
        return
    for value in program.operands_of(op).tolist():
        type_ = program.type_of(value)
        begin, end = end, end + type_.shape[dim]
        sliced = _source(program, op, value)
        if sliced is not None and _cuts_only(program.spec(sliced), dim):
            source = program.spec(sliced)
            if ways(source.operands[0].shape[dim]) < wanted:
                return
            starts = source.attributes["start_indices"]
            pieces.append(_Piece(int(program.operands_of(sliced)[0]), source.operands[0], starts[dim], begin, end))
        elif (filled := _scalar(program, value)) is not None:
            pieces.append(_Piece(filled, TensorType((), type_.dtype), 0, begin, end))
        else:
            return
    _put(rewriting, op, dim, pieces)


def _is_roll(program: Program, op: int) -> bool:
    """Whether a concatenation has two parts of one array, of which no axis divides one, and all of it.

    Its tiles move on, however few they are.
    """
    parts = [_source(program, op, value) for value in program.operands_of(op).tolist()]
    sources = {int(program.operands_of(part)[0]) for part in parts if part is not None}
    if None in parts or len(parts) != 2 or len(sources) != 1:
        return False
    spec = program.spec(op)
    is_uneven = min(ways(t.shape[spec.attributes["dimension"]]) for t in spec.operands) == 1
    return is_uneven and program.type_of(sources.pop()) == spec.results[0]


def _source(program: Program, op: int, value: int) -> int | None:
    """The slice that makes a value, if it stands beside its reader and leaves out no element in between."""
    maker = int(program.value_op[value])
    spec = program.spec(maker)
    alike = spec.kind == "slice" and program.op_scope[maker] == program.op_scope[op]
    return maker if alike and set(spec.attributes["strides"]) == {1} else None


def _cuts_only(spec: OpSpec, dim: int) -> bool:
    sizes = zip(spec.operands[0].shape, spec.results[0].shape, strict=True)
    return all(long == short for d, (long, short) in enumerate(sizes) if d != dim)


def _scalar(program: Program, value: int) -> int | None:
    """The scalar that a value has everywhere, where it is a constant's broadcast."""
    if splat_behind(program, value) is None:
        return None
    while program.type_of(value).shape:
        operands = program.operands_of(int(program.value_op[value])).tolist()
        if len(operands) != 1:
            return None
        [value] = operands
    return value


def _put(rewriting: Rewriting, op: int, dim: int, pieces: Sequence[_Piece]) -> None:
    """Puts the choice among the pieces in the place of an op."""
    program, result = rewriting.before, rewriting.before.spec(op).results[0]
    arguments = ", ".join(f"%a{k}: {mlir_type(piece.type)}" for k, piece in enumerate(pieces))
    at, made = location_of(rewriting, op), mlir_type(result)
    body = "".join(f"{line} {at}\n" for line in _lines(result, dim, pieces))
    text = f"func.func @main({arguments}) -> {made} {{\n{body}return %y{len(pieces) - 1} : {made}\n}}"
    place = Place(int(program.op_scope[op]), op, op)
    [value] = put_in(rewriting, text, [piece.value for piece in pieces], place)
    rewriting.replace(int(program.result_ptr[op]), value)


def _put_box(
    rewriting: Rewriting, op: int, values: tuple[int, int], moves: list[int], ends: list[tuple[int, int, int]]
) -> None:
    """Puts an array, moved in several dims, in the place of an op, and a scalar around where it is wanted."""
    program, result = rewriting.before, rewriting.before.spec(op).results[0]
    made, scalar = mlir_type(result), mlir_type(TensorType((), result.dtype))
    flags = mlir_type(TensorType(result.shape, "i1"))
    lines = [constant("%z", result.dtype, 0), *inside("%m", result.shape, ends), _spread("%f", "%b", scalar, made)]
    sides = {"edge_padding_low": moves, "edge_padding_high": [-n for n in moves], "interior_padding": [0] * len(moves)}
    numbers = ", ".join(f"{side} = array<i64: {', '.join(map(str, n))}>" for side, n in sides.items())
    lines.append(f'%p = "stablehlo.pad"(%a, %z) {{{numbers}}} : ({made}, {scalar}) -> {made}')
    lines.append(f'%y = "stablehlo.select"(%m, %p, %f) : ({flags}, {made}, {made}) -> {made}')
    body = "".join(f"{line} {location_of(rewriting, op)}\n" for line in lines)
    text = f"func.func @main(%a: {made}, %b: {scalar}) -> {made} {{\n{body}return %y : {made}\n}}"
    [value] = put_in(rewriting, text, values, Place(int(program.op_scope[op]), op, op))
    rewriting.replace(int(program.result_ptr[op]), value)


def _lines(result: TensorType, dim: int, pieces: Sequence[_Piece]) -> Iterator[str]:
    """Each piece moved to where it stands, and before its place what was chosen so far."""
    whole, scalar = mlir_type(result), mlir_type(TensorType((), result.dtype))
    places, flags = (mlir_type(TensorType(result.shape, dtype)) for dtype in ("i32", "i1"))
    yield f'%i = "stablehlo.iota"() {{iota_dimension = {dim} : i64}} : () -> {places}'
    yield constant("%z", result.dtype, 0)
    for k, piece in enumerate(pieces):
        own, moved = mlir_type(piece.type), f"%p{k}" if k else "%y0"
        if not piece.type.shape:
            yield _spread(moved, f"%a{k}", own, whole)
        elif piece.start == piece.begin and piece.type == result:
            yield f'{moved} = "stablehlo.reshape"(%a{k}) : ({own}) -> {whole}'
        else:
            sides = _edges(piece, result, dim)
            yield f'{moved} = "stablehlo.pad"(%a{k}, %z) {{{sides}}} : ({own}, {scalar}) -> {whole}'
        if k:
            compared, chosen = f"({places}, {places}) -> {flags}", f"({flags}, {whole}, {whole}) -> {whole}"
            before = "comparison_direction = #stablehlo<comparison_direction LT>"
            yield constant(f"%n{k}", "i32", piece.begin)
            yield _spread(f"%m{k}", f"%n{k}", "tensor<i32>", places)
            yield f'%c{k} = "stablehlo.compare"(%i, %m{k}) {{{before}}} : {compared}'
            yield f'%y{k} = "stablehlo.select"(%c{k}, %y{k - 1}, %p{k}) : {chosen}'


def _spread(name: str, scalar: str, type_: str, whole: str) -> str:
    return (
        f'{name} = "stablehlo.broadcast_in_dim"({scalar}) {{broadcast_dimensions = array<i64>}} : ({type_}) -> {whole}'
    )


def _edges(piece: _Piece, result: TensorType, dim: int) -> str:
    """The attributes of a pad that moves a piece to where it stands."""
    low, size, rank = piece.begin - piece.start, piece.type.shape[dim], len(result.shape)
    sides = {"edge_padding_low": low, "edge_padding_high": result.shape[dim] - size - low, "interior_padding": 0}
    numbers = {side: ", ".join(str(n if d == dim else 0) for d in range(rank)) for side, n in sides.items()}
    return ", ".join(f"{side} = array<i64: {text}>" for side, text in numbers.items())
