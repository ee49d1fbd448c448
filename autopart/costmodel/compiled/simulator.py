"""The simulator: runs a device-local program on paper.

    lowering arrays  ->  plans of moves  ->  sizes, fusion, kernels  ->  when each runs, seconds, live memory
                         known_plans.py      local_graph.py              simulated_step.py

A `Simulator` belongs to one program and mesh and keeps what they fix: the program's arrays, the mesh's links, and the
price of every redistribution seen so far. Search calls `run` for each state; `estimate` puts a run into words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from autopart.core.mesh import Mesh
from autopart.core.program import Program
from autopart.costmodel.compiled.arena import NEW, Empty, Room
from autopart.costmodel.compiled.arrays import NARROW_SHARE, LocalArrays, Lowered, ProgramArrays, stretch_shares
from autopart.costmodel.compiled.buffer_assignment.liveness import Buffers
from autopart.costmodel.compiled.buffer_assignment.rematerialisation import LIMIT_SHARE, rematerialised
from autopart.costmodel.compiled.collective_pipeliner import two_streams
from autopart.costmodel.compiled.facts.op_classes import unknown_ops
from autopart.costmodel.compiled.fusion.fusion import most_fused
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL, KernelGraph
from autopart.costmodel.compiled.fusion.left_out import NOTHING_LEFT_OUT, LeftOut
from autopart.costmodel.compiled.fusion.local_graph import LocalGraph, local_graph
from autopart.costmodel.compiled.layout_assignment.assignment import LayoutAssignment
from autopart.costmodel.compiled.links.bf16_collectives import narrow_uses
from autopart.costmodel.compiled.links.collective_combiner import Wires
from autopart.costmodel.compiled.links.known_plans import Asked, KnownPlans, ask
from autopart.costmodel.compiled.links.own_collectives import OwnCollectives
from autopart.costmodel.compiled.links.redistribution_costs import PlanCost, plan_cost
from autopart.costmodel.compiled.program_arrays import program_arrays
from autopart.costmodel.compiled.simulated_step import DeviceFacts, Moves, Scratch, Step, run_step
from autopart.costmodel.compiled.sizes import SizeTable
from autopart.costmodel.hardware.devices import device_row
from autopart.costmodel.hardware.links import Links, mesh_links
from autopart.spmd.device_local import DeviceLocal


@dataclass(frozen=True)
class SimulatorOptions:
    """What is assumed.

    overlap         collectives run beside compute that does not need them, or one after the other; None: as XLA has
                    them, beside each other on GPUs, in turn on TPUs
    pipelined       loops gather a trip ahead what they do not change, and reduce beside the next trip: XLA's pipelined
                    collectives, PyTorch's FSDP
    layout_padding  arrays take whole layout tiles in memory, on devices that have them
    layout_copies   updates from a transposed collective are made on copies, and so are outputs that a collective makes
                    in a donated argument's place (`layout_copies.py`), on TPU
    recompute       expensive elementwise ops are fused into each of several consumers; False estimates more memory
    rematerialise   where memory is short, the compiler computes results again that would wait for a late reader
                    (`rematerialisation.py`), as XLA:TPU does; False: a step takes the memory that its schedule takes
    """

    overlap: bool | None = None
    pipelined: bool = False
    layout_padding: bool = True
    layout_copies: bool = True
    recompute: bool = True
    rematerialise: bool = False


@dataclass(frozen=True, eq=False)
class Simulation:
    """One run: totals first, then arrays per node and buffer for whoever wants to look closer.

    step_s                   seconds of a step as the options have it: `serial_s`, or `overlapped_s`
    serial_s                 seconds of a step with collectives in turn
    again_s                  of those, what results take that are computed again for want of memory
    each_output_bytes        of each output that takes over no donated argument's memory; 0 for others
    node_beside_bytes        bytes of a node's arrays that pass HBM beside other kernels; node_hbm_bytes: in its own
    node_since               the earliest slot at which what a node finds on the chip was touched
    node_extra_bytes         what a node needs while it runs, besides the buffers that it reads and writes
    operands                 per value: how many arrays its expression reads, be they read inside its op
    plan_rows                rows of `known_plans`: of redistributions after ops, then of those before uses
    node_plan_rows           such a row per node; 0 for kernels
    """

    serial_s: float
    again_s: float
    compute_s: float
    collective_s: float
    peak_bytes: float
    argument_bytes: float
    output_bytes: float
    local: DeviceLocal = field(repr=False)
    program_arrays: ProgramArrays = field(repr=False)
    arrays: LocalArrays = field(repr=False)
    graph: KernelGraph = field(repr=False)
    leader: np.ndarray = field(repr=False)
    slot: np.ndarray = field(repr=False)
    node_s: np.ndarray = field(repr=False)
    node_hbm_bytes: np.ndarray = field(repr=False)
    node_beside_bytes: np.ndarray = field(repr=False)
    node_trips: np.ndarray = field(repr=False)
    node_since: np.ndarray = field(repr=False)
    node_extra_bytes: np.ndarray = field(repr=False)
    buffers: Buffers = field(repr=False)
    live: np.ndarray = field(repr=False)
    each_output_bytes: np.ndarray = field(repr=False)
    operands: np.ndarray = field(repr=False)
    links: Links = field(repr=False)
    device_row: np.ndarray = field(repr=False)
    plan_rows: np.ndarray = field(repr=False)
    node_plan_rows: np.ndarray = field(repr=False)
    known_plans: KnownPlans = field(repr=False)
    overlaps: bool = False
    pipelined: bool = False

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.overlapped_s if self.overlaps else self.serial_s

    @property
    def flop(self) -> float:
        """Operations of the matrix unit and the vector unit in a step."""
        return _in_all(self.graph.nodes["matrix_flop"] + self.graph.nodes["vector_flop"], self.node_trips)

    @property
    def hbm_bytes(self) -> float:
        """Bytes that pass HBM in a step."""
        return _in_all(self.node_hbm_bytes + self.node_beside_bytes, self.node_trips)

    @cached_property
    def _overlapped(self) -> tuple[np.ndarray, float]:
        """(float64[nodes], end of the step) if collectives run beside compute."""
        return two_streams(
            self.program_arrays, self.arrays, self.graph, self.slot, self.leader, self.node_s * self.node_trips,
            self.node_trips, self.pipelined,
        )  # fmt: skip

    @property
    def overlapped_s(self) -> float:
        """Seconds of a step with collectives beside independent compute."""
        return self._overlapped[1] + self.again_s

    @property
    def node_start_s(self) -> np.ndarray:
        """float64[nodes]: when each starts in such a step."""
        return self._overlapped[0]

    @cached_property
    def joined(self) -> np.ndarray:
        """int64[nodes]: how many nodes each leads, itself among them."""
        return np.bincount(self.leader, minlength=len(self.leader))

    @cached_property
    def plans(self) -> tuple[list[PlanCost], list[PlanCost]]:
        """Prices of the redistributions after ops (`at_def`) and before uses (`placement`)."""
        costs, defs = [self.known_plans.costs[row] for row in self.plan_rows.tolist()], len(self.local.at_def)
        return costs[:defs], costs[defs:]


class Totals(NamedTuple):
    """Seconds of a step, and the most bytes that live."""

    step_s: float
    peak_bytes: float


class Priced(NamedTuple):
    """A lowering's redistributions, those after ops first, and the rows of `known_plans` that have their prices."""

    asked: Asked
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class Simulator:
    """Estimates of one program on one mesh; make it with `Simulator.of`.

    able   bool[values]: consumers could compute the value if nothing was moved
    """

    program: Program
    links: Links
    options: SimulatorOptions
    arrays: ProgramArrays = field(repr=False)
    device_row: np.ndarray = field(repr=False)
    known_plans: KnownPlans = field(repr=False)
    known_sizes: SizeTable = field(repr=False)
    layouts: LayoutAssignment = field(repr=False)
    able: np.ndarray = field(repr=False)
    narrow_uses: np.ndarray = field(repr=False)
    passed: np.ndarray = field(repr=False)
    own_collectives: OwnCollectives = field(repr=False)
    left_out: LeftOut = field(default=NOTHING_LEFT_OUT, repr=False)
    room: Room = field(default=NEW, repr=False)
    unknown_ops: tuple[str, ...] = ()
    """Ops whose flop nobody knows, by kind: "custom_call @name (3 x)"."""

    @staticmethod
    def of(
        program: Program,
        mesh: Mesh,
        options: SimulatorOptions | None = None,
        left_out: LeftOut | None = None,
        room: Room = NEW,
    ) -> Simulator:
        """A simulator for `program` on `mesh`; raises `MeshError` if it names no device or an axis has no link."""
        links = mesh_links(mesh)
        arrays, row = program_arrays(program, links.device), device_row(links.device)
        return Simulator(
            program, links, options or SimulatorOptions(), arrays, row,
            KnownPlans(), SizeTable.empty(arrays.shape.shape[1]), LayoutAssignment.of(program),
            most_fused(arrays, links.device.around_matmul.fuses_operands)[0], narrow_uses(arrays),
            np.array(program.arguments, np.int64)[program.passed_arguments], OwnCollectives.of(program, mesh),
            left_out or NOTHING_LEFT_OUT, room, unknown_ops(program),
        )  # fmt: skip

    def priced(self, local: DeviceLocal) -> Priced:
        """The prices of a lowering's redistributions; what is new is planned."""
        asked = ask(self.program.value_type_id, self.narrow_uses, local)
        return Priced(asked, self.known_plans.rows(*asked, lambda i: self._priced(local, asked, i)))

    def run(self, local: DeviceLocal, priced: Priced | None = None) -> Simulation:
        """Simulates one lowering of the program; milliseconds, so that search can call it for each state.

        `priced` where it is known already.
        """
        empty, rows = self.room.begun(), (priced := priced or self.priced(local)).rows
        narrow = priced.asked.types[len(local.at_def) :] < 0
        lowered = self._lowered(local, rows, narrow, empty)
        ran = local_graph(self.arrays, self.known_sizes, lowered, self.able, self.options.recompute, empty)
        held, graph = ran.held, ran.graph
        step = self._step(ran, local.at_def, narrow, empty)
        device = self.links.device
        kernel_s, live = step.timed["seconds"], step.live[:-2]
        compute_s, collective_s = _in_all(kernel_s, step.trips), _in_all(step.link_s, step.trips)
        argument_bytes = float(held.values["settled_bytes"][self.passed].sum())
        output_bytes = float(step.each_output_bytes.sum())
        again_s, between_bytes = 0.0, LIMIT_SHARE * device.hbm_bytes - argument_bytes - output_bytes
        if self.options.rematerialise and live.max() > between_bytes:
            rate = device.hbm_bytes_per_s * device.hbm_efficiency
            live, again_s = rematerialised(graph, step.slot, step.buffers, kernel_s, live, between_bytes, rate)
        return Simulation(
            serial_s=compute_s + collective_s + again_s,
            again_s=float(again_s),
            compute_s=compute_s + again_s,
            collective_s=collective_s,
            peak_bytes=float(argument_bytes + output_bytes + live.max()),
            argument_bytes=argument_bytes,
            output_bytes=output_bytes,
            local=local,
            program_arrays=self.arrays,
            arrays=held,
            graph=graph,
            leader=step.leader,
            slot=step.slot,
            node_s=step.node_s,
            node_hbm_bytes=step.timed["hbm"],
            node_beside_bytes=step.timed["beside"],
            node_trips=step.trips,
            node_since=step.timed["since"],
            node_extra_bytes=step.extra_bytes,
            buffers=step.buffers,
            live=live,
            each_output_bytes=step.each_output_bytes,
            operands=ran.operands,
            links=self.links,
            device_row=self.device_row,
            plan_rows=rows,
            node_plan_rows=ran.plan_rows,
            known_plans=self.known_plans,
            overlaps=self.overlaps,
            pipelined=self.options.pipelined,
        )

    def _step(self, ran: LocalGraph, def_values: np.ndarray, narrow: np.ndarray, empty: Empty) -> Step:
        """One step of a graph; `def_values` and `narrow` as in `Moves`."""
        program, held, graph, known = self.arrays, ran.held, ran.graph, self.known_plans
        nodes, buffers, outputs = len(graph.nodes), len(held.home), len(program.outputs)
        step = Step.empty(nodes, buffers, len(program.ops), outputs, empty)
        scratch = Scratch.empty(
            nodes, buffers, len(graph.reads), len(program.ops), outputs, len(program.scopes), known.kinds, empty
        )
        own_s = self._own_seconds(held, graph)
        moves = Moves(ran.plan_rows, known.figures, narrow, def_values, own_s, Wires.of(self.links))
        run_step(program, held, graph, self._device, moves, self.left_out, scratch, step)
        return step

    @property
    def overlaps(self) -> bool:
        """Whether collectives run beside compute."""
        return self.links.device.is_xla_gpu if self.options.overlap is None else self.options.overlap

    @cached_property
    def _device(self) -> DeviceFacts:
        return DeviceFacts.of(self.links.device, self.device_row, self.options.layout_copies)

    def _lowered(self, local: DeviceLocal, plan_rows: np.ndarray, narrow: np.ndarray, empty: Empty) -> Lowered:
        """The lowering as kernels read it."""
        place, device = local.placement, self.links.device
        tile = device.layout_tile if self.options.layout_padding else (1, 1)
        axis_sizes = np.array(local.mesh.axis_sizes, np.int64)
        assigned = self.layouts(local.native, axis_sizes, tile, device.is_xla_gpu, empty)
        return Lowered(
            local.mapping, local.passing, local.native, local.settled, local.required, local.at_def,
            place.value, place.target, place.scope, place.position, np.argsort(place.position, kind="stable"),
            place.of_use, stretch_shares(local, plan_rows, self.known_plans.read_shares),
            narrow, plan_rows, self.known_plans.moves_nothing, *assigned, axis_sizes, tile, device.matmul_tile,
            device.spread_flop, device.turned_bytes,
            float(device.on_chip_bytes), (0.0, 0.0, 0.0, 0.0) if device.library is None else device.library.numbers,
            device.vector_rate / device.hbm_bytes_per_s if device.is_xla_gpu else np.inf,
        )  # fmt: skip

    def _own_seconds(self, held: LocalArrays, graph: KernelGraph) -> np.ndarray:
        """float64[nodes]: seconds on the links of the collectives that the program itself has; empty without any."""
        own = self.own_collectives
        if not len(own.ops):
            return np.empty(0)
        seconds, of_op = np.zeros(len(graph.nodes)), np.zeros(len(self.arrays.ops))
        of_op[own.ops] = own.seconds(self.program, held, self.links)
        kernels = graph.nodes["kind"] == KERNEL
        seconds[kernels] = of_op[graph.nodes["subject"][kernels]]
        return seconds

    def _priced(self, local: DeviceLocal, asked: Asked, i: int) -> PlanCost:
        """What redistribution i takes, those after ops first; what is narrow moves half the bytes."""
        defs = len(local.at_def)
        value = int(local.at_def[i] if i < defs else local.placement.value[i - defs])
        plan = local.plan_between(value, int(asked.sources[i]), int(asked.targets[i]), int(asked.stretches[i]))
        share = NARROW_SHARE if asked.types[i] < 0 else 1.0
        return plan_cost(plan, self.program.type_of(value).element_bytes * share, self.links)


def _in_all(figures: np.ndarray, trips: np.ndarray) -> float:
    """What nodes take in all, each as often as it runs.

    Not `figures @ trips`: for arrays of this length, BLAS wakes a thread on every core and waits for all of them.
    """
    return float((figures * trips).sum())
