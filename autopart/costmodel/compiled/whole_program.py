"""Totals of a program from the simulation of one with fewer of its layers (`core/repeats/fewer_layers.py`).

    simulated      1  2  3           8        layers 2, 3 and 8 take the same seconds, make and free the same buffers:
    whole          1  2  3  4 5 6 7  8        so do 4 to 7, which layer 3 stands for

    seconds        each node of layer 3 counts as often as the layers that it stands for
    memory         what lives at a slot, and what layers 4 to 7 hold there: of what layer 3 makes in the forward pass
                   and frees in the backward pass, as much again for each, from one place where layers are left out to
                   the other. From layer to layer the peak grows or shrinks evenly, so none that is left out has more.

This is exact where simulation is in a steady state, which is looked at, not assumed: layers on both sides of the
typical one must agree with it, in every figure and in where everything runs and ends. What a layer hands to the next
one in the simulation (what is on chip, reductions that wait to be combined) is then the same for all that follow. Where
layers do not agree there is no answer, and the whole program has to be simulated. Sums are added in another order, so
answers agree to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autopart.core.repeats.fewer_layers import FewerLayers
from autopart.core.repeats.repeated_layers import NO_CHAIN
from autopart.costmodel.compiled.fusion.left_out import LeftOut
from autopart.costmodel.compiled.layers.steady_state import (
    NOT_STEADY,
    NOWHERE,
    Layers,
    Run,
    Three,
    steady,
)
from autopart.costmodel.compiled.simulator import Simulation, Totals
from autopart.costmodel.compiled.slots import SLOTS_PER_OP, before, slot_count

LEAST_OPS = 100
"""Ops of a layer: what the simulator looks for within a hundred ops is then in the same layer or the next one."""

SPAN = 2**20
"""More than any program has layers."""


@dataclass(frozen=True, eq=False)
class WholeProgram:
    """Finds the totals of runs of one program with fewer layers; make it with `WholeProgram.of`.

    fewer         the program, and what it stands for
    layer_of_op   int64[ops + 1]: the layer of an op, `NOWHERE` for none; the last entry is the end of the program
    chain_of_op   int64[ops + 1]: its chain, or -1 - op
    value_layer   int64[values]: the layer of a value, `NOWHERE` for none
    value_part    float64[values]: equal for values that correspond in two layers
    is_shared     bool[values]: a value in no layer that the typical layer reads, and so do its neighbours
    step          int64[slots]: one more at the corresponding slot of the next layer, and nowhere else
    gap           int64[slots]: the first slot after the layers that are left out, for slots in a layer
    passes        int64[n, 3]: the slots between which a layer runs behind which others are left out, and where the pass
                  through all layers is over
    left_out      what the simulator has to know of those layers

    Arguments are in no layer as places, since nothing runs where they stand.
    """

    fewer: FewerLayers
    layer_of_op: np.ndarray = field(repr=False)
    chain_of_op: np.ndarray = field(repr=False)
    value_layer: np.ndarray = field(repr=False)
    value_part: np.ndarray = field(repr=False)
    is_shared: np.ndarray = field(repr=False)
    step: np.ndarray = field(repr=False)
    gap: np.ndarray = field(repr=False)
    passes: np.ndarray = field(repr=False)
    left_out: LeftOut = field(repr=False)

    @staticmethod
    def of(fewer: FewerLayers) -> WholeProgram | None:
        """None where layers are too small for anything to be said of them."""
        if np.count_nonzero(fewer.layer[fewer.chain >= 0] == fewer.typical) < LEAST_OPS:
            return None
        program, ops = fewer.program, np.arange(fewer.program.op_count + 1)
        has_layer = np.append(fewer.chain != NO_CHAIN, False)
        chain = np.where(has_layer, np.append(fewer.chain, 0), -1 - ops).astype(np.int64)
        layer = np.where(has_layer, np.append(fewer.layer, 0), NOWHERE).astype(np.int64)
        position = np.arange(program.value_count) - program.result_ptr[program.value_op]
        value_layer, value_part = layer[program.value_op], chain[program.value_op] + position / 1024.0
        one_before, here = np.full(program.value_count, -1), np.flatnonzero(value_layer == fewer.typical)
        at_first = np.flatnonzero(value_layer == fewer.typical - 1)
        one_before[here[np.argsort(value_part[here])]] = at_first[np.argsort(value_part[at_first])]
        is_shared = np.zeros(program.value_count, np.bool_)
        is_shared[program.operands[layer[program.use_op] == fewer.typical]] = True
        is_shared &= ~has_layer[program.value_op]
        runs_in = has_layer.copy()
        runs_in[program.value_op[program.arguments]] = False
        slot = np.arange(slot_count(program.op_count))
        op, part = slot // SLOTS_PER_OP, slot % SLOTS_PER_OP
        corresponding = np.where(
            runs_in[op], (chain[op] * SLOTS_PER_OP + part) * SPAN + layer[op], -2 * SPAN * (slot + 1)
        )
        return WholeProgram(
            fewer, layer, chain, value_layer, value_part, is_shared, corresponding,
            before(1) * fewer.gap[np.where(runs_in, chain, 0)][op].astype(np.int64), _passes(fewer),
            LeftOut(fewer.left_out, one_before),
        )  # fmt: skip

    def totals(self, run: Simulation) -> Totals | None:
        """Those of the whole program; None where the run is in no steady state."""
        nodes, buffers, slots = len(run.slot), len(run.buffers.made), len(run.live) + 1
        between = np.empty((2, slots))
        three = Three(np.empty((3, nodes), np.int32), np.empty((3, buffers), np.int32), between[0], between[1])
        count, most_bytes = steady(self._layers, _as_kernels_read_it(run), three)
        if count == NOT_STEADY:
            return None
        seconds = run.node_s * run.node_trips
        serial_s = float(seconds.sum() + self.fewer.left_out * seconds[three.nodes[1, :count]].sum())
        passed, times_passed, times_output = self._stays
        stays = float(run.arrays.values["settled_bytes"][passed] @ times_passed)
        stays += float(run.each_output_bytes @ times_output)
        return Totals(serial_s, float(stays + most_bytes))

    @cached_property
    def _layers(self) -> Layers:
        return Layers(
            self.fewer.typical, self.fewer.left_out, self.layer_of_op, self.chain_of_op, self.value_layer,
            self.value_part, self.is_shared, self.step, self.gap, self.passes,
            self.fewer.times.astype(np.float64),
        )  # fmt: skip

    @cached_property
    def _stays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(arguments that are passed, how many values each of them and of the outputs stands for)."""
        program, times = self.fewer.program, self.fewer.times.astype(np.float64)
        passed = np.array([program.arguments[place] for place in program.passed_arguments], np.int64)
        outputs = np.array(program.outputs, np.int64)
        return passed, times[program.value_op[passed]], times[program.value_op[outputs]]


def _passes(fewer: FewerLayers) -> np.ndarray:
    """`WholeProgram.passes`: chains whose layers are left out at one place are one pass."""
    ops, last = fewer.three.ops, np.zeros(len(fewer.gap), np.int64)
    has_chain = np.flatnonzero(fewer.chain != NO_CHAIN)
    np.maximum.at(last, fewer.chain[has_chain], has_chain + 1)
    chains = fewer.chain[ops[0]]
    gap = fewer.gap[chains]
    begin = np.where(ops < gap, ops, -1).max(axis=0)
    ends = np.unique(gap[begin >= 0])
    of_end = [(gap == end) & (begin >= 0) for end in ends]
    rows = [(begin[of].min(), end, last[chains[of]].max()) for of, end in zip(of_end, ends, strict=True)]
    return before(1) * np.array(rows, np.int64).reshape(-1, 3)


def _as_kernels_read_it(run: Simulation) -> Run:
    local, place = run.local, run.local.placement
    return Run(
        run.program_arrays, run.graph, local.at_def, place.value, place.position, run.node_s, run.node_hbm_bytes,
        run.node_since, run.node_extra_bytes, run.slot, run.leader, run.operands, run.buffers, run.live,
        run.node_plan_rows, run.known_plans.figures, float(run.links.device.combine_bytes),
    )  # fmt: skip
