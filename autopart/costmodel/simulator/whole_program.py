"""Totals of a program from the simulation of one with fewer of its layers (`core/fewer_layers.py`).

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

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from autopart.core.fewer_layers import FewerLayers
from autopart.core.layout import ACTION_MASK, LAST_TILE
from autopart.core.repeated_layers import NO_CHAIN
from autopart.costmodel.hardware.devices import ON_CHIP
from autopart.costmodel.simulator.combine import MAX_COMBINED, NEVER, SOON_OPS
from autopart.costmodel.simulator.kernel_graph import DEF_MOVE, KERNEL, USE_MOVE
from autopart.costmodel.simulator.left_out import LeftOut
from autopart.costmodel.simulator.simulator import Simulation
from autopart.costmodel.simulator.slots import SLOTS_PER_OP, before, slot_count
from autopart.spmd.device_local import DeviceLocal

LEAST_OPS = 100
"""Ops of a layer: what the simulator looks for within a hundred ops is then in the same layer or the next one."""

LEAST_ON_CHIP = 4
"""A layer moves so many times what fits on chip: what the forward pass leaves there is gone in the backward pass."""
NOWHERE = -1000
"""The layer of what is in none."""

SPAN = 2**20
"""More than any program has layers."""

_Three = tuple[np.ndarray, np.ndarray, np.ndarray]
"""What belongs to the layer before the typical one, to that, and to the one after."""


class Totals(NamedTuple):
    """Seconds of a step with collectives in turn, and the most bytes that live."""

    serial_s: float
    peak_bytes: float


@dataclass(frozen=True, eq=False)
class WholeProgram:
    """Finds the totals of runs of one program with fewer layers; make it with `WholeProgram.of`.

    fewer         the program, and what it stands for
    layer_of_op   int64[ops + 1]: the layer of an op, `NOWHERE` for none; the last entry is the end of the program
    chain_of_op   int64[ops + 1]: its chain, or -1 - op
    value_layer   int64[values]: the layer of a value, `NOWHERE` for none
    value_part    float64[values]: equal for values that correspond in two layers
    is_shared     bool[values]: a value in no layer that the typical layer reads, and so do its neighbours
    waits         int8[values]: 1 where a reduction of the value waits for others, since nothing reads it soon; 2 in the
                  typical layer where the next layer's has come before anything reads it; else 0
    whole_bytes   float64[values]: bytes of whole values
    step          int64[slots]: one more at the corresponding slot of the next layer, and nowhere else
    gap           int64[slots]: the first slot after the layers that are left out, for slots in a layer
    left_out      what the simulator has to know of those layers

    Arguments are in no layer as places, since nothing runs where they stand.
    """

    fewer: FewerLayers
    layer_of_op: np.ndarray = field(repr=False)
    chain_of_op: np.ndarray = field(repr=False)
    value_layer: np.ndarray = field(repr=False)
    value_part: np.ndarray = field(repr=False)
    is_shared: np.ndarray = field(repr=False)
    waits: np.ndarray = field(repr=False)
    whole_bytes: np.ndarray = field(repr=False)
    step: np.ndarray = field(repr=False)
    gap: np.ndarray = field(repr=False)
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
        first_read = np.full(program.value_count, NEVER)
        np.minimum.at(first_read, program.operands, program.use_position)
        apart = first_read - program.value_op
        layers = [np.flatnonzero(layer[:-1] == fewer.typical + n) for n in (0, 1)]
        here, there = (ops_[np.argsort(chain[ops_])] for ops_ in layers)
        period = np.zeros(program.op_count, np.int64)
        period[here] = np.abs(there - here)
        far = (layer[program.value_op] == fewer.typical) & (apart > period[program.value_op])
        waits = np.where(apart >= SOON_OPS, 1 + far, 0).astype(np.int8)
        runs_in = has_layer.copy()
        runs_in[program.value_op[program.arguments]] = False
        slot = np.arange(slot_count(program.op_count))
        op, part = slot // SLOTS_PER_OP, slot % SLOTS_PER_OP
        corresponding = np.where(
            runs_in[op], (chain[op] * SLOTS_PER_OP + part) * SPAN + layer[op], -2 * SPAN * (slot + 1)
        )
        return WholeProgram(
            fewer, layer, chain, value_layer, value_part, is_shared, waits,
            program.value_shape.prod(axis=1, dtype=np.float64) * program.element_bytes, corresponding,
            before(1) * fewer.gap[np.where(runs_in, chain, 0)][op].astype(np.int64),
            LeftOut(fewer.left_out, one_before),
        )  # fmt: skip

    def totals(self, run: Simulation) -> Totals | None:
        """Those of the whole program; None where the run is in no steady state."""
        things = _Things.of(self, run)
        nodes, buffers = self._three(things.node_layer), self._three(things.buffer_layer)
        if nodes is None or buffers is None or self._is_small(run, nodes[1]):
            return None
        held = _Lives.of(run, buffers)
        begin, end = self._places(held.made), self._places(held.end)
        if begin is None or end is None or not held.is_alike(things) or not self._nodes_are_alike(run, things, nodes):
            return None
        typical, more = nodes[1], self.fewer.left_out
        seconds = run.node_s * run.node_trips
        serial_s = float(seconds.sum() + more * seconds[typical].sum())
        stays = self._bytes_of_arguments(run) + self._bytes_of_outputs(run)
        left_out = _between(begin[0], end[1] - 1, more * held.in_bytes[1], len(run.live))
        return Totals(serial_s, float(stays + (run.live + left_out).max()))

    def may_be_steady(self, local: DeviceLocal, combine_bytes: float) -> bool:
        """False if reductions of all layers wait for each other, and are too many for one collective.

        The layers where one is full and the next begins are unlike the others. This is looked at before a run, and
        comes close to what the run would find.
        """
        program, values = self.fewer.program, local.at_def[self.waits[local.at_def] > 0]
        in_bytes, kind = self.whole_bytes[values], np.zeros(len(values), np.uint64)
        for axis, size in enumerate(local.mesh.axis_sizes):
            action = local.native[values] >> np.uint64(8 * axis) & np.uint64(ACTION_MASK)
            kind |= np.where(action > LAST_TILE, action, 0).astype(np.uint64) << np.uint64(8 * axis)
            in_bytes = np.where((action > 0) & (action <= LAST_TILE), in_bytes / size, in_bytes)
        times = self.fewer.times[program.value_op[values]]
        for each in np.unique(kind[kind > 0]).tolist():
            one, typical = kind == each, (kind == each) & (times > 1)
            of_several_layers = (self.waits[values[typical]] > 1).all() and 2 * in_bytes[typical].sum() <= combine_bytes
            fit = times[one].sum() <= MAX_COMBINED and times[one] @ in_bytes[one] <= combine_bytes
            if of_several_layers and not fit:
                return False
        return True

    def _is_small(self, run: Simulation, typical: np.ndarray) -> bool:
        """True if what a layer leaves on chip may still be there when a later pass comes to it."""
        return bool(run.node_hbm_bytes[typical].sum() < LEAST_ON_CHIP * run.device_row[ON_CHIP])

    def _three(self, layer: np.ndarray) -> _Three | None:
        """What belongs to the three layers; None where it is not as much for each."""
        found = [np.flatnonzero(layer == self.fewer.typical + n) for n in (-1, 0, 1)]
        return (found[0], found[1], found[2]) if len({len(rows) for rows in found}) == 1 else None

    # ---- steady state

    def _nodes_are_alike(self, run: Simulation, things: _Things, nodes: _Three) -> bool:
        """True if the nodes of the three layers take as long, run at corresponding places and in such kernels."""
        figures = (things.node_part, run.node_s, run.node_hbm_bytes, run.node_extra_bytes)
        if not all(_equal(figure[rows] for rows in nodes) for figure in figures):
            return False
        slots, leaders = [run.slot[rows] for rows in nodes], [run.leader[rows] for rows in nodes]
        planned = [run.graph.nodes["slot"][rows] for rows in leaders]
        in_layer = self._in_step(planned) | (leaders[1] == nodes[1])
        if not _equal(things.node_part[rows] for rows in leaders) or not in_layer.all():
            return False
        in_step = self._in_step(slots)
        waits = ~in_step & (run.graph.nodes["kind"][nodes[1]] == DEF_MOVE)
        return bool((in_step | _at_once(slots)).all()) and self._fit_together(run, things, nodes[1][waits])

    def _fit_together(self, run: Simulation, things: _Things, waiting: np.ndarray) -> bool:
        """True if reductions of all layers that wait for one place may also do so in the whole program."""
        group, sent = run.combining
        times = np.where(things.node_layer == self.fewer.typical, 1.0 + self.fewer.left_out, 1.0)
        for kind, slot in {(int(group[k]), int(run.slot[k])) for k in waiting.tolist()}:
            one = (group == kind) & (run.slot == slot)
            if times[one].sum() > MAX_COMBINED or times[one] @ sent[one] > run.links.device.combine_bytes:
                return False
        return True

    def _places(self, slots: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
        """Where slots of the typical layer are for those that are left out: (the first such slot, the first after).

        `slots` are those of the three layers. A slot in a layer becomes the gap where layers are left out; what happens
        at one place for all layers happens there. None if some slots are neither.
        """
        in_step = self._in_step(slots)
        if not (in_step | _at_once(slots)).all():
            return None
        gap = self.gap[slots[1]]
        return np.where(in_step, gap, slots[1]), np.where(in_step, gap, slots[1] + 1)

    def _in_step(self, slots: Sequence[np.ndarray]) -> np.ndarray:
        """bool[n]: slots[i] are at corresponding places of layers, each one layer on from the one before."""
        first, typical, last = (self.step[slot] for slot in slots)
        return (typical - first == 1) & (last - typical == 1)

    # ---- what the layers that are left out take

    def _bytes_of_arguments(self, run: Simulation) -> float:
        program = self.fewer.program
        passed = [program.arguments[place] for place in program.passed_arguments]
        return float(run.arrays.values["settled_bytes"][passed] @ self._times(passed))

    def _bytes_of_outputs(self, run: Simulation) -> float:
        program = self.fewer.program
        return float(run.each_output_bytes @ self._times(program.outputs)) if program.outputs else 0.0

    def _times(self, values: list[int]) -> np.ndarray:
        """float64[n]: how many values of the whole program each stands for."""
        return self.fewer.times[self.fewer.program.value_op[values]].astype(np.float64)


class _Lives(NamedTuple):
    """The buffers of three layers, and when they live; all 0 for buffers of no bytes.

    rows, made, end, in_bytes   int64[n], float64[n] for each of the three
    """

    rows: _Three
    made: Sequence[np.ndarray]
    end: Sequence[np.ndarray]
    in_bytes: Sequence[np.ndarray]

    @staticmethod
    def of(run: Simulation, rows: _Three) -> _Lives:
        """Those of a run."""
        held = run.buffers
        lives = [(held.bytes[some] > 0) & (held.end[some] >= held.made[some]) for some in rows]
        return _Lives(
            rows,
            [held.made[some] * live for some, live in zip(rows, lives, strict=True)],
            [held.end[some] * live for some, live in zip(rows, lives, strict=True)],
            [held.bytes[some] * live for some, live in zip(rows, lives, strict=True)],
        )

    def is_alike(self, things: _Things) -> bool:
        """True if the layers' buffers take as much, and expressions are as long in each."""
        parts = (things.buffer_part[some] for some in self.rows)
        return _equal(self.in_bytes) and _equal(parts) and _equal(things.members[some] for some in self.rows)


def _equal(arrays: Iterable[np.ndarray]) -> bool:
    return all(np.array_equal(one, other) for one, other in itertools.pairwise(arrays))


def _at_once(slots: Sequence[np.ndarray]) -> np.ndarray:
    """bool[n]: slots[i] are the same for all."""
    return (slots[0] == slots[1]) & (slots[1] == slots[2])


def _between(begin: np.ndarray, end: np.ndarray, in_bytes: np.ndarray, slots: int) -> np.ndarray:
    """float64[slots]: what lives at each slot, of buffers that live from `begin` to `end`."""
    live = begin <= end
    begun = np.bincount(begin[live], in_bytes[live], slots + 1)
    ended = np.bincount(np.minimum(end[live], slots - 1) + 1, in_bytes[live], slots + 1)
    return np.cumsum((begun - ended)[:-1])


class _Things(NamedTuple):
    """Nodes and buffers of a run by layer and by the part that they play in it.

    node_layer, buffer_layer   the layer, -1000 for none
    node_part, buffer_part     equal for those that correspond in two layers
    members                    per buffer that is a value: how many ops its expression has; else 0
    """

    node_layer: np.ndarray
    node_part: np.ndarray
    buffer_layer: np.ndarray
    buffer_part: np.ndarray
    members: np.ndarray

    @staticmethod
    def of(whole: WholeProgram, run: Simulation) -> _Things:
        """Sorts them."""
        program, local = whole.fewer.program, run.local
        chain, ops, place = whole.chain_of_op, program.op_count + 1, local.placement
        maker, reader = program.value_op[place.value], np.minimum(place.position, program.op_count)
        of_value = whole.value_layer[place.value]
        of_reader = np.where(whole.is_shared[place.value], whole.layer_of_op[reader], NOWHERE)
        move_layer = np.where(of_value != NOWHERE, of_value, of_reader)
        move_part = 3.0 * ops * (chain[maker] + ops) + (chain[reader] + ops)
        def_layer, def_part = whole.value_layer[local.at_def], whole.value_part[local.at_def] + 0.5
        kind, subject = run.graph.nodes["kind"], run.graph.nodes["subject"]
        node_layer, node_part = np.empty(len(kind), np.int64), np.empty(len(kind))
        at = kind == KERNEL
        made = program.result_ptr[subject[at]]
        node_layer[at], node_part[at] = whole.value_layer[made], whole.value_part[made]
        for of_kind, layers, parts in ((USE_MOVE, move_layer, move_part), (DEF_MOVE, def_layer, def_part)):
            at = kind == of_kind
            node_layer[at], node_part[at] = layers[subject[at]], parts[subject[at]]
        buffer_layer = np.concatenate([whole.value_layer, move_layer, def_layer])
        buffer_part = np.concatenate([whole.value_part, move_part, def_part])
        members = np.concatenate([run.members, np.zeros(len(move_layer) + len(def_layer))])
        return _Things(node_layer, node_part, buffer_layer, buffer_part, members)
