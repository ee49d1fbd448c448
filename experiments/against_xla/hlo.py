"""What an optimised program of the TPU compiler spends: cycles by class of op.

    %fusion.7 = fusion(...), calls=%f, "estimated_cycles":"900"       matmul: %f holds a convolution

Both programs of a pair are read from their texts by this file; `hlo_collectives.py` has their collectives.
"""

from __future__ import annotations

from collections import Counter

from autopart.costmodel.xla.optimised_hlo import Instruction, OptimisedHlo, arrays_in

MOVES = {
    "copy", "transpose", "bitcast", "reshape", "parameter", "tuple", "get-tuple-element", "constant", "slice", "pad",
    "concatenate", "broadcast", "bitcast-convert", "dynamic-slice", "dynamic-update-slice", "reverse", "iota", "add",
    "multiply", "partition-id", "select", "compare", "clamp",
}  # fmt: skip
"""Kinds that a fusion holds which only moves data; the arithmetic among them is that of indices (scalars)."""


def cycles_by_class(module: OptimisedHlo) -> Counter[str]:
    """Class of op -> cycles, loops by trip count."""
    cycles: Counter[str] = Counter()
    for instruction, times in module.ran():
        if instruction.cycles:
            cycles[class_of(module, instruction)] += times * instruction.cycles
    return cycles


def class_of(module: OptimisedHlo, instruction: Instruction) -> str:
    """matmul, scatter, gather, reduce, sort, copy or elementwise; another kind of op is a class of its own."""
    inside = module.inside(instruction) or [instruction]
    kinds = {i.kind for i in inside}
    if kinds & {"convolution", "dot"}:
        return "matmul"
    for kind in ("scatter", "gather", "sort", "reduce", "reduce-window"):
        if kind in kinds:
            return kind.removesuffix("-window")
    arrays = {i.kind for i in inside if _elements(i.type) > 1}
    if {i.kind for i in inside} <= MOVES and not arrays & {"add", "multiply", "select", "compare", "clamp"}:
        return "copy"
    return "elementwise" if instruction.kind == "fusion" or len(inside) > 1 else instruction.kind


def _elements(type_: str) -> int:
    return max((array.elements for array in arrays_in(type_)), default=0)
