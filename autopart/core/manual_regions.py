"""Regions that a model partitions by hand: what `jax.shard_map` computes belongs to one device already.

    jax.shard_map(f, axis_names={"model"}, in_specs=P(None, "model"), ...)(x)

    %h = to_local %x {axes [model], dims [[],[model]]}     f32[8,8] -> f32[8,4]      loop "model": (1) -> any
    ... ops of f on f32[8,4]; "model" is closed to them                              other axes: as anywhere
    %y = to_global %h {axes [model], dims [[],[model]]}    f32[8,4] -> f32[8,8]      loop "model": -> tile 1

Inside, an array is another one on each device along the region's axes, although nothing tiles it: no loop may run over
them, no value may be decided about, and a redistribution may not use them as if they held copies. Which ops those are
follows from the program: all that what `to_local` and `position` leave flows into, up to `to_global`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autopart.base.errors import MeshError
from autopart.core.mesh import Mesh

if TYPE_CHECKING:
    from autopart.core.program import Program

TO_LOCAL, TO_GLOBAL, POSITION = "to_local", "to_global", "position"
"""Kinds of ops: into a region, out of it, and the number of the device, which is known only inside."""

KINDS = frozenset({TO_LOCAL, TO_GLOBAL, POSITION})


@dataclass(frozen=True)
class ManualAxes:
    """The mesh axes along which each op is partitioned by hand: bit i of `of_op[op]` stands for `names[i]`."""

    names: tuple[str, ...]
    of_op: np.ndarray

    def of(self, op: int) -> tuple[str, ...]:
        """Their names for one op."""
        bits = int(self.of_op[op])
        return tuple(name for i, name in enumerate(self.names) if bits >> i & 1) if bits else ()


@dataclass(frozen=True)
class ManualLoop:
    """A loop that a region's edge has from the start: over `axis`, by mapping number `mapping` of its op.

    Of several on one dim, that of the smaller `order` is the outer one.
    """

    op: int
    axis: int
    mapping: int
    order: int


def manual_axes(program: Program) -> ManualAxes:
    """Which axes are partitioned by hand, op by op."""
    edges = [s for s in program.specs if s.kind in KINDS]
    names = tuple(dict.fromkeys(a for spec in edges for a in spec.attributes["axes"]))
    bits = np.zeros(program.op_count, np.int64)
    if not edges:
        return ManualAxes((), bits)
    own = np.array([_bits(s.attributes["axes"], names) if s.kind in KINDS else 0 for s in program.specs], np.int64)
    leaves = np.array([s.kind == TO_GLOBAL for s in program.specs], np.bool_)
    also = _governed_by(program)
    before = None
    while before is None or not np.array_equal(before, bits):
        before = bits.copy()
        for op in range(program.op_count):
            spec = program.op_spec[op]
            found = 0
            for value in program.operands_of(op):
                found |= bits[program.value_op[value]]
            if op in also:
                found |= bits[program.value_op[also[op]]]
            bits[op] = found & ~own[spec] if leaves[spec] else found | own[spec]
    return ManualAxes(names, bits)


def closed_axes(program: Program, mesh: Mesh) -> np.ndarray:
    """bool[ops, axes]: no loop over the axis may be added to the op. Raises `MeshError` for regions on another mesh."""
    closed = np.zeros((program.op_count, len(mesh.axis_names)), np.bool_)
    manual = program.manual
    if not manual.names:
        return closed
    for op in _edges(program):
        _check_mesh(program, op, mesh)
        for axis in program.spec(op).attributes["axes"]:
            closed[op, mesh.index(axis)] = True
    for i, name in enumerate(manual.names):
        closed[:, mesh.index(name)] |= (manual.of_op >> i & 1).astype(np.bool_)
    return closed


def manual_loops(program: Program, mesh: Mesh) -> Iterator[ManualLoop]:
    """The loops that the edges of regions have from the start."""
    for op in _edges(program):
        spec = program.spec(op)
        if spec.kind == POSITION:
            continue
        cut = [dim for dim, axes in enumerate(spec.attributes["dims"]) if axes]
        for number, dim in enumerate(cut):
            axes = spec.attributes["dims"][dim]
            for order, axis in enumerate(axes):
                yield ManualLoop(op, mesh.index(axis), number, order - len(axes))


def _edges(program: Program) -> list[int]:
    if not program.manual.names:
        return []
    is_edge = np.array([s.kind in KINDS for s in program.specs], np.bool_)
    return np.flatnonzero(is_edge[program.op_spec]).tolist()


def _check_mesh(program: Program, op: int, mesh: Mesh) -> None:
    own = dict(program.spec(op).attributes["mesh"])
    if list(own.items()) == list(mesh.shape.items()):
        return
    others = [name for name in own if name not in mesh.shape]
    raise MeshError(
        f"shard_map {program.where(op)}: it is over the mesh {_shape(own)}, not {_shape(mesh.shape)}",
        why=f'axis "{others[0]}" is not in the mesh' if others else "its collectives count devices of its own mesh",
        hint="partition over the mesh of the shard_map: the same axes and sizes, in the same order",
    )


def _shape(shape: object) -> str:
    return "{" + ", ".join(f"{name}:{size}" for name, size in dict(shape).items()) + "}"  # pyright: ignore


def _bits(axes: tuple[str, ...], names: tuple[str, ...]) -> int:
    return sum(1 << names.index(axis) for axis in axes)


def _governed_by(program: Program) -> dict[int, int]:
    """carry, join -> the value that says how often its loop runs, or which branch."""
    governed: dict[int, int] = {}
    for op, owner in program.owners.items():
        inner = program.inner_scopes[owner][0]
        mark = owner if program.scopes[inner].kind == "branch" else program.scopes[inner].end - 1
        governed[op] = int(program.operands_of(mark)[0])
    return governed
