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

from autopart.core.op import OpSpec
from autopart.core.passes.cones import Cone, Grown, Places, cone_of
from autopart.core.passes.cuts import MOST_ROWS
from autopart.core.passes.even_slices import EVENER, ways
from autopart.core.passes.pattern_rewriter import PatternRewriter
from autopart.core.passes.program_pass import Pass, register_pass
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
        with PatternRewriter(program).begun() as at:
            grown = Grown(at)
            for sink in _complete(program, [sink for sink in sinks if sink is not None]):
                _put(at, grown, sink)
        return at.done()


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
    if cone is None or not (cone.inner or step > 1):
        return None
    return _checked(_Sink(op, dim, size, (_Part(value, cone, begin, begin + length),)))


def _checked(sink: _Sink) -> _Sink | None:
    """A pad of a slice; or what is computed for it is borders, and one part that fills at least half."""
    computed = [part for part in sink.parts if part.cone.inner]
    if not computed:
        return sink if len(sink.parts) == 1 else None
    long = [part for part in computed if part.end - part.begin > MOST_ROWS]
    return sink if len(long) <= 1 and all(2 * (part.end - part.begin) >= sink.size for part in long) else None


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


def _put(at: PatternRewriter, grown: Grown, sink: _Sink) -> None:
    """Puts the choice among what is computed over all places in the place of a sink."""
    spec, operands, at.place = at.spec(sink.op), at.operands(sink.op), at.place_of(sink.op)
    values = [grown.value(part.value, part.cone, Places(sink.dim, part.begin, sink.size)) for part in sink.parts]
    if spec.kind == "concatenate":
        made = values[0]
        for part, value in zip(sink.parts[1:], values[1:], strict=True):
            made = at.select(at.box(at.type_of(made).shape, [(sink.dim, 0, part.begin)]), made, value)
        at.replace(sink.op, made)
        return
    [value], [part], shape = values, sink.parts, at.type_of(values[0]).shape
    mask = at.box(shape, [(sink.dim, part.begin, part.end)])
    chosen = at.select(mask, value, at.broadcast(operands[1], shape))
    low, high, between = _sides(spec)
    low[sink.dim] %= between[sink.dim] + 1
    high[sink.dim] %= between[sink.dim] + 1
    at.replace(sink.op, at.pad(chosen, operands[1], low, high, between))
