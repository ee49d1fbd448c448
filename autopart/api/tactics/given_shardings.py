"""Shardings that a program comes with, as the first tactic: those given to `ap.jit`, and the constraints in the model.

    in_shardings=(P("batch"), None)                              tile<x, 0, batch>, atomic<x, model>; w is left open
    jax.lax.with_sharding_constraint(h, P("batch", UNCONSTRAINED))   tile<h, 0, batch>; h's other axes are left open

An axis that a sharding does not name is kept off the value, as jax understands it, unless a dim is unconstrained, or
the sharding is over a mesh of its own that lacks the axis.
What a `jax.shard_map` in the model partitions by hand (`core/manual_regions.py`) spreads with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from autopart.api.tactics.flax_shardings import FlaxNames
from autopart.api.tactics.tactic import TacticContext, TacticResult
from autopart.api.tracing.trace import Traced
from autopart.base.arguments import shown
from autopart.base.errors import ArgumentError, CallError, MeshError, PartitionError
from autopart.core.importer.constraints import Constraint, Dims, constraint_of, is_constraint, told_by
from autopart.core.manual_regions import TO_GLOBAL, TO_LOCAL
from autopart.core.mesh import Mesh
from autopart.core.program import Program
from autopart.core.table.actions import Action, Atomic, Propagate, Tile
from autopart.core.table.partitioning import Partitioning

_HINT = 'constraints="ignore" leaves out those that are in the model'


@dataclass(frozen=True)
class Given:
    """The sharding of one value, and what errors and metadata call it."""

    value: int
    what: str
    constraint: Constraint
    in_model: bool = False
    memory_kind: str = ""


@dataclass(frozen=True)
class GivenShardings:
    """Tiles values as their given shardings say, keeps them whole along the other axes, then propagates.

    `regions` tell what the model partitions by hand. A partitioning has that from the start; here it spreads.
    """

    shardings: tuple[Given, ...]
    regions: tuple[str, ...] = ()
    name: str = field(default="given shardings")

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`."""
        actions: list[Action] = []
        for given in self.shardings:
            try:
                for action in _actions(given, partitioning.mesh):
                    partitioning.apply(action)
                    actions.append(action)
            except PartitionError as error:
                raise type(error)(f"{given.what}: {error.what}", why=error.why, hint=error.hint or _HINT) from None
        order = self._axis_order(partitioning)
        partitioning.propagate(order)
        texts = [*self.regions, *(f"{given.what}: {_text(given.constraint.dims)}" for given in self.shardings)]
        report = {
            "shardings": texts,
            "kept_whole": self._kept_whole(partitioning),
            "memory_kinds": {given.what: given.memory_kind for given in self.shardings if given.memory_kind},
        }
        return TacticResult([*actions, *map(Propagate, order)], report)

    def _axis_order(self, partitioning: Partitioning) -> list[str]:
        """All mesh axes, in the order in which the dims of what is given name them, the largest array's first."""
        before: dict[str, set[str]] = {axis: set() for axis in partitioning.mesh.axis_names}
        for given in sorted(self.shardings, key=lambda g: -partitioning.program.type_of(g.value).bytes):
            for outer, inner in (pair for dim in given.constraint.dims for pair in pairwise(dim or ())):
                if inner not in _closure(before, outer):
                    before[inner].add(outer)
        order: list[str] = []
        while len(order) < len(before):
            order.append(next(a for a, outer in before.items() if a not in order and outer.issubset(order)))
        return order

    def _kept_whole(self, partitioning: Partitioning) -> dict[str, str]:
        """Axis -> what the constraints in the model keep whole on it, the largest value with its line."""
        program, kept = partitioning.program, dict[str, list[Given]]()
        for given in self.shardings:
            for action in _actions(given, partitioning.mesh) if given.in_model else ():
                if isinstance(action, Atomic):
                    kept.setdefault(action.axis, []).append(given)
        largest = {a: max(some, key=lambda g: program.type_of(g.value).bytes) for a, some in kept.items()}
        return {
            axis: f"{len(kept[axis])} value{'s' if len(kept[axis]) > 1 else ''} whole on it, the largest "
            f"{program.type_of(given.value)} by {given.what}"
            for axis, given in largest.items()
        }


def given_shardings(traced: Traced, mesh: Mesh, in_shardings: Any, out_shardings: Any) -> tuple[GivenShardings, ...]:
    """The tactic for what `ap.jit` was given and for the constraints in the program; none where there are none.

    Raises `ArgumentError` for what is no sharding, `CallError` where the pytrees do not fit.
    """
    found = [*_of_arguments(traced, mesh, in_shardings), *_of_outputs(traced, mesh, out_shardings)]
    found = [g for g in (*found, *_in_model(traced.program, mesh)) if g.constraint.says or g.memory_kind]
    regions = tuple(_regions(traced.program))
    return (GivenShardings(tuple(found), regions),) if found or regions else ()


def _regions(program: Program) -> Iterator[str]:
    """A line for each `shard_map` of the model; equal ones of a line of code are one."""
    if not program.manual.names:
        return
    found: dict[tuple[str, tuple[str, ...]], dict[str, list[str]]] = {}
    is_edge = np.array([s.kind in (TO_LOCAL, TO_GLOBAL) for s in program.specs], np.bool_)
    for op in np.flatnonzero(is_edge[program.op_spec]).tolist():
        spec = program.spec(op)
        lists = found.setdefault((program.where(op), spec.attributes["axes"]), {TO_LOCAL: [], TO_GLOBAL: []})
        lists[spec.kind].append(_text(spec.attributes["dims"]))
    for (where, axes), lists in found.items():
        takes, leaves = (", ".join(dict.fromkeys(lists[kind])) or "nothing" for kind in (TO_LOCAL, TO_GLOBAL))
        yield f"shard_map {where}: over {', '.join(axes)}, takes {takes}, leaves {leaves}".replace(" :", ":")


def _in_model(program: Program, mesh: Mesh) -> Iterator[Given]:
    for tag, values in program.tags.items():
        for value in values if is_constraint(tag) else ():
            what = f"with_sharding_constraint {program.where(int(program.value_op[value]))}".rstrip()
            try:
                yield Given(value, what, constraint_of(tag, mesh, len(program.type_of(value).shape)), in_model=True)
            except PartitionError as error:
                raise type(error)(f"{what}: {error.what}", why=error.why, hint=_HINT) from None


def _of_arguments(traced: Traced, mesh: Mesh, shardings: Any) -> Iterator[Given]:
    if shardings is None:
        return
    program, positions = traced.program, traced.of_leaves(range(len(traced.in_avals)))
    if isinstance(shardings, FlaxNames):
        for position, spec in shardings.specs(traced, mesh):
            value, what = program.arguments[position], f"flax names of {program.argument_names[position]}"
            yield Given(value, what, _said(what, spec, len(program.type_of(value).shape), mesh))
        return
    args, kwargs = jax.tree.unflatten(traced.in_tree, positions)
    if jax.tree.leaves(kwargs):
        raise CallError(
            f"in_shardings are for positional arguments, not for {', '.join(kwargs)}",
            hint="call it with positional arguments",
        )
    named = zip(program.arguments, program.argument_names, strict=True)
    whats = [(v, f"in_shardings of {name}") for v, name in named]
    yield from _given("in_shardings", shardings, args, whats, program, mesh)


def _of_outputs(traced: Traced, mesh: Mesh, shardings: Any) -> Iterator[Given]:
    if shardings is None:
        return
    program = traced.program
    outputs = jax.tree.unflatten(traced.out_tree, range(len(traced.out_avals)))
    named = zip(program.outputs, program.output_names, strict=True)
    whats = [(v, f"out_shardings of outputs/{name}".rstrip("/")) for v, name in named]
    yield from _given("out_shardings", shardings, outputs, whats, program, mesh)


def _given(
    option: str, shardings: Any, tree: Any, values: Sequence[tuple[int, str]], program: Program, mesh: Mesh
) -> Iterator[Given]:
    """One for each leaf of `tree`, a tree of positions in `values`, of which `shardings` is a prefix."""
    shardings = tuple(shardings) if isinstance(shardings, list) and isinstance(tree, tuple) else shardings
    try:
        each = jax.tree.leaves(jax.tree.broadcast(shardings, tree, is_leaf=_is_leaf), is_leaf=_is_leaf)
    except (TypeError, ValueError) as error:
        why = " ".join(str(error).split())[:300]
        raise CallError(
            f"{option} does not fit the {'arguments' if option[0] == 'i' else 'results'}", why=why
        ) from None
    for position, sharding in zip(jax.tree.leaves(tree), each, strict=True):
        value, what = values[position]
        if sharding is not None:
            said = _said(what, sharding, len(program.type_of(value).shape), mesh)
            yield Given(value, what, said, memory_kind=_other_memory(sharding))


def _other_memory(sharding: Any) -> str:
    """The kind of memory that a sharding asks for, where it is not its devices' own; else ""."""
    kind = getattr(sharding, "memory_kind", None)
    devices = getattr(getattr(sharding, "mesh", None), "_flat_devices_tuple", ()) if kind else ()
    own = devices[0].default_memory().kind if devices else "device"
    return "" if kind in (None, "device", own) else str(kind)


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(x, (PartitionSpec, jax.sharding.Sharding))


def _said(what: str, sharding: Any, rank: int, mesh: Mesh) -> Constraint:
    """What a sharding says: a `NamedSharding` of the axes of its own mesh, a `PartitionSpec` of all axes of `mesh`."""
    spec = sharding.spec if isinstance(sharding, NamedSharding) else sharding
    if not isinstance(spec, PartitionSpec):
        raise ArgumentError(
            f"{what}: {shown(sharding)} is no sharding over mesh axes",
            hint="a jax.sharding.PartitionSpec, a NamedSharding, or None to leave it to the schedule",
        )
    if len(spec) > rank:
        raise ArgumentError(f"{what}: {shown(spec)} is for {len(spec)} dims", why=f"the array has {rank}")
    dims = (*map(_axes, spec), *[()] * (rank - len(spec)))
    its = dict(sharding.mesh.shape) if isinstance(sharding, NamedSharding) else {}
    for axis, size in its.items():
        if size != mesh.shape.get(axis, size):
            raise MeshError(
                f'{what}: its mesh has {size} devices along "{axis}"', why=f"this mesh is {mesh}",
                hint="a NamedSharding of the same mesh, or a PartitionSpec",
            )  # fmt: skip
    return told_by(dims, sharding.mesh.shape if isinstance(sharding, NamedSharding) else mesh.shape, mesh)


def dims_by_axis(what: str, spec: Any, rank: int, axes: Sequence[str]) -> list[int | None] | None:
    """The dim that a `PartitionSpec` tiles along each of some axes, None along one that it does not name.

    None for what is no spec. Raises `ArgumentError` for a spec of too many dims, of other axes, or with an open dim.
    """
    if not isinstance(spec, PartitionSpec):
        return None
    if len(spec) > rank:
        raise ArgumentError(f"{what}: {shown(spec)} is for {len(spec)} dims", why=f"the array has {rank}")
    dims, over = list(map(_axes, spec)), ", ".join(map(repr, axes))
    if None in dims:
        raise ArgumentError(
            f"{what}: {shown(spec)} leaves a dim open", hint="ap.UNKNOWN, which leaves all of them open"
        )
    named = [axis for dim in dims for axis in dim or ()]
    if others := [axis for axis in named if axis not in axes]:
        wanted = (*axes, *others)
        raise ArgumentError(
            f'{what}: {shown(spec)} names "{others[0]}"', why=f"the tactic is over {over}", hint=f"axis={wanted!r}"
        )
    for dim in dims:
        ordered = sorted(dim or (), key=list(axes).index)
        if list(dim or ()) != ordered:
            raise ArgumentError(
                f"{what}: {shown(spec)} has {', '.join(dim or ())} on one dim, outermost first",
                why=f"the tactic is over {over}, outermost first",
                hint=f"axis={tuple(dim or ())!r}",
            )
    return [next((n for n, dim in enumerate(dims) if axis in (dim or ())), None) for axis in axes]


def _axes(entry: Any) -> tuple[str, ...] | None:
    if entry is PartitionSpec.UNCONSTRAINED:
        return None
    return (entry,) if isinstance(entry, str) else tuple(entry or ())


def _actions(given: Given, mesh: Mesh) -> Iterator[Action]:
    named = [(dim, axis) for dim, axes in enumerate(given.constraint.dims) for axis in axes or ()]
    for dim, axis in named:
        mesh.index(axis)
        yield Tile(given.value, dim, axis)
    if None not in given.constraint.dims:
        left = given.constraint.axes.difference(axis for _, axis in named)
        yield from (Atomic(given.value, axis) for axis in mesh.axis_names if axis in left)


def _closure(before: Mapping[str, set[str]], axis: str) -> set[str]:
    """The axis and all that come before it."""
    return {axis}.union(*(_closure(before, outer) for outer in before[axis]))


def _text(dims: Dims) -> str:
    """The dims as jax writes them."""
    return f"P({', '.join('UNCONSTRAINED' if d is None else repr(d[0] if len(d) == 1 else d or None) for d in dims)})"
