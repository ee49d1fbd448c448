"""The simulator: runs a device-local program on paper.

    lowering arrays  ->  local sizes  ->  fusion  ->  kernels  ->  when each runs  ->  seconds, bytes, live memory
                         arrays.py        fusion.py   kernel_graph  lifetimes.py        compute.py, memory.py
                                                                    multi_output.py

A `Simulator` belongs to one program and mesh and keeps what they fix: the program's arrays, the mesh's links, and the
price of every redistribution seen so far. Search calls `run` for each state; `estimate` puts a run into words.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numba import njit

from autopart.core.mesh import Mesh
from autopart.core.program import Program
from autopart.costmodel.arrays import LocalArrays, ProgramArrays, local_arrays, program_arrays
from autopart.costmodel.combine import combine_reductions
from autopart.costmodel.compute import kernel_seconds
from autopart.costmodel.devices import device_row
from autopart.costmodel.fusion import virtual_values
from autopart.costmodel.kernel_graph import DEF_MOVE, KERNEL, USE_MOVE, KernelGraph, kernel_graph
from autopart.costmodel.layout_copies import copied_bytes, turned_nodes
from autopart.costmodel.lifetimes import last_slots, made_at, run_early, structure_reads
from autopart.costmodel.links import Links, mesh_links
from autopart.costmodel.memory import live_bytes, live_ranges, outputs, plain_sizes
from autopart.costmodel.multi_output import join_kernels
from autopart.costmodel.order import order_neighbours
from autopart.costmodel.redistribution_costs import PlanCost, plan_cost
from autopart.spmd.device_local import DeviceLocal

JOIN_WINDOW_OPS = 100
"""How far behind a kernel an op may be to join it: about one block of a transformer."""


@dataclass(frozen=True)
class SimulatorOptions:
    """What is assumed.

    overlap         collectives run beside compute that does not need them; else one after the other
    layout_padding  arrays take whole layout tiles in memory, on devices that have them
    layout_copies   updates from a transposed collective are made on copies (`layout_copies.py`), on TPU
    recompute       expensive elementwise ops are fused into each of several consumers; False estimates more memory
    """

    overlap: bool = False
    layout_padding: bool = True
    layout_copies: bool = True
    recompute: bool = True


@dataclass(frozen=True, eq=False)
class Simulation:
    """One run: totals first, then arrays per node and buffer for whoever wants to look closer.

    serial_s, overlapped_s   seconds of a step with collectives in turn, and beside independent compute
    """

    serial_s: float
    overlapped_s: float
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
    node_start_s: np.ndarray = field(repr=False)
    made: np.ndarray = field(repr=False)
    end: np.ndarray = field(repr=False)
    size: np.ndarray = field(repr=False)
    live: np.ndarray = field(repr=False)
    plans: tuple[list[PlanCost], list[PlanCost]] = field(repr=False)
    """Prices of the redistributions after ops (`at_def`) and before uses (`placement`)."""


@dataclass(frozen=True, eq=False)
class Simulator:
    """Estimates of one program on one mesh; make it with `Simulator.of`."""

    program: Program
    links: Links
    options: SimulatorOptions
    arrays: ProgramArrays = field(repr=False)
    device_row: np.ndarray = field(repr=False)
    known_plans: dict[tuple[int, int, int], PlanCost] = field(repr=False)

    @staticmethod
    def of(program: Program, mesh: Mesh, options: SimulatorOptions | None = None) -> Simulator:
        """A simulator for `program` on `mesh`; raises `MeshError` if it names no device or an axis has no link."""
        links = mesh_links(mesh)
        return Simulator(
            program, links, options or SimulatorOptions(), program_arrays(program), device_row(links.device), {}
        )

    def run(self, local: DeviceLocal) -> Simulation:
        """Simulates one lowering of the program; milliseconds, so that search can call it for each state."""
        p, d = self.arrays, self.links.device
        def_plans = self._plan_costs(local, local.at_def, local.native[local.at_def], local.settled[local.at_def])
        place = local.placement
        use_plans = self._plan_costs(local, place.value, local.settled[place.value], place.target)
        moves_nothing = np.array([not c.steps for c in use_plans], np.bool_)
        tile = d.layout_tile if self.options.layout_padding else (1, 1)
        here = local_arrays(local, p, tile, moves_nothing)
        virtual = virtual_values(p, here, d.fuses_into_matmul, self.options.recompute)
        graph, plans = kernel_graph(p, here, virtual, local.at_def), (use_plans, def_plans)
        moves = [
            _of_nodes(
                graph.kind, graph.subject, *(np.array([getattr(c, name) for c in costs], float) for costs in plans)
            )
            for name in ("seconds", "extra_bytes", "combinable", "bytes_in", "latency_s")
        ]
        totals, arrays = _simulate(
            p,
            here,
            graph,
            *moves,
            d.fuses_into_matmul,
            d.combine_bytes,
            d.hides_latency,
            self.options.layout_copies,
            self.device_row,
            JOIN_WINDOW_OPS,
        )
        leader, slot, node_s, hbm, trips, start_s, made, end, size, live = arrays
        serial_s, overlapped_s, compute_s, collective_s, peak, output_bytes, flop, hbm_bytes = totals
        argument_bytes = float(here.settled_bytes[self.program.arguments].sum())
        return Simulation(
            serial_s, overlapped_s, compute_s, collective_s, argument_bytes + output_bytes + peak, argument_bytes,
            output_bytes, flop, hbm_bytes, local, here, graph, leader, slot, node_s, hbm, trips, start_s, made, end,
            size, live, (def_plans, use_plans),
        )  # fmt: skip

    def _plan_costs(self, local: DeviceLocal, values, sources, targets) -> list[PlanCost]:
        known, kinds = self.known_plans, local.statics.type_id[values]
        costs = []
        for value, *key in zip(values.tolist(), kinds.tolist(), sources.tolist(), targets.tolist(), strict=True):
            cost = known.get(tuple(key))
            if cost is None:
                plan = local.plan_between(value, key[1], key[2])
                cost = known[tuple(key)] = plan_cost(plan, self.program.type_of(value).element_bytes, self.links)
            costs.append(cost)
        return costs


@njit(cache=True)
def _of_nodes(kind, subject, of_use, of_def):
    """Spreads a number per redistribution over the nodes; 0 for kernels."""
    out = np.zeros(kind.shape[0])
    for k in range(kind.shape[0]):
        if kind[k] == USE_MOVE:
            out[k] = of_use[subject[k]]
        elif kind[k] == DEF_MOVE:
            out[k] = of_def[subject[k]]
    return out


@njit(cache=True)
def _simulate(
    p,
    here,
    graph,
    move_s,
    extra_bytes,
    combinable,
    operand_bytes,
    latency_s,
    is_tpu,
    combine_bytes,
    hides_latency,
    with_copies,
    row,
    window_ops,
):
    """Everything after the kernels are known; see `Simulation` for what is returned."""
    nodes, ops = graph.kind.shape[0], p.op_class.shape[0]
    structure = structure_reads(p, here)
    plain = plain_sizes(p, here, graph, structure, is_tpu)
    last = last_slots(p, here, graph, graph.slot, structure)
    ordered = graph.slot.copy() if hides_latency else order_neighbours(graph, p.matrix_flop > 0, plain, last)
    group = np.where(graph.kind == DEF_MOVE, combinable, 0.0).astype(np.int64) - 1
    planned = combine_reductions(here, graph, ordered, move_s, group, operand_bytes, latency_s, combine_bytes)
    turned = turned_nodes(p, here, graph) & (is_tpu and with_copies)
    copied = copied_bytes(p, here, graph, turned)
    leader = np.arange(nodes)
    made = made_at(p, here, graph, planned)
    last = last_slots(p, here, graph, planned, structure)
    end, size = live_ranges(p, here, graph, planned, leader, plain, made, last)
    outputs(p, here, graph, turned, made, last, end, size)
    slot = run_early(p, here, graph, planned, size, last)
    made = made_at(p, here, graph, slot)
    leader = join_kernels(p, here, graph, slot, made, is_tpu, window_ops)
    made = made_at(p, here, graph, slot)
    last = last_slots(p, here, graph, slot, structure)
    end, size = live_ranges(p, here, graph, slot, leader, plain, made, last)
    output_bytes = outputs(p, here, graph, turned, made, last, end, size)
    seconds, hbm = kernel_seconds(p, here, graph, slot, leader, copied, last, plain, size, row)
    live = live_bytes(made, end, size, 4 * ops + 4, slot, extra_bytes + copied)
    trips = p.scope_trips[graph.scope]
    seconds += move_s
    start_s, overlapped_s = _two_streams(graph, leader, seconds * trips, here.home.shape[0])
    compute_s = collective_s = flop = hbm_bytes = 0.0
    for k in range(nodes):
        if graph.kind[k] == KERNEL:
            compute_s += seconds[k] * trips[k]
            flop += graph.matrix_flop[k] * trips[k] + graph.vector_flop[k] * trips[k]
        else:
            collective_s += seconds[k] * trips[k]
        hbm_bytes += hbm[k] * trips[k]
    totals = (
        compute_s + collective_s,
        overlapped_s,
        compute_s,
        collective_s,
        live.max(),
        output_bytes,
        flop,
        hbm_bytes,
    )
    return totals, (leader, slot, seconds, hbm, trips, start_s, made, end, size, live)


@njit(cache=True)
def _two_streams(graph, leader, seconds, buffers):
    """(start of each node, end of the step) if collectives queue beside compute, each waiting for what it reads.

    In program order: what runs early to free memory would wait for the collective it needs.
    """
    ready, start = np.zeros(buffers), np.zeros(graph.kind.shape[0])
    free = np.zeros(2)
    for k in range(graph.kind.shape[0]):
        stream = 0 if graph.kind[k] == KERNEL else 1
        at = free[stream]
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            at = max(at, ready[graph.read_buffer[i]])
        start[k] = at
        done = at + seconds[k]
        if leader[k] == k:
            free[stream] = done
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            ready[graph.write_buffer[i]] = done
    return start, max(free[0], free[1])
