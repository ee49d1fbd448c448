"""`plan.as_jax()`: a plan as what other programs take, as data and as text.

specs, out_specs    path -> PartitionSpec
constraints         lines of the model's code, each with a value and its PartitionSpec
rules               [("embed", "fsdp"), ("mlp", "tensor")], as MaxText and flax read them, and what does not fit

print(plan.as_jax())                        jax.jit with in_shardings, and with_sharding_constraint lines
print(plan.as_jax().explicit)               with jax.set_mesh and explicit axes: reshard lines
nn.logical_axis_rules(plan.as_jax().rules)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from jax.sharding import PartitionSpec

from autopart.base.quoting import one_line, quoted

if TYPE_CHECKING:
    from autopart.api.plan.plan import Plan, PlanArray

Spec = tuple[tuple[str, ...], ...]
Axes = str | tuple[str, ...]
RESHARD = "jax.sharding.reshard"
ROLES = ("batch", "vocab", "embed", "length", "heads", "kv", "mlp")
"""What dims of inputs are called, as `dim_roles.py` finds them; rules are in this order."""

_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Constraint:
    """A line of the model's code at which a value comes to lie as `spec` says; `count` values of layers do.

    made_by   the kind of op that leaves the value so; empty where what reads it takes it so
    """

    where: str
    value: str
    type: str
    spec: PartitionSpec
    count: int = 1
    made_by: str = ""


@dataclass(frozen=True)
class AsJax:
    """A plan in jax's terms; `str` is the code."""

    plan: Plan

    @cached_property
    def specs(self) -> dict[str, PartitionSpec]:
        """The PartitionSpec of each input, by path."""
        return {array.name: _spec(array.spec) for array in self.plan.inputs}

    @cached_property
    def out_specs(self) -> dict[str, PartitionSpec]:
        """The PartitionSpec of each output, by path."""
        return {array.name: _spec(array.spec) for array in self.plan.outputs}

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        """Where `jax.lax.with_sharding_constraint`, or with explicit axes `jax.sharding.reshard`, would stand."""
        return tuple(
            Constraint(line.where, line.value, line.type, _spec(line.spec), line.count, line.made_by)
            for line in self.plan.lines
        )

    @cached_property
    def rules(self) -> list[tuple[str, Axes | None]]:
        """(role of a dim, mesh axes), for `flax.linen.logical_axis_rules` and MaxText's `logical_axis_rules`."""
        return [(role, _entry(axes)) for role, axes in self._rules.items()]

    @cached_property
    def misfits(self) -> tuple[str, ...]:
        """What of the plan no rule about a dim's role says."""
        return tuple(_misfits(self.plan.inputs, self._rules))

    @cached_property
    def _rules(self) -> dict[str, tuple[str, ...]]:
        """Role -> the axes that most elements of that role's dims lie on, the fewest of equal ones; none where more
        lie on none, though these axes are free in their arrays."""
        held: dict[str, list[tuple[tuple[str, ...], set[str], int]]] = {}
        for array in self.plan.inputs:
            used = {axis for dim in array.spec for axis in dim}
            for role, axes in zip(array.dims, _padded(array), strict=True):
                held.setdefault(role, []).append((axes, used, _elements(array.type)))
        found: dict[str, tuple[str, ...]] = {}
        for role in (role for role in ROLES if role in held):
            count = Counter[tuple[str, ...]]()
            for axes, _, elements in held[role]:
                count[axes] += elements * bool(axes)
            best = min(count, key=lambda axes: (-count[axes], len(axes)))
            against = sum(elements for axes, used, elements in held[role] if not axes and not used.intersection(best))
            if count[best] > against:
                found[role] = best
        return found

    # ---- as text

    def __str__(self) -> str:
        """For `jax.jit`: a mesh with Auto axes, which XLA's partitioner fills in, and logical axis rules."""
        text = self._code("mesh = {}", "Auto", "with_sharding_constraint", "jax.lax.with_sharding_constraint")
        return "\n".join([*text, "", *self._rules_text])

    @property
    def explicit(self) -> str:
        """With explicit axes, which are a part of types: what comes in so, and where it is resharded.

        Where jax asks an op for the type of its result, as it asks products over a dim that lies in parts, the line is
        that argument.
        """
        return "\n".join(self._code("jax.set_mesh({})", "Explicit", "reshard", RESHARD))

    def _code(self, mesh: str, kind: str, what: str, call: str) -> list[str]:
        sizes, names = tuple(size for _, size in self.plan.axes), ", ".join(quoted(name) for name, _ in self.plan.axes)
        made = mesh.format(f"jax.make_mesh({sizes}, ({names},), axis_types=(AxisType.{kind},) * {len(sizes)})")
        imported = ["import jax", "from jax.sharding import AxisType, PartitionSpec as P", "", made]
        return [*imported, *self._specs_text, *self._lines_text(what, call)]

    @property
    def _specs_text(self) -> list[str]:
        """`specs`, with a glob for the paths of one PartitionSpec that differ in numbers."""
        found: dict[tuple[str, PartitionSpec], list[str]] = {}
        for name, spec in self.specs.items():
            found.setdefault((_DIGITS.sub("*", name), spec), []).append(name)
        starred = Counter(glob for glob, _ in found)
        rows = [(g if starred[g] == 1 and len(names) > 1 else n, spec) for (g, spec), names in found.items()
                for n in (names if starred[g] > 1 else names[:1])]  # fmt: skip
        return ["specs = {", *(f"    {quoted(name)}: {_text(spec)}," for name, spec in rows), "}"]

    def _lines_text(self, what: str, call: str) -> list[str]:
        if not self.constraints:
            return []
        width = max(len(c.where) for c in self.constraints)
        return ["", f"# {what}, by line of the model", *(
            f"# {c.where:{width}}  {_line(c, call)}: {c.type}" + (f", {c.count} x" if c.count > 1 else "")
            for c in self.constraints
        )]  # fmt: skip

    @property
    def _rules_text(self) -> list[str]:
        rows = [f"    ({quoted(role)}, {axes!r})," for role, axes in self.rules]
        return ["logical_axis_rules = [", *rows, "]", *(f"# no rule says: {text}" for text in self.misfits)]


_TAKE_OUT_SHARDING = ("dot_general", "gather", "reshape", "convolution")
"""Ops that jax asks for `out_sharding=` where axes are explicit and several results are conceivable."""


def _line(found: Constraint, call: str) -> str:
    """What stands at the line, and of what."""
    spec, value = _text(found.spec), one_line(found.value)
    if call == RESHARD and found.made_by in _TAKE_OUT_SHARDING:
        return f"{found.made_by}(..., out_sharding={spec})    # {value}"
    return f"y = {call}(y, {spec})    # y: {value}"


def _spec(spec: Spec) -> PartitionSpec:
    return PartitionSpec(*map(_entry, spec))


def _entry(axes: Sequence[str]) -> Axes | None:
    return None if not axes else axes[0] if len(axes) == 1 else tuple(axes)


def _text(spec: PartitionSpec) -> str:
    return f"P({', '.join(map(repr, spec))})"


def _padded(array: PlanArray) -> list[tuple[str, ...]]:
    """The axes of each dim that has a role."""
    return [*array.spec, *[()] * (len(array.dims) - len(array.spec))]


def _elements(type_: str) -> int:
    sizes = re.findall(r"\d+", type_.partition("[")[2])
    total = 1
    for size in sizes:
        total *= int(size)
    return total


def _misfits(arrays: Sequence[PlanArray], rules: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Arrays that lie otherwise than the rules say, by how; an axis goes to the first dim that wants it."""
    groups: dict[str, list[str]] = {}
    for array in arrays:
        taken: set[str] = set()
        for role, axes in zip(array.dims, _padded(array), strict=True):
            wanted = tuple(axis for axis in rules.get(role, ()) if axis not in taken)
            taken.update(wanted)
            if axes != wanted:
                said = f'its "{role}" is {_said(axes)}, not {_said(wanted)}' if role else f"a dim is {_said(axes)}"
                groups.setdefault(said, []).append(array.name)
    for said, names in groups.items():
        yield f"{one_line(names[0])}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {said}"


def _said(axes: Sequence[str]) -> str:
    return f"on {', '.join(axes)}" if axes else "whole"
