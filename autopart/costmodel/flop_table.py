"""Flop of every op's examples, as the cost model and as XLA count them: `python -m autopart ops --flop`.

    kind         types                             ours    XLA
    dot_general  (f32[4,6], f32[6,2]) -> f32[4,2]    96     96
    sine         (f32[4,6]) -> f32[4,6]            4752     24    operations of the vector unit; XLA counts ...

Where the two are more than 5 % apart, the rule says why; tests see to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autopart.core.doors.jax_internals import xla_flop
from autopart.core.op import TensorType
from autopart.core.ops.example_import import example_op
from autopart.core.ops.rule import Example, Rule, rules
from autopart.costmodel.compiled.facts.op_classes import op_work

TOLERANCE = 0.05


@dataclass(frozen=True)
class FlopRow:
    """One example: its flop as the cost model counts them (None: unknown) and as XLA does; the rule's reason."""

    kind: str
    types: str
    ours: float | None
    xla: float
    reason: str

    @property
    def agrees(self) -> bool:
        """True if both counts are within `TOLERANCE` of the larger."""
        if self.ours is None:
            return False
        return abs(self.ours - self.xla) <= TOLERANCE * max(self.ours, self.xla)


def flop_row(rule: Rule, example: Example) -> FlopRow:
    """Counts one example both ways; tens of milliseconds."""
    found = example_op(example)
    spec = found.spec
    counted = op_work(spec)
    ours = None if counted is None else counted.matrix_flop + counted.vector_flop
    types = f"({_types(spec.operands)}) -> {_types(spec.results)}"
    xla = xla_flop(found.module, spec.operands, spec.results)
    return FlopRow(rule.kind, types, ours, xla, rule.traits.flop_reason)


def _types(types: tuple[TensorType, ...]) -> str:
    return ", ".join(map(str, types))


def flop_table() -> str:
    """All examples of all rules; a line says why where the counts are apart."""
    rows = [flop_row(rule, example) for rule in rules() for example in rule.examples]
    return "\n".join(_lines(rows))


def _lines(rows: list[FlopRow]) -> Iterator[str]:
    kind, types = (max(len(getattr(r, name)) for r in rows) for name in ("kind", "types"))
    yield f"{'kind':<{kind}}  {'types':<{types}}  {'ours':>8}  {'XLA':>8}"
    for row in rows:
        ours = "unknown" if row.ours is None else f"{row.ours:.6g}"
        why = "" if row.agrees else f"  {row.reason}"
        yield f"{row.kind:<{kind}}  {row.types:<{types}}  {ours:>8}  {row.xla:>8.6g}{why}"
