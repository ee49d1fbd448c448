"""The pass `empty_arrays`: what has no elements is made of nothing, and is joined to nothing.

    %e = slice %x [:, 0:0]          f32[8,0]       ->     %e = broadcast 0        f32[8,0]
    concatenate %e, %y                             ->     %y
    pad %e by 0 and 4, with %z      f32[8,4]       ->     %p = broadcast %z       f32[8,4]

No axis tiles an array without elements, so each reader would gather `%x`. jax's `associative_scan`, which state space
models are written with, ends its recursion on such slices, and their gradients are such pads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rule import has_effect, rule_of
from autopart.core.passes.padding.padding_text import constant
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewritten_as import mlir_type, rewritten
from autopart.core.program import Program


@register_pass("empty_arrays")
@dataclass(frozen=True)
class EmptyArrays(Pass):
    """Arrays without elements read nothing; concatenations and pads leave them out."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        return rewritten(program, _is_wanted, _text)


def _is_wanted(spec: OpSpec) -> bool:
    rule = rule_of(spec)
    if rule is None or rule.structural or has_effect(spec) or len(spec.results) != 1 or not spec.operands:
        return False
    if 0 in spec.results[0].shape:
        return any(t.shape and 0 not in t.shape for t in spec.operands)
    return spec.kind in ("concatenate", "pad") and any(0 in t.shape for t in spec.operands)


def _text(spec: OpSpec, location: str) -> str:
    taken = ", ".join(f"%a{k}: {mlir_type(t)}" for k, t in enumerate(spec.operands))
    made = mlir_type(spec.results[0])
    *lines, returned = _lines(spec)
    body = "".join(f"{line} {location}\n" for line in lines)
    return f"func.func @main({taken}) -> {made} {{\n{body}return {returned} : {made}\n}}"


def _lines(spec: OpSpec) -> Iterator[str]:
    """The ops, and last the value that they leave."""
    result = spec.results[0]
    kept = [k for k, t in enumerate(spec.operands) if 0 not in t.shape]
    if 0 in result.shape:
        yield constant("%z", result.dtype, 0)
        yield _spread("%z", result)
        yield "%y"
    elif spec.kind == "pad":
        yield _spread("%a1", result)
        yield "%y"
    elif len(kept) == 1:
        yield f"%a{kept[0]}"
    else:
        values, types = ", ".join(f"%a{k}" for k in kept), ", ".join(mlir_type(spec.operands[k]) for k in kept)
        dim = spec.attributes["dimension"]
        yield f'%y = "stablehlo.concatenate"({values}) {{dimension = {dim} : i64}} : ({types}) -> {mlir_type(result)}'
        yield "%y"


def _spread(scalar: str, result: TensorType) -> str:
    one = mlir_type(TensorType((), result.dtype))
    none = "broadcast_dimensions = array<i64>"
    return f'%y = "stablehlo.broadcast_in_dim"({scalar}) {{{none}}} : ({one}) -> {mlir_type(result)}'
