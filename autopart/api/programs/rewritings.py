"""The programs that a search chooses from: whole or in microbatches, everything kept or some of it computed again.

    microbatch=(1, 4), recompute=True      as it is, "matmuls", "blocks", and the same in a loop over 4 microbatches
    uneven="pad"                           each of them with the dims longer that `uneven_dims.py` names, where it pays

The batch that is cut is the dim of the inputs that data parallelism would tile.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autopart.api.tactics.microbatch import Microbatch, MicrobatchLoop
from autopart.api.tactics.pad_tactic import Pad, PaddingAsked
from autopart.api.tactics.recompute import RecomputationOf, Recompute
from autopart.api.tactics.tactic import TacticContext
from autopart.api.tracing.trace import Traced
from autopart.core.mesh import Mesh
from autopart.core.passes import Pass
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.named.inputs import Inputs
from autopart.spmd.microbatch import AXIS

if TYPE_CHECKING:
    from autopart.api.tactics.automatic import AutomaticPartition
    from autopart.api.tactics.pipeline import Pipelining


@dataclass(frozen=True)
class Rewriting:
    """How a program is rewritten before it is partitioned."""

    microbatch: Microbatch | None
    recompute: Recompute | None
    pad: Pad | None = None
    pipeline: Pipelining | None = None

    @property
    def is_whole(self) -> bool:
        """True if it is one piece and keeps everything."""
        return self.microbatch is None and self.recompute is None

    def __str__(self) -> str:
        """The tactics, as code."""
        found = []
        if self.pad is not None:
            found.append(f"ap.Pad({dict(self.pad.inputs)!r})")
        if self.microbatch is not None:
            loops = f", loops={self.microbatch.loops}" if self.microbatch.loops > 1 else ""
            found.append(f"ap.Microbatch({dict(self.microbatch.inputs)!r}, steps={self.microbatch.steps}{loops})")
        if self.recompute is not None:
            found.append(f"ap.Recompute({self.recompute.keep!r})")
        if self.pipeline is not None:
            found.append(str(self.pipeline))
        return ", ".join(found)

    @property
    def options(self) -> dict[str, Any]:
        """As options of the command line's search, by which it finds this program or a better one."""
        found: dict[str, Any] = {} if self.pad is None else {"uneven": "pad"}
        if self.pipeline is not None:
            found["stages"] = self.pipeline.tactic.axis
        if self.microbatch is not None:
            found["microbatches"] = str(self.microbatch.steps)
        first = self.recompute.policies[0] if self.recompute is not None else None
        return found | ({"recompute": (first,)} if isinstance(first, str) else {})

    @property
    def report(self) -> dict[str, Any]:
        """What its tactics say of themselves."""
        tactics = [tactic for tactic in (self.pad, self.microbatch, self.recompute) if tactic is not None]
        return {key: said for tactic in tactics for key, said in tactic.report.items()}

    @property
    def in_two_loops(self) -> Rewriting | None:
        """The same where the microbatches may be gone through twice; None where that says nothing new."""
        once = self.microbatch
        return replace(self, microbatch=replace(once, loops=2)) if once is not None and once.loops == 1 else None

    def passes(self) -> list[Pass]:
        """The passes that rewrite it."""
        context, found = TacticContext(), list[Pass]()
        if self.pad is not None:
            found.append(PaddingAsked(((self.pad, context),), (), {}))
        if self.microbatch is not None:
            found.append(MicrobatchLoop(self.microbatch, context))
        if self.recompute is not None:
            found.append(RecomputationOf(self.recompute, context))
        return [*found, *([] if self.pipeline is None else [self.pipeline])]

    def of(self, traced: Traced) -> Traced:
        """The rewritten program, on every platform it may be lowered for."""
        start = traced if self.pipeline is None else self.pipeline.start(traced)
        passes, again = self.passes(), start.again
        made = start.after(passes)
        return made if again is None else dataclasses.replace(made, again=lambda name: again(name).after(passes))


def rewritings(program: Program, search: AutomaticPartition) -> Iterator[Rewriting]:
    """The programs that a search chooses from; the first is the one that costs least where it fits."""
    steps = tuple(search.microbatch) or (1,)
    inputs = batch_inputs(program, [s for s in steps if s > 1])
    for number in steps:
        microbatch = None if number == 1 else Microbatch(inputs, number)
        for recompute in (None, *policies_of(search)):
            yield Rewriting(microbatch, recompute)


def policies_of(search: AutomaticPartition) -> list[Recompute]:
    """What a search may have computed again."""
    return [*map(Recompute, ("matmuls", "blocks") if search.recompute is True else search.recompute or ())]


def batch_inputs(program: Program, steps: Sequence[int]) -> Mapping[str, Any]:
    """The inputs that are data, with their batch dims, as `ap.Microbatch` takes them; empty where none is found.

    Dims that the steps divide come first. Where there are none, `ap.Microbatch` says of others why they are not cut.
    """
    if not steps:
        return {}
    dims = batch_dims(program, math.gcd(*steps)) or batch_dims(program)
    below: dict[str, dict[str, int]] = {}
    for value, dim in dims.items():
        head, _, rest = program.value_name(value).partition("/")
        below.setdefault(head, {})[rest] = dim
    leaves = Counter(name.partition("/")[0] for name in program.argument_names)
    return {head: _one_dim(dims, leaves[head]) for head, dims in below.items()}


def batch_dims(program: Program, size: int = 1) -> Mapping[int, int]:
    """Arguments that are data -> their batch dims, of those that an axis of this size divides."""
    if program.manual.names:  # what a shard_map partitions is over its own mesh
        return {}
    space = DecisionSpace.of(Partitioning(program, Mesh({AXIS: size})), [AXIS])
    return Inputs.of(space, AXIS).dims


def _one_dim(dims: dict[str, int], leaves: int) -> Any:
    """The dim of all leaves where it is the same for all, else a dim for each path."""
    return next(iter(dims.values())) if len(dims) == leaves and len(set(dims.values())) == 1 else dims
