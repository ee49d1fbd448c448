"""The model of one search: its nodes, what moves between them, and the choice problems made from that.

    model = Model.of(task)                  nodes and flow
    model = model.priced(answers)           with the prices that workers computed
    model.least()                           never more than the simulator says: for the bound
    model.planned(runs)                     as the simulated states cost: for the plan

Both problems have the same nodes and strategies; they differ in what things cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autopart.costmodel.compiled.arrays import ProgramArrays
from autopart.costmodel.compiled.links.bf16_collectives import narrow_moves, narrow_uses
from autopart.costmodel.compiled.program_arrays import program_arrays
from autopart.costmodel.compiled.simulator import Simulation
from autopart.costmodel.hardware.devices import Device, device, device_row
from autopart.pairwise import PairwiseProblem
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.ilp.formulation import Flow, equal_shares, least_shares
from autopart.search.ilp.held_bytes import Liveness, node_bytes
from autopart.search.ilp.least_seconds import least_seconds
from autopart.search.ilp.nodes import Nodes
from autopart.search.ilp.op_seconds import SimulatedWork, planned_seconds
from autopart.search.ilp.pending_ways import PendingWays
from autopart.search.ilp.prices import PriceJob, Prices, price_jobs
from autopart.spmd.device_local import LoweringContext


@dataclass(frozen=True, eq=False)
class PlanCosts:
    """seconds: of each node's strategies, float64 arrays; flow: what moves, with the shares of a simulated state."""

    seconds: list[np.ndarray]
    flow: Flow


@dataclass(frozen=True, eq=False)
class Model:
    """See the module.

    arrays, statics    of the program, as the simulator and the lowering have them
    ways               by which what is pending may pass
    narrow             bool[uses]: the use may be moved as bf16
    flow               with shares of shared moves that add up to one: for the bound
    table              prices, once they are known
    """

    nodes: Nodes
    arrays: ProgramArrays
    statics: LoweringContext
    ways: PendingWays
    device: Device
    narrow: np.ndarray
    flow: Flow
    table: Prices

    @staticmethod
    def of(task: SearchTask, *, grouped: bool) -> Model:
        """The model of a search, without prices."""
        start = task.partitioning
        assert start.mesh.device is not None
        chip = device(start.mesh.device)
        arrays, statics = program_arrays(start.program, chip), LoweringContext.of(start.program)
        ways = PendingWays.of(start, statics, rounded=task.options.sums_through_converts)
        nodes = Nodes.of(start, task.space.axes, arrays, statics, ways, grouped=grouped)
        narrow = narrow_uses(arrays)
        share = least_shares(nodes, statics, arrays.ops["matrix_flop"] > 0)
        flow = Flow.of(nodes, statics, ways.stands, share, narrow)
        return Model(nodes, arrays, statics, ways, chip, narrow, flow, Prices({}))

    @property
    def least_share(self) -> float:
        """What a step takes at least, of compute and collectives in turn: half, where they run beside each other."""
        return 0.5 if self.device.is_xla_gpu else 1.0

    def jobs(self) -> list[PriceJob]:
        """What workers must price."""
        start = self.nodes.start
        return price_jobs(self.flow.labels(), start.mesh.axis_sizes, start.table.stretches)

    def priced(self, jobs: Sequence[PriceJob], answers: Sequence[np.ndarray]) -> Model:
        """With the prices that workers answered."""
        return replace(self, table=Prices.of(jobs, answers))

    def least(self) -> PairwiseProblem:
        """The problem whose costs are never more than the simulator's, whatever is fused, combined and shared."""
        seconds = [trips * once for trips, once in zip(self.trips(), self.least_once, strict=True)]
        return self._problem(seconds, self.flow.edges(self.table, least=True), Liveness.of_arguments(self.nodes))

    @cached_property
    def least_once(self) -> list[np.ndarray]:
        """Per node, for each strategy, the seconds that one run of one of its ops takes at least."""
        nodes, sizes = self.nodes, self.nodes.start.mesh.axis_sizes
        return [
            np.zeros(nodes.options(node))
            if options is None
            else least_seconds(self.arrays, self.device, nodes.member[node], options, sizes)
            for node, options in enumerate(nodes.strategies)
        ]

    def planned(self, run: Simulation, held: Liveness) -> PairwiseProblem:
        """The problem whose costs are a simulated state's, divided further or less far by each strategy."""
        return self.problem_of(self.plan_costs(run), held)

    def plan_costs(self, run: Simulation) -> PlanCosts:
        """What strategies cost beside a simulated state, without moves between them.

        Left out is the rounding of arguments before they move as bf16 (`bf16_collectives.py`).
        """
        nodes, row = self.nodes, device_row(self.device)
        done, program, sizes = SimulatedWork.of(run), nodes.start.program, nodes.start.mesh.axis_sizes
        trips = program.scope_trips[program.op_scope].astype(float)
        seconds = [np.zeros(nodes.options(node)) for node in range(nodes.count)]
        order = np.argsort(nodes.of_op, kind="stable")
        cuts = np.searchsorted(nodes.of_op[order], np.arange(nodes.count + 1))
        for node, options in enumerate(nodes.strategies):
            ops = order[cuts[node] : cuts[node + 1]]
            ops = ops[done.runs[ops]]
            if options is not None and len(ops):
                seconds[node] = trips[ops] @ planned_seconds(self.arrays, row, ops, done, options, sizes)
        shares = observed_shares(run, equal_shares(nodes, self.statics))
        narrow = observed_narrow(run, self.narrow)
        return PlanCosts(seconds, Flow.of(nodes, self.statics, self.ways.stands, shares, narrow))

    def problem_of(self, costs: PlanCosts, held: Liveness) -> PairwiseProblem:
        """The problem of a plan, by the prices of moves that are known now."""
        return self._problem(costs.seconds, costs.flow.edges(self.table, least=False), held)

    def trips(self) -> np.ndarray:
        """float64[nodes]: how often the ops of a node run in all."""
        program, of_op = self.nodes.start.program, self.nodes.of_op
        runs = program.scope_trips[program.op_scope].astype(float)
        return np.bincount(of_op[of_op >= 0], runs[of_op >= 0], minlength=self.nodes.count)

    def _problem(
        self, seconds: list[np.ndarray], edges: dict[tuple[int, int], np.ndarray], held: Liveness
    ) -> PairwiseProblem:
        costs = [own + edges.pop((i, i)).diagonal() if (i, i) in edges else own for i, own in enumerate(seconds)]
        usages, intervals = held.usages(node_bytes(self.nodes, self.device.layout_tile))
        costs += [np.zeros(1)] * (len(usages) - len(costs))
        return PairwiseProblem.of(
            costs, usages, intervals, [(i, j, matrix) for (i, j), matrix in edges.items()], self.device.hbm_bytes
        )


def observed_narrow(run: Simulation, otherwise: np.ndarray) -> np.ndarray:
    """bool[uses]: of the moves that a lowered program makes, whether each is made as bf16, for all uses that share it.

    A use that reads the value as it is is as `otherwise`.
    """
    of_use = run.local.placement.of_use
    moved = of_use >= 0
    narrow = otherwise.copy()
    together = np.empty(len(run.local.placement.value), np.bool_)
    narrow_moves(otherwise, of_use, together)
    narrow[moved] = together[of_use[moved]]
    return narrow


def observed_shares(run: Simulation, otherwise: np.ndarray) -> np.ndarray:
    """float64[uses]: of the moves that a lowered program makes, 1 over the number of uses that share each.

    A use that reads the value as it is has the share `otherwise`.
    """
    of_use = run.local.placement.of_use
    moved = of_use >= 0
    shares = otherwise.copy()
    shares[moved] = 1.0 / np.bincount(of_use[moved])[of_use[moved]]
    return shares
