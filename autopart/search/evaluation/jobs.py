"""Jobs: the unit of work that goes to a worker, and what comes back. Both are values, equal on every worker.

Job(BP, then Z3; rollout 2, seed 7)
  ->  states after  BP+Z3,  BP+Z3+d1,  BP+Z3+d1+d2        d1, d2 drawn from the options there
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

from autopart.base.arguments import FLAG, Kind, check_fields, is_real, number, whole
from autopart.search.evaluation.cost import Cost
from autopart.search.space.decisions import Decision, Option
from autopart.spmd.device_local import Runs

_DECISIONS = Kind(
    "a tuple of decisions", lambda v: isinstance(v, tuple) and all(isinstance(d, Decision) for d in cast(Any, v))
)
_BIAS = Kind("a tuple of (decision, number)", lambda v: isinstance(v, tuple) and all(map(_is_weighed, cast(Any, v))))
_COUNT, _CHANCE = whole(0), number(0, 1)
_SEED = Kind("an integer of at least 0", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0)


def _is_weighed(pair: Any) -> bool:
    return isinstance(pair, tuple) and len(cast(Any, pair)) == 2 and isinstance(pair[0], Decision) and is_real(pair[1])


@dataclass(frozen=True)
class Job:
    """Decisions from the starting state, and how to go on from there.

    each       cost the state after every decision, not only after the last
    rollout    go on for up to that many decisions, drawn with `seed` from the options by prior * exp(bias)
    bias       what earlier waves learned of single decisions, as logarithms; none: 0
    stop       chance of ending the rollout before each of its decisions
    """

    decisions: tuple[Decision, ...]
    each: bool = False
    rollout: int = 0
    seed: int = 0
    bias: tuple[tuple[Decision, float], ...] = ()
    stop: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self, decisions=_DECISIONS, each=FLAG, rollout=_COUNT, seed=_SEED, bias=_BIAS, stop=_CHANCE)

    @property
    def max_evaluations(self) -> int:
        """States that it costs at most."""
        return (max(1, len(self.decisions)) if self.each else 1) + self.rollout

    def within(self, evaluations: int) -> Job:
        """Its beginning, which costs at most so many states, one or more: the first of those that it costs."""
        own = self.max_evaluations - self.rollout
        if own <= evaluations:
            return replace(self, rollout=min(self.rollout, evaluations - own))
        return replace(self, decisions=self.decisions[:evaluations], rollout=0)

    def to_json(self) -> list[Any]:
        """As it stands in records: what the result depends on."""
        bias = [[d.to_json(), b] for d, b in self.bias] if self.rollout else []
        return [[d.to_json() for d in self.decisions], self.each, self.rollout, self.seed, bias, self.stop]


Answer_co = TypeVar("Answer_co", covariant=True)


class Question(Protocol[Answer_co]):
    """Something else that workers can work out, such as prices: a value like a job, but no state is costed."""

    def answer(self, task: Any) -> Answer_co:
        """The answer for a `SearchTask`, which depends on nothing else."""
        ...


@dataclass(frozen=True)
class State:
    """A state that was costed.

    key        fingerprint of the partitioning and its layouts: equal states have equal keys
    options    decisions that are legal there
    runs       as in `DeviceLocal`, for other workers; not in records
    """

    decisions: tuple[Decision, ...]
    key: int
    cost: Cost
    options: tuple[Option, ...]
    runs: Runs | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """As it stands in records."""
        c = self.cost
        return {
            "decisions": [d.to_json() for d in self.decisions],
            "key": self.key,
            "cost": [c.step_s, c.peak_bytes, c.excess, c.actions, c.score],
            "options": [[o.decision.to_json(), o.prior] for o in self.options],
        }

    @staticmethod
    def from_json(row: dict[str, Any]) -> State:
        """What `to_json` wrote; raises `ValueError`, `KeyError` or `TypeError` on anything else."""
        step_s, peak_bytes, excess, actions, score = row["cost"]
        if any(isinstance(n, bool) or not isinstance(n, int) for n in (row["key"], actions)):
            raise ValueError(f"{row['key']!r:.80}, {actions!r:.80} are not a key and a number of actions")
        return State(
            tuple(Decision.from_json(d) for d in row["decisions"]),
            row["key"],
            Cost(float(step_s), float(peak_bytes), float(excess), actions, float(score)),
            tuple(Option(Decision.from_json(d), float(p)) for d, p in row["options"]),
        )


Result = tuple[State, ...]
"""What a job found: a state per costed point, in order."""


def states_of_lost(job: Job) -> Result:
    """What stands for a job that no worker could finish: states that cost more than any other and lead nowhere."""
    lengths = range(1, len(job.decisions) + 1) if job.each and job.decisions else [len(job.decisions)]
    cost = Cost(math.inf, math.inf, math.inf, 0, math.inf)
    return tuple(State(job.decisions[:n], _key(job.decisions[:n]), cost, ()) for n in lengths)


def _key(decisions: tuple[Decision, ...]) -> int:
    """A key for decisions whose state is not known."""
    return int.from_bytes(hashlib.blake2b(repr(decisions).encode(), digest_size=8).digest(), "big")
