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
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from autopart.base.errors import PartitionError
from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.estimate import CostModel
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.search.evaluation.cost import Cost, Objective, StateCosts, memory_bytes
from autopart.search.evaluation.fewer_layers_costs import FewerLayersCosts, Reached
from autopart.search.evaluation.jobs import Job, Question, Result, State
from autopart.search.evaluation.longer_programs import WholeCosts
from autopart.search.evaluation.state_walk import Walk
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision, Option
from autopart.spmd.device_local import DeviceLocal, LoweringContext, LoweringOptions, Runs

MOST_KNOWN = 4096
"""States whose cost an evaluator remembers: the oldest is forgotten, and costed again if it comes again."""

KEPT_BYTES = 31 * 2**20
"""A block just below the 32 MiB from which on glibc always asks the system."""

Key = TypeVar("Key")
Known = TypeVar("Known")


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
    """Runs jobs on its own copy of a task's partitioning.

    Where the program has repeated layers, states are costed by a program with fewer of them, as far as that is exact
    (`fewer_layers_costs.py`). States that differ in what may be decided next, such as by an atomic value, often run
    alike: what a lowering takes is worked out once.
    """

    def __init__(self, task: SearchTask):
        keep_freed_memory()
        self._task, self.space = task, task.space
        self._walk = Walk(task.partitioning.copy(), task.space)
        self._known: dict[tuple[int, int], State] = {}
        self._reached: dict[tuple[Decision, ...], State] = {}
        self._ran: dict[Runs, Cost] = {}
        self._fewer = None
        if task.cost_model is None:
            self._fewer = FewerLayersCosts.of(
                task.space, task.options, task.objective, lambda: WholeCosts(self._statics, self._price)
            )

    @property
    def partitioning(self) -> Partitioning:
        """The whole program's, wherever the last look at it has left it."""
        return self._walk.partitioning

    @cached_property
    def _statics(self) -> LoweringContext:
        return LoweringContext.of(self.partitioning.program)

    @cached_property
    def _price(self) -> StateCosts:
        whole = self.partitioning
        return StateCosts(whole.program, whole.mesh, self._task.cost_model, self._task.objective)

    def warm_up(self) -> None:
        """Costs the start and one decision, so that the first job does not wait for the kernels to be loaded."""
        for option in self._state(()).options[:1]:
            self._state((option.decision,))

    def run(self, job: Job | Question[Any]) -> Any:
        """The states that a job asks for, or the answer to a question."""
        return self._states(job) if isinstance(job, Job) else job.answer(self._task)

    def learn(self, result: Any) -> None:
        """Remembers the states that another worker's job found; answers to questions are nothing to it."""
        for state in result if isinstance(result, tuple) else ():
            if isinstance(state, State):
                self._keep(state)

    def _keep(self, state: State) -> None:
        if state.decisions not in self._reached:
            remember(self._reached, state.decisions, state)
        place = state.key, state.cost.actions
        if place not in self._known:
            remember(self._known, place, state)
        if state.runs is not None and state.runs not in self._ran and math.isfinite(state.cost.score):
            remember(self._ran, state.runs, state.cost)

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
        """The actions of a sequence of decisions from the start; `partitioning` is then in the state after them."""
        return self._walk.actions(decisions)

    def _state(self, decisions: tuple[Decision, ...]) -> State:
        """The state after `decisions`; from memory if they were carried out before."""
        state = self._reached.get(decisions)
        if state is None:
            state = self._costed(decisions)
            remember(self._reached, decisions, state)
        return state

    def _costed(self, decisions: tuple[Decision, ...]) -> State:
        """The state after `decisions`; from memory if they lead where others did."""
        found = self._fewer.reach(decisions) if self._fewer is not None else None
        if found is not None:
            known = self._known.get((found.key, found.actions)) or self._fewer_state(decisions, found)
            if known is not None:
                return self._remembered(decisions, known, found.key, found.actions)
        actions = self._walk.go_to(decisions)
        local = lower_for_device(self.partitioning, self._task.options, self._statics)
        key = self.partitioning.fingerprint ^ local.fingerprint
        known = self._known.get((key, actions))
        if known is None:
            cost = self._cost(local, actions, lambda: self._price(local, actions))
            assert cost is not None
            known = State(decisions, key, cost, self.space.options(self.partitioning), local.runs)
        return self._remembered(decisions, known, key, actions)

    def _fewer_state(self, decisions: tuple[Decision, ...], found: Reached) -> State | None:
        """The state by the program with fewer layers; None where the whole program has to say."""
        fewer = self._fewer
        assert fewer is not None
        cost = self._cost(found.local, found.actions, lambda: fewer.cost(found))
        return None if cost is None else State(decisions, found.key, cost, fewer.options(), found.local.runs)

    def _cost(self, local: DeviceLocal, actions: int, worked_out: Callable[[], Cost | None]) -> Cost | None:
        """What a lowering costs that so many actions lead to: from memory if the simulator has run it."""
        ran = self._ran.get(local.runs) if self._task.cost_model is None else None
        if ran is not None:
            return never_at_infinity(ran.after(actions, self._task.objective))
        cost = worked_out()
        if cost is None:
            return None
        if self._task.cost_model is None:
            remember(self._ran, local.runs, cost)
        return never_at_infinity(cost)

    def _remembered(self, decisions: tuple[Decision, ...], known: State, key: int, actions: int) -> State:
        if (key, actions) not in self._known:
            remember(self._known, (key, actions), known)
        return State(decisions, key, known.cost, known.options, known.runs)


@functools.cache
def keep_freed_memory() -> None:
    """Makes glibc keep what an evaluation frees for the next, which asks for as much.

    It gives memory back to the system beyond twice the largest block that was ever freed, and clearing it anew is a
    fifth of an evaluation; the first block freed here is larger than what any evaluation but those of giants needs.
    """
    np.empty(KEPT_BYTES, np.uint8)


def never_at_infinity(cost: Cost) -> Cost:
    """The cost; one whose score is infinite fits nowhere."""
    return cost if math.isfinite(cost.score) else Cost(cost.step_s, cost.peak_bytes, math.inf, cost.actions, math.inf)


def remember(known: dict[Key, Known], key: Key, found: Known) -> None:
    """Adds a state or a cost to those that are known; of more than `MOST_KNOWN` the oldest is forgotten."""
    if len(known) >= MOST_KNOWN:
        del known[next(iter(known))]
    known[key] = found


def draw(
    random: np.random.Generator, options: tuple[Option, ...], bias: dict[Decision, float], stop: float
) -> Decision | None:
    """One of the options by prior * exp(bias), or None: stop."""
    if not options or random.random() < stop:
        return None
    weights = np.array([max(o.prior, 1e-6) * math.exp(bias.get(o.decision, 0.0)) for o in options])
    return options[int(random.choice(len(options), p=weights / weights.sum()))].decision
