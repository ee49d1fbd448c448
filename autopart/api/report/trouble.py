"""What stops, is gathered or is left whole, each with what to do about it.

Conflict: dot_general on "model", 32 x  at model.py:41
  (0, _) -> tile 0    12.1 ms (-0.8 ms), 4.2 GB
  try  decide about a value that it reads: ap.tag("name", x) there, then ap.ManualPartition({"name": 0}, "model")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autopart.api.explained.metadata import Metadata
from autopart.base.html import escaped, lines_html, table_html
from autopart.base.quoting import short_place
from autopart.base.units import bytes_text

ROWS = 12
"""Of each kind."""


def trouble(metadata: Metadata) -> str:
    """What does not fit, conflicts, ops without a rule, gathers nobody asked for, what is replicated."""
    parts = [*_advice(metadata), *_conflicts(metadata)]
    blocked = metadata.tactics[-1].unpartitioned if metadata.tactics else {}
    if blocked:
        said = [f"{kind}, {len(where)} x, the first at {short_place(where[0])}" for kind, where in blocked.items()]
        parts.append(f"<h3>Ops that block propagation</h3>{lines_html(said[:ROWS])}")
        parts.append(_try("a rule for the op (ap.register_rule, ap.register_custom_call), or jax.shard_map around it"))
    if metadata.gathered:
        rows = sorted(metadata.gathered, key=lambda row: -row.bytes)[:ROWS]
        table = table_html(
            ["bytes", "op", "axis", "why", "where", "try"],
            ([bytes_text(r.bytes), r.kind, r.axis, r.reason, short_place(r.where), _instead(r.reason)] for r in rows),
        )
        more = f"<p>The {ROWS} largest of {len(metadata.gathered)}.</p>" if len(metadata.gathered) > ROWS else ""
        parts.append(f'<h3>Gathered for ops that need it whole</h3>{more}<div class="scroll text">{table}</div>')
    if metadata.replicated:
        said = [[str(row), row.fix] for row in metadata.replicated[:ROWS]]
        table = table_html(["what", "try"], said)
        parts.append(f'<h3>Left replicated, and why</h3><div class="scroll text wrapped">{table}</div>')
    return "".join(parts)


def _instead(reason: str) -> str:
    """What to do about a gather for this reason."""
    if "conflict" in reason:
        return "decide: ap.tag what it reads"
    if "is not a multiple" in reason:
        return 'uneven="pad", or another axis'
    if " needs dim" in reason:
        return "another dim of what it reads"
    return "ap.register_rule, or jax.shard_map"


def _advice(metadata: Metadata) -> Iterable[str]:
    """What a search says of a step that does not fit."""
    for tactic in metadata.tactics:
        lines: Sequence[str] = tactic.report.get("advice", ())
        if lines:
            code = "\n".join(map(escaped, lines))
            yield f"<h3>What holds the memory, and what would fit</h3><pre>{code}</pre>"


def _conflicts(metadata: Metadata) -> Iterable[str]:
    for conflict in metadata.conflicts[:ROWS]:
        head, *ways = conflict.lines()
        yield f"<p>Conflict: {escaped(head)}</p>{lines_html(way.strip() for way in ways)}"
        tactic = f'ap.ManualPartition({{"name": 0}}, {conflict.axis!r})'
        yield _try(f'decide about a value that it reads: ap.tag("name", x) there, and {tactic} before')
    if len(metadata.conflicts) > ROWS:
        yield f'<p class="note">and {len(metadata.conflicts) - ROWS} more conflicts.</p>'


def _try(text: str) -> str:
    return f'<p class="try">try {escaped(text)}</p>'
