"""Do passes of the simulator that walk through few ops find what a walk through all of them finds, in states of walks?

The walks through all are written out here, in Python: what consumers can compute, what is read through, what is made of
nothing but constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import autopart as ap
from autopart.costmodel.compiled.arrays import LocalArrays, ProgramArrays, empty_local_arrays
from autopart.costmodel.compiled.facts.op_classes import CONV, FREE, MATMUL, SLICING
from autopart.costmodel.compiled.fusion.fusion import Fused, fuse
from autopart.costmodel.compiled.fusion.kernel_graph import _INSIDE, _NOTHING, _WRITTEN, Walk, _find
from autopart.costmodel.compiled.local.local_arrays import local_arrays
from autopart.costmodel.compiled.simulator import Simulator
from autopart.costmodel.compiled.slots import order_by_slot, slot_count, stretch_count
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.spmd.device_local import DeviceLocal
from tests.prompt import only
from tests.search.state_walks import states_of_walks

MESH = ap.Mesh({"a": 4, "b": 2}, device="tpu_v3")
MODELS = ["mixture_of_experts", "lstm_haiku", "kv_cache_decoding", "cnn_flax"]
WALKS, STEPS = 3, 4


class Built(NamedTuple):
    """What a state's graph is made of."""

    program: ProgramArrays
    held: LocalArrays
    fused: Fused
    at_def: np.ndarray
    into_matmul: bool


def states(model: str) -> Iterator[DeviceLocal]:
    return map(lower_for_device, states_of_walks(model, MESH, WALKS, STEPS))


def built(simulator: Simulator, local: DeviceLocal) -> Built:
    asked, rows = simulator.priced(local)
    lowered = simulator._lowered(local, rows, asked.types[len(local.at_def) :] < 0, np.empty)
    program = simulator.arrays
    held = empty_local_arrays(program, len(lowered.value), len(lowered.at_def), np.empty)
    fused = Fused.empty(len(program.values), np.empty)
    local_arrays(program, simulator.known_sizes, lowered, held)
    fuse(program, held, lowered.at_def, lowered.looks_up, simulator.able, True, lowered.byte_cycles, fused)
    return Built(program, held, fused, lowered.at_def, bool(simulator.links.device.around_matmul.fuses_operands))


@pytest.fixture(scope="module", params=only(["mixture_of_experts", "kv_cache_decoding"], MODELS))
def found(request: Any) -> list[Built]:
    every = list(states(request.param))
    simulator = Simulator.of(every[0].program, MESH)
    return [built(simulator, local) for local in every]


def unmoved(state: Built, use: int) -> bool:
    moved = state.held.uses["of_use"][use]
    return moved < 0 or bool(state.held.moves["moves_nothing"][moved])


def results(state: Built, op: int) -> range:
    return range(state.program.result_ptr[op], state.program.result_ptr[op + 1])


def uses(state: Built, op: int) -> range:
    return range(state.program.operand_ptr[op], state.program.operand_ptr[op + 1])


def able_by_all(state: Built) -> np.ndarray:
    """Where every consumer could compute a value itself, op by op from the end."""
    program = state.program
    ops, able = program.ops, np.zeros(len(program.values), np.bool_)
    for op in range(len(ops) - 1, -1, -1):
        if not (ops["fuses"][op] or ops["is_view"][op]) or len(results(state, op)) != 1:
            continue
        value = program.result_ptr[op]
        facts = program.values[value]
        ok = state.held.values["at_def"][value] < 0 and not facts["is_output"] and not facts["is_written"]
        for use in program.user[program.user_ptr[value] : program.user_ptr[value + 1]].tolist():
            reader = program.uses["use_op"][use]
            ok = ok and unmoved(state, use) and program.uses["use_scope"][use] == ops["op_scope"][op]
            ok = ok and not ops["is_argument"][reader]
            if ops["is_view"][reader]:
                shown = program.result_ptr[reader] + use - program.operand_ptr[reader]
                if shown < program.result_ptr[reader + 1]:
                    ok = ok and ops["takes"][reader] and able[shown]
            elif ops["op_class"][reader] in (MATMUL, CONV):
                ok = ok and (state.into_matmul or program.values["is_splat"][value])
            else:
                is_index = ops["op_class"][reader] == SLICING and use > program.operand_ptr[reader]
                ok = ok and (ops["takes"][reader] or is_index or program.values["is_looked_up"][value])
        able[value] = ok
    return able


def found_by_all(state: Built) -> np.ndarray:
    """What is written, computed inside readers, or nothing but constants, op by op."""
    program = state.program
    kinds = np.full(len(program.values), _WRITTEN, np.int8)
    for op in range(len(program.ops)):
        nothing = program.ops["weight"][op] == 0 and program.ops["matrix_flop"][op] == 0
        for use in uses(state, op):
            nothing = nothing and unmoved(state, use) and kinds[program.uses["operands"][use]] == _NOTHING
        for value in results(state, op):
            away = bool(state.fused.away[value])
            if state.held.values["at_def"][value] < 0 and (away or program.ops["is_view"][op]):
                alone = len(results(state, op)) == 1
                kinds[value] = _NOTHING if nothing and away and alone else _INSIDE
    return kinds


def test_what_is_moved_is_taken_away_from_what_consumers_could_compute_if_nothing_was(found):
    moved = 0
    for state in found:
        assert (state.fused.able == able_by_all(state)).all()
        moved += len(state.at_def) + len(state.held.moves)
    assert moved > 0


def test_what_is_spread_from_constants_alone_is_nothing(found):
    for state in found:
        walk = Walk.empty(state.program, state.fused.away, 0, np.empty)
        _find(state.program, state.held, state.at_def, walk)
        assert (walk.found == found_by_all(state)).all()
        assert (walk.found == _NOTHING).any()


def test_what_views_show_and_ops_leave_is_read(found):
    for state in found:
        values, moves, uses = state.held.values, len(state.held.moves), state.program.uses
        left = np.arange(len(values))
        left[state.at_def] = len(values) + moves + np.arange(len(state.at_def))
        assert (values["left_in"] == left).all()
        assert (np.flatnonzero(values["at_def"] >= 0) == state.at_def).all()
        assert (uses["producer"] == state.program.values["value_op"][uses["operands"]]).all()
        for op in np.flatnonzero(state.program.ops["is_view"]).tolist():
            for place, value in enumerate(results(state, op)):
                shown = state.held.uses["use_buffer"][state.program.operand_ptr[op] + place]
                assert values["shows"][value] == (value if values["at_def"][value] >= 0 else shown)


@pytest.mark.parametrize("ops", [1, 3, 40, 1000])
def test_nodes_are_ordered_by_slot_then_by_number(ops):
    random = np.random.default_rng(ops)
    for moved in (0, 3, ops):
        slot = np.sort(random.integers(0, slot_count(ops), 2 * ops)).astype(np.int32)
        slot[random.integers(0, len(slot), moved)] = random.integers(0, slot_count(ops), moved)
        order, count = np.empty(len(slot), np.int32), np.empty(stretch_count(ops), np.int32)
        order_by_slot(slot, len(slot), count, order)
        assert (order == np.argsort(slot, kind="stable")).all()


def test_structure_is_all_that_runs_nothing_but_views_arguments_and_constants(found):
    program = found[0].program
    ops = program.ops
    for op in range(len(ops)):
        splat = any(program.values["is_splat"][value] for value in results(found[0], op))
        holds = ops["op_class"][op] == FREE and not ops["is_view"][op] and not ops["is_argument"][op] and not splat
        allocated = ops["operands"][op] > 0 and holds and ops["carry_body"][op] < 0
        assert (op in program.structure) == (holds or ops["carry_body"][op] >= 0) or allocated
    assert (np.flatnonzero(ops["carry_body"] >= 0) == program.carries).all()
