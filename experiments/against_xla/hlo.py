"""What an optimised program of the TPU compiler spends: cycles by class of op, and its collectives.

    %fusion.7 = fusion(...), calls=%f, "estimated_cycles":"900"       matmul: %f holds a convolution
    %all-reduce.1 = all-reduce(%x), replica_groups=[4,2]<=[8]         all_reduce over {"model": 2} of the bytes of %x

Both programs of a pair are read from their texts by this file, and their collectives are priced by one formula.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

import autopart as ap
from autopart.costmodel import RedistributionSeconds
from autopart.costmodel.optimised_hlo import Instruction, OptimisedHlo, arrays_in

KINDS = {
    "all-reduce": "all_reduce", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all", "ragged-all-to-all": "all_to_all", "collective-permute": "all_permute",
}  # fmt: skip
MOVES = {
    "copy", "transpose", "bitcast", "reshape", "parameter", "tuple", "get-tuple-element", "constant", "slice", "pad",
    "concatenate", "broadcast", "bitcast-convert", "dynamic-slice", "dynamic-update-slice", "reverse", "iota", "add",
    "multiply", "partition-id", "select", "compare", "clamp",
}  # fmt: skip
"""Kinds that a fusion holds which only moves data; the arithmetic among them is that of indices (scalars)."""

Collective = tuple[str, tuple[tuple[str, int], ...], float]
"""Kind, (mesh axis, devices of the group along it) and bytes on each device before it."""

_LISTED = re.compile(r"replica_groups=\{(\{[\d,{}]*\})\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_NAMED = re.compile(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}")
_CHAIN = re.compile(r'chain_id="(\d+)"')
_PAIRS = re.compile(r"source_target_pairs=\{(\{[\d,{}]*\})\}")


# ---- cycles


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


# ---- collectives


def collectives(module: OptimisedHlo, mesh: ap.Mesh) -> Counter[Collective]:
    """Each collective that runs, with how often; those inside a fusion belong to it.

    One that runs beside compute stands in several fusions, of its start, of each kernel beside it and of its end, with
    one chain number: it counts once.
    """
    found: Counter[Collective] = Counter()
    chains: set[str] = set()
    for instruction, times in module.ran():
        for inner in (instruction, *module.inside(instruction)):
            collective, chain = collective_of(module, inner, mesh), _CHAIN.search(inner.line)
            if collective is not None and (chain is None or chain.group(1) not in chains):
                chains.update(chain.groups() if chain else ())
                found[collective] += times
    return found


def collective_of(module: OptimisedHlo, instruction: Instruction, mesh: ap.Mesh) -> Collective | None:
    """The collective that an instruction is, or starts; None for another."""
    kind = KINDS.get(instruction.kind.removesuffix("-start"))
    if kind is None:
        return None
    if kind == "all_reduce" and "all-reduce-scatter" in instruction.computation:
        kind = "reduce_scatter"  # an all-reduce and a slice, run as one
    return kind, _spanned(instruction.line, mesh), _bytes_in(module, instruction)


def seconds(collective: Collective, mesh: ap.Mesh) -> float:
    """What the links take, by the simulator's formulas."""
    kind, axes, in_bytes = collective
    return RedistributionSeconds(mesh).step_cost(kind, round(in_bytes), 0, 1, axes) if axes else 0.0


def _bytes_in(module: OptimisedHlo, instruction: Instruction) -> float:
    """Bytes of the operands."""
    return sum(array.bytes for type_ in module.operand_types(instruction) for array in arrays_in(type_))


def _elements(type_: str) -> int:
    return max((array.elements for array in arrays_in(type_)), default=0)


def _spanned(line: str, mesh: ap.Mesh) -> tuple[tuple[str, int], ...]:
    """The mesh axes along which a group's members differ, with how many places they take on each."""
    places = np.stack(np.unravel_index(np.arange(mesh.size), mesh.axis_sizes), axis=1)
    counts = np.ones(len(mesh.axis_sizes), int)
    for group in _groups(line, mesh.size):
        counts = np.maximum(counts, [len(set(column)) for column in places[list(group)].T.tolist()])
    return tuple((name, int(n)) for name, n in zip(mesh.axis_names, counts, strict=True) if n > 1)


def _groups(line: str, devices: int) -> Sequence[Sequence[int]]:
    """Devices of each group of a collective, in any of the ways in which XLA writes them."""
    if found := _LISTED.search(line) or _PAIRS.search(line):
        return [[int(n) for n in part.split(",")] for part in found.group(1).strip("{}").split("},{")]
    if found := _IOTA.search(line):
        shape, sizes, order = ([int(n) for n in text.split(",")] if text else None for text in found.groups())
        numbers = np.arange(devices).reshape(sizes)
        return (numbers.transpose(order) if order else numbers).reshape(shape).tolist()
    if found := _NAMED.search(line):
        axes = dict(part.strip().split("=") for part in found.group(1).split(","))
        chosen = [name.strip() for name in found.group(2).split(",")]
        numbers = np.arange(devices).reshape([int(n) for n in axes.values()])
        last = [list(axes).index(name) for name in chosen]
        moved = np.moveaxis(numbers, last, range(-len(last), 0))
        return moved.reshape(-1, math.prod(int(axes[name]) for name in chosen)).tolist()
    return [range(devices)]
