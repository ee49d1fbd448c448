"""Metadata as code: the actions of a schedule, written as the manual tactics that issue them.

    tile<params/0/w, 1, model>, tile<params/1/w, 1, model>, propagate<model>
      ->  ap.ManualPartition({"params/*/w": 1}, axis="model")

    share_gathers<64>
      ->  ap.SharedGathers(within=64)

    a report of microbatches
      ->  ap.Microbatch({"x": 0}, steps=4)

One manual tactic per propagation; names that differ in their numbers alone become a glob (`globs.py`). Names come from
files too: all of them pass through `quoted` on their way into code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autopart.api.globs import with_globs
from autopart.api.names import Named
from autopart.core.actions import Action, ActionError, Atomic, Propagate, ShardLoops, ShareGathers, Tile, action_of
from autopart.core.errors import PartitionError
from autopart.core.quoting import one_line, quoted

if TYPE_CHECKING:
    from autopart.api.metadata import Metadata

WIDTH = 110


def schedule_code(metadata: Metadata) -> str:
    """Python code of a list `schedule` that takes the same actions; it needs `import autopart as ap`."""
    names = [*metadata.in_specs, *metadata.out_specs]
    named = [Named(n, *_parts(n), value=i) for i, n in enumerate(names)]
    lines = ["schedule = ["]
    for tactic in metadata.tactics:
        lines.append(f"    # {one_line(tactic.name)}")
        if len(tactic.decisions) != len(tactic.actions):
            raise PartitionError(
                f"the actions of {one_line(tactic.name)} are there as text only", why="an older autopart wrote them"
            )
        if "microbatch" in tactic.report:
            lines.append(f"    {_microbatch(tactic.report['microbatch'])},")
        if "pipeline" in tactic.report:
            lines.append(f"    {_pipeline(tactic.report['pipeline'])},")
            continue
        if "recompute" in tactic.report:
            lines.append(f"    {_recompute(tactic.report['recompute'])},")
        if "pad" in tactic.report:
            lines.append(f"    ap.Pad({_pairs(tactic.report['pad']['inputs'])}),")
        keys: list[str] = []
        actions = [action_of(row, lambda key, keys=keys: _numbered(key, keys)) for row in tactic.decisions]
        for axis, decisions in _propagations(actions, keys):
            lines += _tactic_lines(with_globs(decisions, named), axis)
        lines += [f"    ap.SharedGathers(within={a.within})," for a in actions if isinstance(a, ShareGathers)]
        lines += ["    ap.ShardedLoops()," for a in actions if isinstance(a, ShardLoops)]
    return "\n".join([*lines, "]"])


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


def _propagations(actions: Sequence[Action], keys: Sequence[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """(axis, [(key, decision)]) per propagation; decisions about other axes wait for theirs."""
    waiting: dict[str, list[tuple[str, str]]] = {}
    for action in actions:
        match action:
            case Tile(value, dim, axis):
                waiting.setdefault(axis, []).append((keys[value], str(dim)))
            case Atomic(value, axis):
                waiting.setdefault(axis, []).append((keys[value], "ap.REPLICATED"))
            case Propagate(axis) if axis in waiting:
                yield axis, waiting.pop(axis)
            case _:
                pass
    yield from waiting.items()


def _tactic_lines(decisions: dict[str, str], axis: str) -> list[str]:
    parts = [f"{quoted(key)}: {decision}" for key, decision in decisions.items()]
    one = f"    ap.ManualPartition({{{', '.join(parts)}}}, axis={quoted(axis)}),"
    if len(one) <= WIDTH:
        return [one]
    return [
        "    ap.ManualPartition(",
        "        {",
        *_wrapped(parts),
        "        },",
        f"        axis={quoted(axis)},",
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
