"""The pass `combined_slices`: what is computed of slices, and joined or padded after that, is computed over all places.

    concatenate %x[:1], f(%x[1:], %x[:-1])    ->    select(iota < 1, %x, f(%x, %x moved on by 1))
    pad f(%y[1:], %z[:-1]) by 0 and 1         ->    select(iota < 511, f(%y moved back by 1, %z), padding)

So are filters, differences and every level of `jax.lax.associative_scan`, and so are their gradients. In between are
511 places, which no axis divides; what is left has tiles all along, and rows go to the next device where something
moves. `refilled_slices` does it where nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autopart.core.op import OpSpec, TensorType
from autopart.core.passes.cones import Cone, Grown, Places, cone_of
from autopart.core.passes.even_slices import EVENER, ways
from autopart.core.passes.known_windows import inside
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.passes.rewritten_as import Place, location_of, mlir_type, put_in
from autopart.core.program import Program


@dataclass(frozen=True)
class _Part:
    """A value with its cone, and the places of the op's result, or of what it pads, that it fills."""

    value: int
    cone: Cone
    begin: int
    end: int


@dataclass(frozen=True)
class _Sink:
    """A concatenation, or a pad, of what is computed of slices: of `size` places along `dim`."""

    op: int
    dim: int
    size: int
    parts: tuple[_Part, ...]

    def made_of(self) -> set[int]:
        """The ops that compute something for it."""
        return {op for part in self.parts for op in part.cone.inner}


@register_pass("combined_slices")
@dataclass(frozen=True)
class CombinedSlices(Pass):
    """Concatenations and pads of what is computed of slices become choices by place, where axes divide only these."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        sliced = any(spec.kind == "slice" for spec in program.specs)
        looked_at = np.array([spec.kind in ("pad", "concatenate") for spec in program.specs], np.bool_)
        if program.source is None or not sliced or not looked_at.any():
            return program
        sinks = [_sink(program, op) for op in np.flatnonzero(looked_at[program.op_spec]).tolist()]
        rewriting = Rewriting(program)
        grown = Grown(rewriting)
        for sink in _complete(program, [sink for sink in sinks if sink is not None]):
            _put(rewriting, grown, sink)
        return rewriting.program()


def _sink(program: Program, op: int) -> _Sink | None:
    spec = program.spec(op)
    return _concatenation(program, op, spec) if spec.kind == "concatenate" else _pad(program, op, spec)


def _concatenation(program: Program, op: int, spec: OpSpec) -> _Sink | None:
    dim, parts, end = spec.attributes["dimension"], list[_Part](), 0
    size = spec.results[0].shape[dim]
    wanted = EVENER * min(ways(t.shape[dim]) for t in spec.operands)
    if ways(size) < wanted:
        return None
    for value in program.operands_of(op).tolist():
        begin, end = end, end + program.type_of(value).shape[dim]
        cone = cone_of(program, value, dim, wanted)
        if cone is None:
            return None
        parts.append(_Part(value, cone, begin, end))
    return _checked(_Sink(op, dim, size, tuple(parts)))


def _pad(program: Program, op: int, spec: OpSpec) -> _Sink | None:
    """A pad along one dim, by as many places before and after as make what it pads a dim that axes divide."""
    value, (low, high, between) = int(program.operands_of(op)[0]), _sides(spec)
    dims = [d for d in range(len(low)) if low[d] or high[d]]
    if len(dims) != 1 or min(low[dims[0]], high[dims[0]]) < 0:
        return None
    [dim] = dims
    step, length = between[dim] + 1, spec.operands[0].shape[dim]
    begin, size = low[dim] // step, length + low[dim] // step + high[dim] // step
    wanted = EVENER * ways(length)
    if ways(size) < wanted or size == length:
        return None
    cone = cone_of(program, value, dim, wanted)
    if cone is None or not (cone.inner or step > 1 or length == 1):
        return None
    return _checked(_Sink(op, dim, size, (_Part(value, cone, begin, begin + length),)))


def _checked(sink: _Sink) -> _Sink | None:
    """A pad of a slice; or what is computed for it is one part, which fills at least half of the places."""
    computed = [part for part in sink.parts if part.cone.inner]
    if not computed:
        return sink if len(sink.parts) == 1 else None
    return sink if len(computed) == 1 and 2 * (computed[0].end - computed[0].begin) >= sink.size else None


def _sides(spec: OpSpec) -> Iterator[list[int]]:
    for name in ("edge_padding_low", "edge_padding_high", "interior_padding"):
        yield list(spec.attributes[name])


def _complete(program: Program, sinks: list[_Sink]) -> list[_Sink]:
    """Those for which nothing would be computed twice: whatever reads what is in between is one of them, or in one."""
    pointer, uses = program.users
    while True:
        inside_of = {op for sink in sinks for op in sink.made_of()} | {sink.op for sink in sinks}
        kept = [
            sink
            for sink in sinks
            if all(
                inside_of.issuperset(program.use_op[uses[pointer[value] : pointer[value + 1]]].tolist())
                for value in program.result_ptr[list(sink.made_of())].tolist()
            )
        ]
        if len(kept) == len(sinks):
            return kept
        sinks = kept


def _put(rewriting: Rewriting, grown: Grown, sink: _Sink) -> None:
    """Puts the choice among what is computed over all places in the place of a sink."""
    program, spec = rewriting.before, rewriting.before.spec(sink.op)
    values = [
        grown.value(part.value, part.cone, Places(sink.dim, part.begin, sink.size), sink.op) for part in sink.parts
    ]
    lines = _chosen(spec, sink) if spec.kind == "concatenate" else _padded(spec, sink)
    if spec.kind == "pad":
        values.append(int(program.operands_of(sink.op)[1]))
    types = [*(_over(spec.results[0] if spec.kind == "concatenate" else spec.operands[0], sink) for _ in sink.parts)]
    types += [spec.operands[1]] if spec.kind == "pad" else []
    arguments = ", ".join(f"%a{k}: {mlir_type(type_)}" for k, type_ in enumerate(types))
    at, made = location_of(rewriting, sink.op), mlir_type(spec.results[0])
    body = "".join(f"{line} {at}\n" for line in lines)
    text = f"func.func @main({arguments}) -> {made} {{\n{body}return %y : {made}\n}}"
    [value] = put_in(rewriting, text, values, Place(int(program.op_scope[sink.op]), sink.op, sink.op))
    rewriting.replace(int(program.result_ptr[sink.op]), value)


def _over(type_: TensorType, sink: _Sink) -> TensorType:
    return TensorType(tuple(sink.size if d == sink.dim else n for d, n in enumerate(type_.shape)), type_.dtype)


def _chosen(spec: OpSpec, sink: _Sink) -> Iterator[str]:
    """Of %a0, %a1, ... each at the places of its part."""
    result = spec.results[0]
    whole, flags = mlir_type(result), mlir_type(TensorType(result.shape, "i1"))
    chosen = "%a0"
    for k, part in list(enumerate(sink.parts))[1:]:
        yield from inside(f"%m{k}", result.shape, [(sink.dim, 0, part.begin)])
        now = "%y" if k == len(sink.parts) - 1 else f"%y{k}"
        yield f'{now} = "stablehlo.select"(%m{k}, {chosen}, %a{k}) : ({flags}, {whole}, {whole}) -> {whole}'
        chosen = now


def _padded(spec: OpSpec, sink: _Sink) -> Iterator[str]:
    """%a0 at the places of its part and %a1 at the others, and what else is padded."""
    type_, [part] = _over(spec.operands[0], sink), sink.parts
    whole, scalar, flags = mlir_type(type_), mlir_type(spec.operands[1]), mlir_type(TensorType(type_.shape, "i1"))
    yield from inside("%m", type_.shape, [(sink.dim, part.begin, part.end)])
    yield f'%f = "stablehlo.broadcast_in_dim"(%a1) {{broadcast_dimensions = array<i64>}} : ({scalar}) -> {whole}'
    yield f'%c = "stablehlo.select"(%m, %a0, %f) : ({flags}, {whole}, {whole}) -> {whole}'
    low, high, between = _sides(spec)
    low[sink.dim] %= between[sink.dim] + 1
    high[sink.dim] %= between[sink.dim] + 1
    numbers = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": between}
    sides = ", ".join(f"{name} = array<i64: {', '.join(map(str, n))}>" for name, n in numbers.items())
    yield f'%y = "stablehlo.pad"(%c, %a1) {{{sides}}} : ({whole}, {scalar}) -> {mlir_type(spec.results[0])}'
