"""The collectives of an optimised module: kind, group and bytes, in every spelling of XLA's compilers.

    %ar = all-reduce(%x), replica_groups=[4,2]<=[8]              all_reduce over {"model": 2} of the bytes of %x
    %ag = all-gather-start(%x, %y), replica_groups={{0,1},..}    one all_gather of both
    %rs = async-start(%x), calls=%c, where %c reduce-scatters    a reduce_scatter of %x

They are priced by the links of a mesh as the simulator's are; what XLA has combined is one collective here.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from autopart.core.mesh import Mesh
from autopart.costmodel.compiled.links.redistribution_seconds import RedistributionSeconds
from autopart.costmodel.xla.optimised_hlo import Instruction, OptimisedHlo, arrays_in

KINDS = {
    "all-reduce": "all_reduce", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all", "ragged-all-to-all": "all_to_all", "collective-permute": "all_permute",
}  # fmt: skip

Collective = tuple[str, tuple[tuple[str, int], ...], float]
"""Kind, (mesh axis, devices of the group along it) and bytes on each device before it."""

_LISTED = re.compile(r"replica_groups=\{(\{[\d,{}]*\})\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_NAMED = re.compile(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}")
_CHAIN = re.compile(r'chain_id="(\d+)"')
_PAIRS = re.compile(r"source_target_pairs=\{(\{[\d,{}]*\})\}")


def collectives(module: OptimisedHlo, mesh: Mesh) -> Counter[Collective]:
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


def collective_of(module: OptimisedHlo, instruction: Instruction, mesh: Mesh) -> Collective | None:
    """The collective that an instruction is, or starts; None for another, also for what starts a computation of one."""
    kind = KINDS.get(instruction.kind.removesuffix("-start"))
    if kind is None:
        return None
    if kind == "all_reduce" and "all-reduce-scatter" in instruction.computation:
        kind = "reduce_scatter"  # an all-reduce and a slice, run as one
    return kind, _spanned(instruction.line, mesh), _bytes_in(module, instruction)


def started_by(module: OptimisedHlo, instruction: Instruction, mesh: Mesh) -> Collective | None:
    """As `collective_of`, and what an `async-start` begins."""
    if instruction.kind != "async-start":
        return collective_of(module, instruction, mesh)
    inner = module.computations.get(instruction.called.get("calls", ""), ())
    return next((found for i in inner if (found := collective_of(module, i, mesh))), None)


def seconds(collective: Collective, mesh: Mesh) -> float:
    """What the links take, by the simulator's formulas."""
    kind, axes, in_bytes = collective
    return RedistributionSeconds(mesh).step_cost(kind, round(in_bytes), 0, 1, axes) if axes else 0.0


def _bytes_in(module: OptimisedHlo, instruction: Instruction) -> float:
    """Bytes of the operands."""
    return sum(array.bytes for type_ in module.operand_types(instruction) for array in arrays_in(type_))


def _spanned(line: str, mesh: Mesh) -> tuple[tuple[str, int], ...]:
    """The mesh axes along which a group's members differ, with how many places they take on each."""
    places = np.stack(np.unravel_index(np.arange(mesh.size), mesh.axis_sizes), axis=1)
    counts = np.ones(len(mesh.axis_sizes), int)
    for group in _groups(line, mesh.size):
        counts = np.maximum(counts, [len(set(column)) for column in places[list(group)].T.tolist()])
    return tuple((name, int(n)) for name, n in zip(mesh.axis_names, counts, strict=True) if n > 1)


def _groups(line: str, devices: int) -> Sequence[Any]:
    """Devices of each group of a collective, in any of the ways in which XLA writes them."""
    if found := _LISTED.search(line) or _PAIRS.search(line):
        return [[int(n) for n in part.split(",")] for part in found.group(1).strip("{}").split("},{")]
    if found := _IOTA.search(line):
        shape, sizes, order = ([int(n) for n in text.split(",")] if text else None for text in found.groups())
        numbers = np.arange(devices).reshape(sizes)
        return list((numbers.transpose(order) if order else numbers).reshape(shape))
    if found := _NAMED.search(line):
        axes = dict(part.strip().split("=") for part in found.group(1).split(","))
        chosen = [name.strip() for name in found.group(2).split(",")]
        numbers = np.arange(devices).reshape([int(n) for n in axes.values()])
        last = [list(axes).index(name) for name in chosen]
        moved = np.moveaxis(numbers, last, range(-len(last), 0))
        return list(moved.reshape(-1, math.prod(int(axes[name]) for name in chosen)))
    return [list(range(devices))]
