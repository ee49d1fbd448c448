"""Metadata as code: the actions of a schedule, written as the manual tactics that issue them.

    tile<params/0/w, 1, model>, tile<params/1/w, 1, model>, propagate<model>
      ->  ap.ManualPartition({"params/*/w": 1}, axis="model")

    share_gathers<64>
      ->  ap.SharedGathers(within=64)

    a report of microbatches
      ->  ap.Microbatch({"x": 0}, steps=4)

One manual tactic per propagation, or as few as lay everything out so, where the program is at hand
(`shortest_schedule.py`); names that differ in their numbers alone become a glob (`globs.py`). Names come from files
too: all of them pass through `quoted` on their way into code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autopart.api.as_code.schedule_blocks import Block, blocks_of
from autopart.api.tracing.globs import with_globs
from autopart.api.tracing.names import Named, Names
from autopart.base.errors import PartitionError
from autopart.base.quoting import one_line, quoted
from autopart.core.table.actions import ActionError, action_of

if TYPE_CHECKING:
    from autopart.api.explained.metadata import Metadata, TacticReport

WIDTH = 110


def schedule_code(metadata: Metadata) -> str:
    """Python code of a list `schedule` that takes the same actions; it needs `import autopart as ap`."""
    named = [Named(n, *_parts(n), value=i) for i, n in enumerate([*metadata.in_specs, *metadata.out_specs])]
    shown = _shortest(metadata) or [_blocks(t, Names(named)) for t in metadata.tactics]
    lines = ["schedule = ["]
    for tactic, blocks in zip(metadata.tactics, shown, strict=True):
        named = tactic.report.get("named", "")
        lines.append(f"    # {one_line(tactic.name)}" + (f": {one_line(named)}, exactly" if named else ""))
        if "microbatch" in tactic.report:
            lines.append(f"    {_microbatch(tactic.report['microbatch'])},")
        if "pipeline" in tactic.report:
            lines.append(f"    {_pipeline(tactic.report['pipeline'])},")
            continue
        if "recompute" in tactic.report:
            lines.append(f"    {_recompute(tactic.report['recompute'])},")
        if "pad" in tactic.report:
            lines.append(f"    ap.Pad({_pairs(tactic.report['pad']['inputs'])}),")
        for block in blocks:
            lines += _tactic_lines(block)
        words = [tuple(row) for row in tactic.decisions]
        lines += [f"    ap.SharedGathers(within={int(row[1])})," for row in words if row[0] == "share_gathers"]
        lines += ["    ap.ShardedLoops()," for row in words if row[0] == "shard_loops"]
    return "\n".join([*lines, "]", *_without_name(shown)])


def _shortest(metadata: Metadata) -> Sequence[Sequence[Block]] | None:
    """As short as can be found, where the program is at hand and the tactics are those that it was given."""
    found = metadata.shortest
    return found.blocks if found is not None and found.scheduled.reports is metadata.tactics else None


def _blocks(tactic: TacticReport, names: Names) -> list[Block]:
    """What the rows of a tactic say."""
    if len(tactic.decisions) != len(tactic.actions):
        raise PartitionError(
            f"the actions of {one_line(tactic.name)} are there as text only", why="an older autopart wrote them"
        )
    keys: list[str] = []
    actions = [action_of(row, lambda key: _numbered(key, keys)) for row in tactic.decisions]
    blocks = blocks_of(actions, keys.__getitem__)
    return [Block(block.axes, with_globs(list(block.decisions.items()), names)) for block in blocks]


def _without_name(shown: Iterable[Sequence[Block]]) -> list[str]:
    """What gives a name to values that are written by number."""
    numbers = [key for blocks in shown for block in blocks for key in block.decisions if key.startswith("%")]
    named = ", ".join(dict.fromkeys(numbers))
    return [f'# {named}: no name and no line; y = ap.tag("name", y) in the model gives one'] if numbers else []


def _microbatch(said: Mapping[str, Any]) -> str:
    """Code of the tactic that wrote the loop over microbatches, from its report."""
    loops = f", loops={int(said['loops'])}" if said["loops"] != 1 else ""
    return f"ap.Microbatch({_dims(said['inputs'])}, steps={int(said['steps'])}{loops})"


def _pipeline(said: Mapping[str, Any]) -> str:
    """Code of the tactic that wrote the stages, from its report; it takes its own actions."""
    inputs = "" if said["inputs"] is None else f", inputs={_dims(said['inputs'])}"
    microbatches = "" if said["microbatches"] is None else f", microbatches={int(said['microbatches'])}"
    order = f", schedule={quoted(said['schedule'])}, repeats={int(said['repeats'])}"
    return f"ap.Pipeline({quoted(said['axis'])}{microbatches}{inputs}{order})"


def _recompute(said: Mapping[str, Any]) -> str:
    """Code of the tactic that had results computed again, from its report."""
    functions = [policy["function"] for policy in said["keep"] if isinstance(policy, Mapping)]
    if functions:
        raise PartitionError(
            f"{one_line(str(functions[0]))} cannot be written as code", why="it decides when it is called"
        )
    policies = ", ".join(quoted(policy) for policy in said["keep"])
    return f"ap.Recompute({policies})" if len(said["keep"]) == 1 else f"ap.Recompute([{policies}])"


def _dims(inputs: Any) -> str:
    if isinstance(inputs, Mapping):
        return "{" + ", ".join(f"{quoted(str(key))}: {_dims(below)}" for key, below in inputs.items()) + "}"
    if isinstance(inputs, int):
        return str(inputs)
    if inputs in ("ap.FIRST_DIVISIBLE_DIM", "ap.LARGEST_DIVISIBLE_DIM"):
        return str(inputs)
    raise PartitionError(f"{one_line(str(inputs))} cannot be written as code", why="it decides when it is called")


def _pairs(inputs: Any) -> str:
    """Code of (dim, multiple) pairs below names."""
    if isinstance(inputs, Mapping):
        return "{" + ", ".join(f"{quoted(str(key))}: {_pairs(below)}" for key, below in inputs.items()) + "}"
    return "[" + ", ".join(f"({int(dim)}, {int(multiple)})" for dim, multiple in inputs) + "]"


def _parts(name: str) -> tuple[str, str]:
    head, _, below = name.partition("/")
    return head, below


def _numbered(key: object, keys: list[str]) -> int:
    """The key's place in `keys`: the number by which an action knows the value."""
    if not isinstance(key, str):
        raise ActionError(f"{key!r:.80} is no key of a value")
    keys.append(key)
    return len(keys) - 1


def _tactic_lines(block: Block) -> list[str]:
    parts = [f"{quoted(key)}: {decision!r}" for key, decision in block.decisions.items()]
    axes = [quoted(axis) for axis in block.axes]
    axis = axes[0] if len(axes) == 1 else f"({', '.join(axes)})"
    one = f"    ap.ManualPartition({{{', '.join(parts)}}}, axis={axis}),"
    if len(one) <= WIDTH:
        return [one]
    return [
        "    ap.ManualPartition(",
        "        {",
        *_wrapped(parts),
        "        },",
        f"        axis={axis},",
        "    ),",
    ]


def _wrapped(parts: Iterable[str]) -> Iterator[str]:
    line = ""
    for part in parts:
        if line and len(line) + len(part) + 2 > WIDTH - 12:
            yield f"            {line}"
            line = ""
        line = f"{line} {part},".strip()
    yield f"            {line}"
