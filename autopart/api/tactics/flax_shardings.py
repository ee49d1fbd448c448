"""Partition metadata of flax as given shardings: `in_shardings="flax"`, or a table of logical axis rules.

    nn.with_partitioning(init, (None, "model"))                  kernel/value: P(None, "model")
    nn.with_logical_partitioning(init, ("embed", "mlp"))         by rules: P("fsdp", "tensor")
    nnx.with_partitioning(init, ("embed", "mlp"))                the same, of a variable's metadata

    ap.jit(step, mesh, in_shardings=[("embed", "fsdp"), ("mlp", "tensor")])

A name is looked for in the rules that are given, in those of the box and of `nn.logical_axis_rules` around the call,
and last among the mesh's axes. As in flax, the first rule counts whose axes no dim before has taken, and a name without
one leaves the dim whole. What has no metadata is left to the schedule.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.sharding import PartitionSpec

from autopart.api.tracing.trace import Traced
from autopart.base.arguments import is_sequence
from autopart.core.mesh import Mesh

WORD = "flax"
"""What asks for it."""


@dataclass(frozen=True)
class FlaxNames:
    """What asks for the shardings that names of dims say.

    rules     (name, mesh axes), those that come first count; () for those of the context
    by_path   names of dims by the full names of inputs, where no boxes in the arguments have them
    """

    rules: tuple[tuple[str, Any], ...] = ()
    by_path: dict[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])

    def specs(self, traced: Traced, mesh: Mesh) -> Iterator[tuple[int, PartitionSpec]]:
        """(position among the program's arguments, what its names say on the mesh)."""
        names = traced.program.argument_names
        found = {n: (self.by_path[name], None) for n, name in enumerate(names) if name in self.by_path}
        for position, (dims, rules) in (found | boxes(traced)).items():
            yield position, spec_of_names(dims, [*self.rules, *(rules or ()), *_around()], mesh)


def names_asked(in_shardings: Any) -> Any:
    """`FlaxNames` where `in_shardings` asks for it, else as it is."""
    if isinstance(in_shardings, str) and in_shardings == WORD:
        return FlaxNames()
    is_rules = is_sequence(in_shardings) and bool(in_shardings) and all(map(_is_rule, in_shardings))
    return FlaxNames(tuple((name, axes) for name, axes in in_shardings)) if is_rules else in_shardings


def _is_rule(entry: Any) -> bool:
    return is_sequence(entry) and not isinstance(entry, PartitionSpec) and len(entry) == 2 and isinstance(entry[0], str)


def boxes(traced: Traced) -> dict[int, tuple[tuple[Any, ...], Any]]:
    """Position among the program's arguments -> (names of dims, rules of its own), of what a box of flax holds."""
    if "flax.core.meta" not in sys.modules:
        return {}
    box = sys.modules["flax.core.meta"].Partitioned
    tree = jax.tree.unflatten(traced.in_tree, traced.of_leaves(range(len(traced.in_avals))))
    found = jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, box))
    return {b.value: (tuple(b.names), getattr(b, "rules", None)) for b in found if isinstance(b, box)}


def _around() -> Sequence[tuple[str, Any]]:
    """The rules of `nn.logical_axis_rules` around the call."""
    module = sys.modules.get("flax.linen")
    return () if module is None else tuple(module.get_logical_axis_rules())


def spec_of_names(dims: Sequence[Any], rules: Sequence[tuple[str, Any]], mesh: Mesh) -> PartitionSpec:
    """The PartitionSpec of an array whose dims have these names."""
    taken: set[str] = set()
    entries: list[tuple[str, ...] | None] = []
    for dim in dims:
        axes = tuple(axis for name in _several(dim) for axis in _axes(name, rules, mesh, taken))
        taken.update(axes)
        entries.append(axes or None)
    return PartitionSpec(*entries)


def _axes(name: str, rules: Sequence[tuple[str, Any]], mesh: Mesh, taken: set[str]) -> tuple[str, ...]:
    for known, axes in rules:
        found = tuple(axis for axis in _several(axes) if axis in mesh.axis_names)
        if known == name and not taken.intersection(found):
            return found
    is_ruled = any(known == name for known, _ in rules)
    return (name,) if name in mesh.axis_names and name not in taken and not is_ruled else ()


def _several(entry: Any) -> tuple[str, ...]:
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def unread(names: Mapping[str, Any]) -> str:
    """A remark about metadata that nobody asked for."""
    first, *more = names
    others = f" and {len(more)} more" if more else ""
    return f'{first}{others}: partition metadata of flax that nothing reads; in_shardings="flax" would'
