"""The evaluator: carries out decisions, lowers, asks the cost model, and goes back.

    at  BP, MP          next job  BP, Z3          undo MP, apply Z3, lower, price: milliseconds for a training step

One lives in each worker. What it returns depends on the job alone, not on the jobs before it.
"""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from autopart.core.actions import Action, Propagate
from autopart.core.errors import PartitionError
from autopart.core.partitioning import Partitioning, Snapshot
from autopart.costmodel.estimate import CostModel
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.search.cost import Cost, Objective, StateCosts, memory_bytes
from autopart.search.jobs import Job, Question, Result, State
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision, Option
from autopart.spmd.device_local import LoweringContext, LoweringOptions

MOST_KNOWN = 4096
"""States whose cost an evaluator remembers: the oldest is forgotten, and costed again if it comes again."""

SNAPSHOT_BYTES = 2**27
"""What the states that an evaluator can go back to may take: prefixes of sequences of decisions, the latest used."""

KEPT_BYTES = 31 * 2**20
"""A block just below the 32 MiB from which on glibc always asks the system."""

Key = TypeVar("Key")


class TaskError(PartitionError):
    """A search that only this process can run."""


@dataclass(frozen=True, eq=False)
class SearchTask:
    """All that a worker needs: the starting state, what may be decided, and how it is priced. It can be pickled."""

    partitioning: Partitioning
    space: DecisionSpace
    options: LoweringOptions
    cost_model: CostModel | None
    objective: Objective

    @property
    def memory_bytes(self) -> float:
        """Memory of the mesh's device; infinite where it names none."""
        return memory_bytes(self.partitioning.mesh)

    def pickled(self, dumps: Callable[[Any], bytes] = pickle.dumps) -> bytes:
        """For other processes; the program's arrays are in it once.

        Raises `TaskError` for a cost model or an objective that cannot be pickled.
        """
        try:
            return dumps(self)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TaskError(
                "the search cannot be sent to workers",
                why=str(error),
                hint="define cost models and objectives at the top level of a module, not as lambdas",
            ) from None

    def worker(self) -> Evaluator:
        """What runs the task's jobs, in whichever process; ready to run them at full speed."""
        evaluator = Evaluator(self)
        if self.cost_model is None:
            evaluator.warm_up()
        return evaluator


class Evaluator:
    """Runs jobs on its own copy of a task's partitioning."""

    def __init__(self, task: SearchTask):
        keep_freed_memory()
        copy, self._task = task.partitioning.copy(), task
        self.partitioning, self.space = copy, task.space
        self._options, self._statics = task.options, LoweringContext.of(copy.program)
        self._price = StateCosts(copy.program, copy.mesh, task.cost_model, task.objective)
        self._start = copy.mark()
        self._path: list[tuple[Decision, int, int]] = []
        self._snapshots: dict[tuple[Decision, ...], tuple[Snapshot, list[tuple[Decision, int, int]]]] = {}
        self._known: dict[tuple[int, int], State] = {}
        self._reached: dict[tuple[Decision, ...], State] = {}

    def warm_up(self) -> None:
        """Costs the start and one decision, so that the first job does not wait for the kernels to be loaded."""
        for option in self._state(()).options[:1]:
            self._state((option.decision,))

    def run(self, job: Job | Question[Any]) -> Any:
        """The states that a job asks for, or the answer to a question."""
        return self._states(job) if isinstance(job, Job) else job.answer(self._task)

    def _states(self, job: Job) -> Result:
        states: list[State] = []
        if job.each and job.decisions:
            for length in range(1, len(job.decisions) + 1):
                states.append(self._state(job.decisions[:length]))
        else:
            states.append(self._state(job.decisions))
        random = np.random.default_rng(job.seed)
        bias = dict(job.bias)
        for _ in range(job.rollout):
            drawn = draw(random, states[-1].options, bias, job.stop)
            if drawn is None:
                break
            states.append(self._state((*states[-1].decisions, drawn)))
        return tuple(states)

    def actions(self, decisions: tuple[Decision, ...]) -> list[Action]:
        """The actions that a sequence of decisions takes from the start."""
        self._go_to(())
        taken: list[Action] = []
        for decision in decisions:
            mark = self.partitioning.mark()
            actions = self.space.apply(self.partitioning, decision)
            taken += actions
            self._path.append((decision, mark, count_of(actions)))
        return taken

    def _go_to(self, decisions: tuple[Decision, ...]) -> int:
        """Moves the partitioning to the state after `decisions`; returns how many actions lead there."""
        shared = 0
        while shared < min(len(self._path), len(decisions)) and self._path[shared][0] == decisions[shared]:
            shared += 1
        if not self._restore(decisions, shared) and shared < len(self._path):
            self.partitioning.undo(self._path[shared][1])
            del self._path[shared:]
        for place in range(len(self._path), len(decisions)):
            self._keep(decisions[:place])
            mark = self.partitioning.mark()
            actions = self.space.apply(self.partitioning, decisions[place])
            self._path.append((decisions[place], mark, count_of(actions)))
        return sum(count for _, _, count in self._path)

    def _restore(self, decisions: tuple[Decision, ...], shared: int) -> bool:
        """Goes to the longest prefix of `decisions` that is kept, if it has more than `shared` of them."""
        for length in range(len(decisions), shared, -1):
            found = self._snapshots.pop(decisions[:length], None)
            if found is not None:
                self._snapshots[decisions[:length]] = found
                self.partitioning.restore(found[0])
                self._path = list(found[1])
                return True
        return False

    def _keep(self, prefix: tuple[Decision, ...]) -> None:
        """Keeps the state as it is, which is the one after `prefix`; forgets those that were used longest ago."""
        if prefix and prefix not in self._snapshots:
            self._snapshots[prefix] = self.partitioning.snapshot(), list(self._path)
            most = max(1, SNAPSHOT_BYTES // self._snapshots[prefix][0].in_bytes)
            while len(self._snapshots) > most:
                del self._snapshots[next(iter(self._snapshots))]

    def _state(self, decisions: tuple[Decision, ...]) -> State:
        """The state after `decisions`; from memory if they were carried out before, or lead where others did."""
        state = self._reached.get(decisions)
        if state is None:
            actions = self._go_to(decisions)
            local = lower_for_device(self.partitioning, self._options, self._statics)
            key = self.partitioning.fingerprint ^ local.fingerprint
            known = self._known.get((key, actions))
            if known is None:
                cost = self._price(local, actions)
                if not math.isfinite(cost.score):
                    cost = Cost(cost.step_s, cost.peak_bytes, math.inf, actions, math.inf)
                known = State(decisions, key, cost, self.space.options(self.partitioning))
                remember(self._known, (key, actions), known)
            state = State(decisions, key, known.cost, known.options)
            remember(self._reached, decisions, state)
        return state


@functools.cache
def keep_freed_memory() -> None:
    """Makes glibc keep what an evaluation frees for the next, which asks for as much.

    It gives memory back to the system beyond twice the largest block that was ever freed, and clearing it anew is a
    fifth of an evaluation; the first block freed here is larger than what any evaluation but those of giants needs.
    """
    np.empty(KEPT_BYTES, np.uint8)


def remember(known: dict[Key, State], key: Key, state: State) -> None:
    """Adds a state to those that are known; of more than `MOST_KNOWN` the oldest is forgotten."""
    if len(known) >= MOST_KNOWN:
        del known[next(iter(known))]
    known[key] = state


def count_of(actions: list[Action]) -> int:
    """Tile and atomic actions among `actions`."""
    return sum(not isinstance(a, Propagate) for a in actions)


def draw(
    random: np.random.Generator, options: tuple[Option, ...], bias: dict[Decision, float], stop: float
) -> Decision | None:
    """One of the options by prior * exp(bias), or None: stop."""
    if not options or random.random() < stop:
        return None
    weights = np.array([max(o.prior, 1e-6) * math.exp(bias.get(o.decision, 0.0)) for o in options])
    return options[int(random.choice(len(options), p=weights / weights.sum()))].decision
