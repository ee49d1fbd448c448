"""The simulator: runs a device-local program on paper.

    lowering arrays  ->  local sizes  ->  fusion  ->  kernels  ->  when each runs  ->  seconds, bytes, live memory
                         arrays.py        fusion.py   kernel_graph  liveness.py         compute.py, memory.py
                                                                    multi_output.py

A `Simulator` belongs to one program and mesh and keeps what they fix: the program's arrays, the mesh's links, and the
price of every redistribution seen so far. Search calls `run` for each state; `estimate` puts a run into words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.mesh import Mesh
from autopart.core.program import Program
from autopart.costmodel.hardware.devices import device_row
from autopart.costmodel.hardware.links import Links, mesh_links
from autopart.costmodel.simulator.arrays import LocalArrays, ProgramArrays, local_arrays, program_arrays
from autopart.costmodel.simulator.combine import combine_reductions
from autopart.costmodel.simulator.compute import kernel_seconds
from autopart.costmodel.simulator.fusion import fused_away_values
from autopart.costmodel.simulator.kernel_graph import DEF_MOVE, KERNEL, USE_MOVE, KernelGraph, kernel_graph
from autopart.costmodel.simulator.known_plans import KnownPlans
from autopart.costmodel.simulator.layout_copies import copied_bytes, output_copies, transposed_nodes
from autopart.costmodel.simulator.left_out import LeftOut, times_there
from autopart.costmodel.simulator.liveness import Buffers, last_slots, made_at, run_early, structure_reads
from autopart.costmodel.simulator.memory import live_bytes, live_ranges, outputs, plain_sizes
from autopart.costmodel.simulator.multi_output import join_kernels
from autopart.costmodel.simulator.narrow_moves import NARROW_SHARE, narrow_moves, narrow_uses, rounded_bytes
from autopart.costmodel.simulator.op_classes import unknown_ops
from autopart.costmodel.simulator.order import order_neighbours
from autopart.costmodel.simulator.own_collectives import OwnCollectives
from autopart.costmodel.simulator.redistribution_costs import PlanCost, plan_cost
from autopart.costmodel.simulator.rematerialisation import LIMIT_SHARE, rematerialised
from autopart.costmodel.simulator.sizes import SizeTable
from autopart.costmodel.simulator.slots import slot_count
from autopart.spmd.device_local import DeviceLocal

JOIN_WINDOW_OPS = 100
"""How far behind a kernel an op may be to join it: about one block of a transformer."""


@dataclass(frozen=True)
class SimulatorOptions:
    """What is assumed.

    overlap         collectives run beside compute that does not need them; else one after the other
    layout_padding  arrays take whole layout tiles in memory, on devices that have them
    layout_copies   updates from a transposed collective are made on copies, and so are outputs that a collective makes
                    in a donated argument's place (`layout_copies.py`), on TPU
    recompute       expensive elementwise ops are fused into each of several consumers; False estimates more memory
    rematerialise   where memory is short, the compiler computes results again that would wait for a late reader
                    (`rematerialisation.py`), as XLA:TPU does; False: a step takes the memory that its schedule takes
    """

    overlap: bool = False
    layout_padding: bool = True
    layout_copies: bool = True
    recompute: bool = True
    rematerialise: bool = False


@dataclass(frozen=True, eq=False)
class Simulation:
    """One run: totals first, then arrays per node and buffer for whoever wants to look closer.

    serial_s                 seconds of a step with collectives in turn
    again_s                  of those, what results take that are computed again for want of memory
    each_output_bytes        of each output that takes over no donated argument's memory; 0 for others
    node_extra_bytes         what a node needs while it runs, besides the buffers that it reads and writes
    combining                (int64[nodes]: equal for reductions that may be combined, negative for other nodes;
                             float64[nodes]: bytes that each sends)
    members                  per value: how many ops its expression has, those computed inside its op
    """

    serial_s: float
    again_s: float
    compute_s: float
    collective_s: float
    peak_bytes: float
    argument_bytes: float
    output_bytes: float
    flop: float
    hbm_bytes: float
    local: DeviceLocal = field(repr=False)
    arrays: LocalArrays = field(repr=False)
    graph: KernelGraph = field(repr=False)
    leader: np.ndarray = field(repr=False)
    slot: np.ndarray = field(repr=False)
    node_s: np.ndarray = field(repr=False)
    node_hbm_bytes: np.ndarray = field(repr=False)
    node_trips: np.ndarray = field(repr=False)
    node_extra_bytes: np.ndarray = field(repr=False)
    buffers: Buffers = field(repr=False)
    live: np.ndarray = field(repr=False)
    each_output_bytes: np.ndarray = field(repr=False)
    combining: tuple[np.ndarray, np.ndarray] = field(repr=False)
    members: np.ndarray = field(repr=False)
    links: Links = field(repr=False)
    device_row: np.ndarray = field(repr=False)
    plan_rows: tuple[np.ndarray, np.ndarray] = field(repr=False)
    known_plans: KnownPlans = field(repr=False)

    @cached_property
    def _overlapped(self) -> tuple[np.ndarray, float]:
        """(float64[nodes], end of the step) if collectives run beside compute; see `_two_streams`."""
        start_s, free_s = np.zeros(len(self.graph.nodes)), np.zeros(2)
        _two_streams(
            self.graph, self.leader, self.node_s * self.node_trips, np.zeros(len(self.arrays.home)), start_s, free_s
        )
        return start_s, float(free_s.max())

    @property
    def overlapped_s(self) -> float:
        """Seconds of a step with collectives beside independent compute."""
        return self._overlapped[1] + self.again_s

    @property
    def node_start_s(self) -> np.ndarray:
        """float64[nodes]: when each starts in such a step."""
        return self._overlapped[0]

    @property
    def plans(self) -> tuple[list[PlanCost], list[PlanCost]]:
        """Prices of the redistributions after ops (`at_def`) and before uses (`placement`)."""
        after, before = ([self.known_plans.costs[row] for row in rows.tolist()] for rows in self.plan_rows)
        return after, before


@dataclass(frozen=True, eq=False)
class Simulator:
    """Estimates of one program on one mesh; make it with `Simulator.of`."""

    program: Program
    links: Links
    options: SimulatorOptions
    arrays: ProgramArrays = field(repr=False)
    device_row: np.ndarray = field(repr=False)
    known_plans: KnownPlans = field(repr=False)
    known_sizes: SizeTable = field(repr=False)
    narrow_uses: np.ndarray = field(repr=False)
    passed: np.ndarray = field(repr=False)
    own_collectives: OwnCollectives = field(repr=False)
    left_out: LeftOut | None = field(default=None, repr=False)
    unknown_ops: tuple[str, ...] = ()
    """Ops whose flop nobody knows, by kind: "custom_call @name (3 x)"."""

    @staticmethod
    def of(
        program: Program, mesh: Mesh, options: SimulatorOptions | None = None, left_out: LeftOut | None = None
    ) -> Simulator:
        """A simulator for `program` on `mesh`; raises `MeshError` if it names no device or an axis has no link."""
        links = mesh_links(mesh)
        arrays, row = program_arrays(program, links.device.selects_updates), device_row(links.device)
        narrows = links.device.around_matmul.narrows_operands
        narrow = narrow_uses(arrays) if narrows else np.zeros(len(arrays.uses), np.bool_)
        return Simulator(
            program, links, options or SimulatorOptions(), arrays, row,
            KnownPlans(), SizeTable.empty(arrays.shape.shape[1]), narrow,
            np.array(program.arguments, np.int64)[program.passed_arguments], OwnCollectives.of(program, mesh),
            left_out, unknown_ops(program),
        )  # fmt: skip

    def run(self, local: DeviceLocal) -> Simulation:
        """Simulates one lowering of the program; milliseconds, so that search can call it for each state."""
        program, device, place = self.arrays, self.links.device, local.placement
        matmul = device.around_matmul
        tiles, wide = np.zeros(len(local.at_def), np.int64), np.zeros(len(local.at_def), np.bool_)
        narrow = narrow_moves(self.narrow_uses, place.of_use, len(place.value))
        def_plans = self._plan_rows(
            local, local.at_def, local.native[local.at_def], local.settled[local.at_def], tiles, wide
        )
        use_plans = self._plan_rows(local, place.value, local.settled[place.value], place.target, place.stretch, narrow)
        tile = device.layout_tile if self.options.layout_padding else (1, 1)
        unmoved = self.known_plans.moves_nothing[use_plans]
        held = local_arrays(local, program, self.known_sizes, tile, device.matmul_tile, unmoved)
        held.moves["moved_bytes"][narrow] *= NARROW_SHARE
        fused_away, members = fused_away_values(program, held, matmul.fuses_operands, self.options.recompute)
        graph = kernel_graph(program, held, fused_away, local.at_def)
        moves = _Moves.of(graph.nodes, use_plans, def_plans, self.known_plans.figures)
        structure = structure_reads(program, held)
        alone = np.arange(len(graph.nodes))
        plain = plain_sizes(program, held, graph, structure, alone, matmul.narrows_operands)

        planned = np.ascontiguousarray(graph.nodes["slot"])
        if not device.hides_latency:
            last = last_slots(program, held, graph, planned, structure)
            planned = order_neighbours(graph, program.ops["matrix_flop"] > 0, plain, last)
        planned, saved_s = combine_reductions(held, graph, planned, *moves.for_combining, device.combine_bytes)
        transposed = transposed_nodes(program, held, graph) & (matmul.copies_updates and self.options.layout_copies)
        copied = copied_bytes(program, held, graph, transposed)
        gathered, rewritten = output_copies(program, held, graph, moves.as_output)
        if not (matmul.copies_updates and self.options.layout_copies):
            gathered[:], rewritten[:] = False, 0.0

        def buffers_at(slot: np.ndarray, leader: np.ndarray, made: np.ndarray) -> tuple[Buffers, np.ndarray]:
            """The buffers when nodes run at `slot`, and the bytes of outputs that take over no argument's memory."""
            last = last_slots(program, held, graph, slot, structure)
            buffers = live_ranges(program, held, graph, slot, leader, plain, made, last)
            output_bytes = np.zeros(len(program.outputs))
            outputs(program, held, graph, transposed, gathered, buffers, output_bytes)
            return buffers, output_bytes

        made = made_at(program, held, graph, planned)
        slot = run_early(program, held, graph, planned, buffers_at(planned, alone, made)[0])
        order, made = np.argsort(slot, kind="stable"), made_at(program, held, graph, slot)
        leader = join_kernels(program, held, graph, order, slot, made, matmul.joins_results, JOIN_WINDOW_OPS)
        plain = plain_sizes(program, held, graph, structure, leader, matmul.narrows_operands)
        buffers, each_output_bytes = buffers_at(slot, leader, made)
        output_bytes, extra_bytes = float(each_output_bytes.sum()), moves.extra_bytes + copied
        order = np.argsort(slot, kind="stable")
        kernel_s, hbm = kernel_seconds(
            program, held, graph, order, slot, leader, copied, plain, buffers, self.device_row,
            times_there(self.left_out, self.program, graph.nodes, local.at_def, slot),
        )  # fmt: skip
        rounded, rounding_s = rounded_bytes(program, held, graph, narrow, device)
        kernel_s += moves.copy_s + rewritten / (device.hbm_bytes_per_s * device.hbm_efficiency) + rounding_s
        hbm += moves.copied_bytes + rewritten + rounded
        live = live_bytes(buffers, slot_count(len(program.ops)), slot, extra_bytes)

        link_s = moves.seconds - saved_s + self._own_seconds(held, graph)
        node_s = kernel_s + link_s
        trips = program.scopes["scope_trips"][graph.nodes["scope"]]
        compute_s, collective_s = _in_all(kernel_s, trips), _in_all(link_s, trips)
        argument_bytes = float(held.values["settled_bytes"][self.passed].sum())
        again_s, between_bytes = 0.0, LIMIT_SHARE * device.hbm_bytes - argument_bytes - output_bytes
        if self.options.rematerialise and live.max() > between_bytes:
            rate = device.hbm_bytes_per_s * device.hbm_efficiency
            live, again_s = rematerialised(graph, slot, buffers, kernel_s, live, between_bytes, rate)
        return Simulation(
            serial_s=compute_s + collective_s + again_s,
            again_s=float(again_s),
            compute_s=compute_s + again_s,
            collective_s=collective_s,
            peak_bytes=float(argument_bytes + output_bytes + live.max()),
            argument_bytes=argument_bytes,
            output_bytes=output_bytes,
            flop=_in_all(graph.nodes["matrix_flop"] + graph.nodes["vector_flop"], trips),
            hbm_bytes=_in_all(hbm, trips),
            local=local,
            arrays=held,
            graph=graph,
            leader=leader,
            slot=slot,
            node_s=node_s,
            node_hbm_bytes=hbm,
            node_trips=trips,
            node_extra_bytes=extra_bytes,
            buffers=buffers,
            live=live,
            each_output_bytes=each_output_bytes,
            combining=moves.for_combining[:2],
            members=members,
            links=self.links,
            device_row=self.device_row,
            plan_rows=(def_plans, use_plans),
            known_plans=self.known_plans,
        )

    def _own_seconds(self, held: LocalArrays, graph: KernelGraph) -> np.ndarray:
        """float64[nodes]: seconds on the links of the collectives that the program itself has."""
        seconds, own = np.zeros(len(graph.nodes)), self.own_collectives
        if len(own.ops):
            of_op = np.zeros(len(self.arrays.ops))
            of_op[own.ops] = own.seconds(self.program, held, self.links)
            kernels = graph.nodes["kind"] == KERNEL
            seconds[kernels] = of_op[graph.nodes["subject"][kernels]]
        return seconds

    def _plan_rows(
        self,
        local: DeviceLocal,
        values: np.ndarray,
        sources: np.ndarray,
        targets: np.ndarray,
        stretches: np.ndarray,
        narrow: np.ndarray,
    ) -> np.ndarray:
        """The rows of `known_plans` of some redistributions; what is `narrow` is of a type of its own."""

        def price(i: int) -> PlanCost:
            plan = local.plan_between(int(values[i]), int(sources[i]), int(targets[i]), int(stretches[i]))
            share = NARROW_SHARE if narrow[i] else 1.0
            return plan_cost(plan, self.program.type_of(int(values[i])).element_bytes * share, self.links)

        types = self.program.value_type_id[values]
        return self.known_plans.rows(np.where(narrow, -2 - types, types), sources, targets, stretches, price)


def _in_all(figures: np.ndarray, trips: np.ndarray) -> float:
    """What nodes take in all, each as often as it runs.

    Not `figures @ trips`: for arrays of this length, BLAS wakes a thread on every core and waits for all of them.
    """
    return float((figures * trips).sum())


@dataclass(frozen=True)
class _Moves:
    """Prices of redistributions per node of the graph; zeros for kernels. `seconds` are on the links."""

    seconds: np.ndarray
    extra_bytes: np.ndarray
    copy_s: np.ndarray
    copied_bytes: np.ndarray
    as_output: np.ndarray
    for_combining: tuple[np.ndarray, np.ndarray, np.ndarray]

    @staticmethod
    def of(nodes: np.ndarray, use_plans: np.ndarray, def_plans: np.ndarray, figures: np.ndarray) -> _Moves:
        """From the rows of their plans in `figures`, whose row 0 is for kernels."""
        kind, subject, rows = nodes["kind"], nodes["subject"], np.zeros(len(nodes), np.int32)
        for move, plans in ((USE_MOVE, use_plans), (DEF_MOVE, def_plans)):
            at = kind == move
            rows[at] = plans[subject[at]]
        seconds, extra_bytes, combinable, bytes_in, latency_s, copy_s, copied_bytes, as_output = figures[:, rows]
        group = np.where(kind == DEF_MOVE, combinable, 0).astype(np.int64) - 1
        return _Moves(seconds, extra_bytes, copy_s, copied_bytes, as_output, (group, bytes_in, latency_s))


@kernel
def _two_streams(
    graph: KernelGraph, leader: np.ndarray, seconds: np.ndarray, ready: np.ndarray, start: np.ndarray, free: np.ndarray
) -> None:
    """When nodes start, if collectives queue beside compute, each waiting for what it reads; arrays begin with zeros.

    In program order: what runs early to free memory would wait for the collective it needs.

    ready[buffer]   when it is there; start[node]: when it starts; free[stream]: when the last of its nodes has ended
    """
    for k in range(graph.nodes.shape[0]):
        stream = 0 if graph.nodes.kind[k] == KERNEL else 1
        at = free[stream]
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            at = max(at, ready[graph.reads.read_buffer[i]])
        start[k] = at
        done = at + seconds[k]
        if leader[k] == k:
            free[stream] = done
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            ready[graph.write_buffer[i]] = done
