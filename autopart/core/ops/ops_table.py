"""What the registry knows, as text: `python -m autopart ops`, with what its lines mean and the passes that run before.

    reshape
      f32[4,6] -> f32[24]
        (0) -> tile 0, at most 4 ways

and how much of a program it covers: `python -m autopart ops --coverage FILE`.
"""

from __future__ import annotations

import inspect
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from autopart.core.op import ANY, REDUCTION_NAMES, WHOLE, OpSpec, TileMapping
from autopart.core.ops.example_import import example_op
from autopart.core.ops.rule import Rule, mappings_of, named, rule_of, rules
from autopart.core.passes import IMPORT_PASSES
from autopart.core.program import Program

_WIDTH = 110

_LEGEND = """\
Tile mappings: (dim sliced per operand, _ is whole) -> action per result, on one example per kind.

    tile 0, at most 4 ways        the result is tiled on dim 0, by axes whose sizes together divide 4
    sum, max, min, mul, and, or   each device makes a part, and collectives combine the parts where they are needed
    any                           each device makes the same
    after (0) -> tile 0 in 4      once axes outside have cut that dim into 4
    by exchange for dim 1         a tile of dim 1 that no other mapping takes is moved to where this one slices
    with what is read of          a tile reads other tiles as well, or others: the pieces are moved, or the whole is
        neighbours                gathered where that costs less
    left out                      what could be sliced besides, and why it is not

A dim that no mapping slices is whole on every device: what is tiled there is gathered for the op, and
`Lowered.metadata.gathered` has the gather with its reason, source line and bytes.

Before that, every program goes through these passes; most rewrite what no mapping could slice:
"""


def ops_table() -> str:
    """Every op kind with a rule, by family, with the tile mappings of an example; then those that block, and why."""
    families: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    blocked: defaultdict[str, list[str]] = defaultdict(list)
    for rule in rules():
        if rule.blocks:
            blocked[rule.blocked_because].append(rule.kind)
        else:
            others = f"\n  in other forms none: {rule.blocked_because}" if rule.blocked_because else ""
            left_out = "".join(f"\n  left out: {omission.why}" for omission in rule.omissions)
            families[rule.family][_mappings_text(rule) + left_out + others].append(rule.kind)
    lines = [_LEGEND, *_passes_text(), ""]
    for family in sorted(families):
        lines.append(family)
        for text, kinds in families[family].items():
            lines += textwrap.wrap(", ".join(kinds), _WIDTH, initial_indent="  ", subsequent_indent="  ")
            lines += [f"      {line}" for line in text.splitlines()]
        lines.append("")
    lines.append("known, and not partitioned")
    for reason, kinds in sorted(blocked.items()):
        lines += textwrap.wrap(f"{', '.join(kinds)}: {reason}", _WIDTH, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines)


def _passes_text() -> list[str]:
    """A line for each pass that every program goes through: its class, and what it does."""
    does = {type(one).__name__: (inspect.getdoc(type(one)) or "").partition("\n")[0] for one in IMPORT_PASSES}
    width = max(map(len, does)) + 2
    return [f"    {name:{width}}{line}" for name, line in does.items()]


def _mappings_text(rule: Rule) -> str:
    """The example's types, and a line per mapping."""
    if rule.structural:
        return _STRUCTURAL.get(rule.kind, "every dim, in operands and results alike")
    if not rule.examples:
        return "without an example"
    spec = example_op(rule.examples[0]).spec
    types = ", ".join(map(str, spec.operands)), ", ".join(map(str, spec.results))
    head = f"{types[0]} -> {types[1]}".strip()
    return "\n".join([head, *(f"  {mapping_text(m)}" for m in mappings_of(spec) or ())])


_STRUCTURAL = {
    **dict.fromkeys(("while", "case", "if", "condition"), "marks of control flow"),
    **dict.fromkeys(("to_local", "to_global"), "the edge of a shard_map: every dim that it does not cut"),
    "position": "the number of the device, in a shard_map",
}
"""What is said of kinds that no module has, where they are no identities."""


def ops_rows() -> list[dict[str, Any]]:
    """As `ops_table`, a row per kind: family, types of its example, mappings there, why it blocks, what is left out."""
    rows: list[dict[str, Any]] = []
    for rule in rules():
        head, *mappings = _mappings_text(rule).splitlines() if rule.examples else [""]
        rows.append(
            {
                "kind": rule.kind,
                "family": rule.family,
                "example": head,
                "mappings": [line.strip() for line in mappings],
                "blocked_because": rule.blocked_because,
                "left_out": [omission.why for omission in rule.omissions],
            }
        )
    return rows


def mapping_text(mapping: TileMapping) -> str:
    """A mapping as `(1, 0) -> sum, at most 16 ways`: operand dims, _ where whole, and an action per result."""
    text = f"{factor_text(mapping)}, at most {mapping.extent} ways"
    if mapping.after is not None:
        text += f", after {factor_text(mapping.after)} in {mapping.after.extent}"
    drawn = ", ".join(f"dim {dim}" + (f" of operand {k}" if k else "") for k, dim in mapping.drawn_by)
    if mapping.reads:
        return f"{text}, with what is read of neighbours"
    return f"{text}, by exchange for {drawn}" if drawn else text


def factor_text(mapping: TileMapping) -> str:
    """A mapping as `(1, 0) -> sum`."""
    operands = ", ".join("_" if d == WHOLE else str(d) for d in mapping.operands)
    return f"({operands}) -> {', '.join(map(action_text, mapping.results))}"


def action_text(action: int) -> str:
    """A result entry of a mapping: `tile 0`, `sum`, `any`."""
    return "any" if action == ANY else REDUCTION_NAMES.get(action, f"tile {action}")


def coverage(program: Program) -> str:
    """How many of a program's ops have a rule, and which do not; which have one and yet no mapping, and why."""
    counts = Counter(program.op_spec.tolist())
    structural = {i for i, s in enumerate(program.specs) if (r := rule_of(s)) is not None and r.structural}
    ops = [(spec, counts[i], i) for i, spec in enumerate(program.specs) if i not in structural]
    total = sum(count for _, count, _ in ops)
    unknown = [(named(s), n, _place(program, i)) for s, n, i in ops if mappings_of(s) is None]
    blocked = [(f"{named(s)}: {_reason(s)}", n, _place(program, i)) for s, n, i in ops if _blocks(s)]
    known = total - sum(n for _, n, _ in unknown)
    share = 100 * known / total if total else 100.0
    lines = [f"{known:,} of {total:,} ops have a rule ({share:.2f} %), in {len(ops):,} distinct forms."]
    lines += _listed("without a rule (they block propagation; register_custom_call adds rules)", unknown)
    lines += _listed("with a rule, and no tile mapping in this form", blocked)
    return "\n".join(lines)


def _blocks(spec: OpSpec) -> bool:
    """True if an op has results that could be tiled, and a rule that says they cannot."""
    return mappings_of(spec) == () and any(size > 1 for t in spec.results for size in t.shape)


def _reason(spec: OpSpec) -> str:
    rule = rule_of(spec)
    if rule is not None and rule.blocked_because:
        return rule.blocked_because
    types = " -> ".join(", ".join(map(str, group)) for group in (spec.operands[:3], spec.results[:1]))
    return f"{types}: no dim of it can be sliced"


def _place(program: Program, spec: int) -> str:
    first = int((program.op_spec == spec).argmax())
    return program.where(first)


def _listed(title: str, rows: Iterable[tuple[str, int, str]]) -> list[str]:
    """Rows of equal text added up, most frequent first, each with the first place it occurs."""
    counts: Counter[str] = Counter()
    places: dict[str, str] = {}
    for text, count, place in rows:
        counts[text] += count
        places.setdefault(text, place)
    if not counts:
        return []
    body = [f"  {n:>7,}  {text}" + (f"   {places[text]}" if places[text] else "") for text, n in counts.most_common()]
    return ["", f"{title}:", *body]
