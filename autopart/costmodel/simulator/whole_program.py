"""Totals of a program from the simulation of one with fewer of its layers (`core/fewer_layers.py`).

    simulated      1  2  3           8        layers 2, 3 and 8 take the same seconds, make and free the same buffers:
    whole          1  2  3  4 5 6 7  8        so do 4 to 7, which layer 3 stands for

    seconds        each node of layer 3 counts as often as the layers that it stands for
    memory         what lives at a slot, and what layers 4 to 7 hold there: of what layer 3 makes in the forward pass and
                   frees in the backward pass, as much again for each, from one place where layers are left out to the
                   other. Between two layers the peak grows or shrinks evenly, so no layer that is left out has more.

This is exact where simulation is in a steady state, which is looked at, not assumed: layers on both sides of the typical
one must agree with it, in every figure and in where everything runs and ends. What a layer hands to the next one in the
simulation (what is on chip, reductions that wait to be combined) is then the same for all that follow. Where layers do
not agree there is no answer, and the whole program has to be simulated. Sums are added in another order: answers agree
to rounding.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from autopart.core.fewer_layers import FewerLayers
from autopart.core.repeated_layers import NO_CHAIN
from autopart.costmodel.hardware.devices import ON_CHIP
from autopart.costmodel.simulator.kernel_graph import DEF_MOVE, KERNEL, USE_MOVE
from autopart.costmodel.simulator.simulator import Simulation
from autopart.costmodel.simulator.slots import SLOTS_PER_OP, before

LEAST_OPS = 100
"""Ops of a layer: what the simulator looks for within a hundred ops is then in the same layer or the next one."""

LEAST_ON_CHIP = 4
"""A layer moves so many times what fits on chip: what the forward pass leaves there is gone in the backward pass."""

ELSEWHERE = 8
"""Layers up to which it is told how far away something is."""

NOWHERE = -1000
"""The layer of what is in none."""

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
    layer_of_op   int64[ops + 1]: the layer of an op, 0 where it has none; the last entry is the end of the program
    chain_of_op   int64[ops + 1]: its chain, or -1 - op
    has_layer     bool[ops + 1]: the op belongs to a layer
    runs_in       bool[ops + 1]: and is no argument, at whose place in the program nothing of a layer runs
    """

    fewer: FewerLayers
    layer_of_op: np.ndarray = field(repr=False)
    chain_of_op: np.ndarray = field(repr=False)
    has_layer: np.ndarray = field(repr=False)
    runs_in: np.ndarray = field(repr=False)

    @staticmethod
    def of(fewer: FewerLayers) -> WholeProgram | None:
        """None where layers are too small for anything to be said of them."""
        if np.count_nonzero(fewer.layer[fewer.chain >= 0] == fewer.typical) < LEAST_OPS:
            return None
        program, ops = fewer.program, fewer.program.op_count
        has_layer = np.append(fewer.chain != NO_CHAIN, False)
        chain = np.where(has_layer, np.append(fewer.chain, 0), -1 - np.arange(ops + 1)).astype(np.int64)
        layer = np.where(has_layer, np.append(fewer.layer, 0), 0).astype(np.int64)
        runs_in = has_layer.copy()
        runs_in[program.value_op[program.arguments]] = False
        return WholeProgram(fewer, layer, chain, has_layer, runs_in)

    def totals(self, run: Simulation) -> Totals | None:
        """Those of the whole program; None where the run is in no steady state."""
        things = _Things.of(self, run)
        nodes, buffers = self._three(things.node_layer), self._three(things.buffer_layer)
        if nodes is None or buffers is None or not self._is_steady(run, things, nodes, buffers):
            return None
        typical, more = nodes[1], self.fewer.left_out
        seconds = run.node_s * run.node_trips
        serial_s = float(seconds.sum() + more * seconds[typical].sum())
        stays = self._bytes_of_arguments(run) + self._bytes_of_outputs(run)
        return Totals(serial_s, float(stays + (run.live + self._held(run, buffers[1])).max()))

    def _three(self, layer: np.ndarray) -> _Three | None:
        """What belongs to the three layers; None where it is not as much for each."""
        before_, typical, after_ = (np.flatnonzero(layer == self.fewer.typical + n) for n in (-1, 0, 1))
        return (before_, typical, after_) if len(before_) == len(typical) == len(after_) else None

    # ---- steady state

    def _is_steady(self, run: Simulation, things: _Things, nodes: _Three, buffers: _Three) -> bool:
        typical = nodes[1]
        if run.node_hbm_bytes[typical].sum() < LEAST_ON_CHIP * run.device_row[ON_CHIP]:
            return False
        joins, moved = run.leader[typical] != typical, run.graph.nodes["kind"][typical] == DEF_MOVE
        in_layer = self.runs_in[_op(run.slot[typical])]
        if not in_layer[joins | moved].all():
            return False
        layers = range(self.fewer.typical - 1, self.fewer.typical + 2)
        at_nodes = [self._node_rows(run, things, rows, n) for n, rows in zip(layers, nodes, strict=True)]
        in_memory = [self._buffer_rows(run, things, rows, n) for n, rows in zip(layers, buffers, strict=True)]
        return all(np.array_equal(a, b) for rows in (at_nodes, in_memory) for a, b in itertools.pairwise(rows))

    def _node_rows(self, run: Simulation, things: _Things, rows: np.ndarray, layer: int) -> np.ndarray:
        """float64[columns, n]: what is to be equal in all layers, of some nodes."""
        return np.stack(
            [
                things.node_part[rows], run.node_s[rows], run.node_hbm_bytes[rows], run.node_extra_bytes[rows],
                self._place(run.slot[rows], layer), self._place(run.graph.nodes["slot"][run.leader[rows]], layer),
                things.node_part[run.leader[rows]],
            ]
        )  # fmt: skip

    def _buffer_rows(self, run: Simulation, things: _Things, rows: np.ndarray, layer: int) -> np.ndarray:
        """float64[columns, n]: the same of some buffers; when one of no bytes begins and ends does not matter."""
        held = run.buffers
        lives = (held.bytes[rows] > 0) & (held.end[rows] >= held.made[rows])
        return np.stack(
            [
                things.buffer_part[rows], things.members[rows], lives * held.bytes[rows], lives * self._place(held.made[rows], layer),
                lives * self._place(held.end[rows], layer),
            ]
        )  # fmt: skip

    def _place(self, slot: np.ndarray, layer: int) -> np.ndarray:
        """int64[n]: a slot as a layer sees it: an op of a chain so many layers on, or one place for all layers."""
        op = _op(slot)
        away = np.clip(self.layer_of_op[op] - layer, -ELSEWHERE, ELSEWHERE) * self.runs_in[op]
        part = np.where(self.runs_in[op], self.chain_of_op[op], -1 - op)
        return (part * (2 * ELSEWHERE + 1) + away) * SLOTS_PER_OP + slot % SLOTS_PER_OP

    # ---- what the layers that are left out take

    def _bytes_of_arguments(self, run: Simulation) -> float:
        program = self.fewer.program
        return float(run.arrays.values["settled_bytes"][program.arguments] @ self._times(program.arguments))

    def _bytes_of_outputs(self, run: Simulation) -> float:
        program = self.fewer.program
        return float(run.each_output_bytes @ self._times(program.outputs)) if program.outputs else 0.0

    def _times(self, values: list[int]) -> np.ndarray:
        """float64[n]: how many values of the whole program each stands for."""
        return self.fewer.times[self.fewer.program.value_op[values]].astype(np.float64)

    def _held(self, run: Simulation, rows: np.ndarray) -> np.ndarray:
        """float64[slots]: bytes of the layers that are left out that live at each slot."""
        held, slots = run.buffers, len(run.live)
        rows = rows[(held.bytes[rows] > 0) & (held.end[rows] >= held.made[rows])]
        begin, end = self._gap(held.made[rows], 0), self._gap(held.end[rows], -1)
        live = begin <= end
        change = np.zeros(slots + 1)
        in_bytes = self.fewer.left_out * held.bytes[rows][live]
        np.add.at(change, begin[live], in_bytes)
        np.add.at(change, np.minimum(end[live], slots - 1) + 1, -in_bytes)
        return np.cumsum(change[:-1])

    def _gap(self, slot: np.ndarray, shift: int) -> np.ndarray:
        """int64[n]: where the layers that are left out would be, for slots in a layer; other slots as they are."""
        op = _op(slot)
        gap = self.fewer.gap[np.where(self.runs_in[op], self.chain_of_op[op], 0)]
        return np.where(self.runs_in[op], before(1) * gap + shift, slot)


def _op(slot: np.ndarray) -> np.ndarray:
    return slot // SLOTS_PER_OP


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
        layer = np.where(whole.has_layer, whole.layer_of_op, NOWHERE)
        chain, ops = whole.chain_of_op, program.op_count + 1
        value_op, place = program.value_op, local.placement
        maker, reader = value_op[place.value], np.minimum(place.position, program.op_count)
        move_layer = np.where(whole.has_layer[maker], layer[maker], layer[reader])
        move_part = 3.0 * ops * (chain[maker] + ops) + (chain[reader] + ops)
        def_op = value_op[local.at_def]
        position = np.arange(program.value_count) - program.result_ptr[value_op]
        kind, subject = run.graph.nodes["kind"], run.graph.nodes["subject"]
        node_layer, node_part = np.empty(len(kind), np.int64), np.empty(len(kind))
        for of_kind, layers, parts in (
            (KERNEL, layer[:-1], chain[:-1].astype(np.float64)),
            (USE_MOVE, move_layer, move_part),
            (DEF_MOVE, layer[def_op], chain[def_op] + 0.5),
        ):
            at = kind == of_kind
            node_layer[at], node_part[at] = layers[subject[at]], parts[subject[at]]
        buffer_layer = np.concatenate([layer[value_op], move_layer, layer[def_op]])
        buffer_part = np.concatenate([chain[value_op] + position / 1024.0, move_part, chain[def_op] + 0.5])
        members = np.concatenate([run.members, np.zeros(len(move_layer) + len(def_op))])
        return _Things(node_layer, node_part, buffer_layer, buffer_part, members)

