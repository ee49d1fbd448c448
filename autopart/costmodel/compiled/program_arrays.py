"""The arrays of a program, collected: what `facts` has to say about each op and value, for the device's compiler."""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.followed_marks import distinct_operands
from autopart.core.ops.groups_as_one import grouped_convolutions
from autopart.core.program import Program
from autopart.costmodel.compiled.arrays import BODY, BRANCH, ProgramArrays, records
from autopart.costmodel.compiled.facts.added_updates import added_updates
from autopart.costmodel.compiled.facts.cut_arrays import BY_PARTS, cut_arrays
from autopart.costmodel.compiled.facts.filled_stacks import filled_stacks
from autopart.costmodel.compiled.facts.library_calls import operands_alone
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE, FREE, SLICING, UPDATE, spec_costs
from autopart.costmodel.compiled.facts.output_places import output_places
from autopart.costmodel.compiled.facts.reshape_barriers import behind_reshapes
from autopart.costmodel.compiled.facts.softmax_rows import softmax_rows
from autopart.costmodel.compiled.facts.spread_results import spread_results
from autopart.costmodel.hardware.devices import Device
from autopart.spmd.for_xla.table_gradients import table_gradients

OP_COLUMNS = (
    "op_class", "matrix_dtype", "is_view", "fuses", "takes", "narrows", "turns", "spreads", "matrix_flop",
    "weight",
    "cycles",
)  # fmt: skip
"""Columns of `SpecCosts` that stand with each op."""

LOOKED_AT = ("op_class", "fuses", "weight", "spreads", "narrows")
"""Those that depend on what is around the op, too."""


def program_arrays(program: Program, chip: Device) -> ProgramArrays:
    """Collects them, for the device's compiler; a second for a training step of 30,000 ops."""
    costs, spec, tiled = spec_costs(program, chip)._asdict(), program.op_spec, chip.layout_tile[1] > 1
    user_ptr, user = program.users
    kinds = {"program": 0, "body": BODY, "condition": BODY, "branch": BRANCH}
    carry_body = np.full(program.op_count, -1, np.int32)
    for op, owner in program.owners.items():
        if program.spec(op).kind == "carry":
            carry_body[op] = program.inner_scopes[owner][1]
    is_argument = np.zeros(program.op_count, np.bool_)
    is_argument[program.value_op[program.arguments]] = True
    end, twin = np.array([s.end for s in program.scopes], np.int32), np.arange(len(program.scopes), dtype=np.int32)
    for inner in program.inner_scopes.values():
        if program.scopes[inner[0]].kind == "condition":
            end[inner[0]], twin[inner[0]] = end[inner[1]], inner[1]
    constant, op_class = costs["is_constant"][spec], costs["op_class"][spec]
    gradients = table_gradients(program) if chip.is_xla_tpu else []
    updates = added_updates(program, op_class == UPDATE, chip.is_xla_tpu, set(gradients))
    inside, sums = updates.scatters, updates.added >= 0
    op_class = np.where(inside, ELEMENTWISE, np.where(sums, UPDATE, op_class)).astype(np.int8)
    narrows = costs["narrows"][spec]
    exponential = softmax_rows(program, op_class, costs["weight"][spec], chip.is_xla_tpu)
    places = output_places(program)
    is_donated, is_output = np.zeros(program.value_count, np.bool_), np.zeros(program.value_count, np.bool_)
    is_donated[places.argument[places.argument >= 0]] = True
    is_output[program.outputs] = True
    is_view, is_splat = costs["is_view"][spec], constant[program.value_op]
    moves = is_view | ((op_class == ELEMENTWISE) & (costs["weight"][spec] == 0))
    computed = spread_results(program, op_class, moves)
    made_of_splats = np.zeros(program.op_count, np.bool_)
    made_of_splats[program.value_op[is_splat]] = True
    idle = ((costs["weight"] == 0) & (costs["matrix_flop"] == 0))[spec]
    spread, moved = _spread(program, idle & ~is_argument), _spread(program, idle)
    grouped, of_tasks = grouped_convolutions(program), np.zeros(program.op_count, np.bool_)
    of_tasks[list(grouped)] = list(grouped.values())
    filled = filled_stacks(program, op_class == UPDATE) & chip.is_xla_tpu
    structure = ((op_class == FREE) & ~is_view & ~is_argument & ~made_of_splats) | (carry_body >= 0)
    op_class[program.value_op[filled]] = FREE
    carries = np.flatnonzero(carry_body >= 0).astype(np.int32)
    cut = cut_arrays(program, is_argument | structure | (op_class == UPDATE), chip.layout_tile[1])
    behind = behind_reshapes(program, op_class, costs["fuses"][spec], spread)
    certain = cut.multiplied & ~spread[program.value_op] | (cut.laid == BY_PARTS)
    written = (cut.written & ~moved[program.value_op]) | certain | behind.written | computed
    written |= behind.of_parts & tiled
    return ProgramArrays(
        operand_ptr=program.operand_ptr,
        result_ptr=program.result_ptr,
        user_ptr=user_ptr,
        user=user,
        shape=program.value_shape,
        ops=records(
            **{name: costs[name][spec] for name in OP_COLUMNS if name not in LOOKED_AT},
            op_class=op_class,
            fuses=(costs["fuses"][spec] & ~sums) | inside,
            weight=np.where(inside | sums, 0.0, costs["weight"][spec]),
            narrows=narrows,
            changes=updates.changes,
            added=updates.added,
            spreads=costs["spreads"][spec],
            is_argument=is_argument,
            spec=spec.astype(np.int32),
            op_scope=program.op_scope,
            carry_body=carry_body,
            reshapes=behind.reshapes & chip.is_xla_tpu,
            mixes=behind.mixes,
            operands=distinct_operands(program, np.ones(program.value_count, np.bool_)),
            of_tasks=of_tasks,
            made_again=_made_again(program, chip, op_class, costs),
        ),
        specs=records(**{name: column for name, column in costs.items() if name not in OP_COLUMNS}),
        values=records(
            value_op=program.value_op,
            rank=program.value_rank,
            elements=program.value_elements,
            element_bytes=program.element_bytes,
            size_id=program.value_type_id.astype(np.int32),
            is_splat=is_splat & ~filled,
            is_donated=is_donated,
            is_output=is_output,
            exponential=exponential,
            is_written=written & chip.is_xla_tpu,
            laid=cut.laid * chip.is_xla_tpu,
            is_looked_up=_looked_up(program, op_class, costs["takes"][spec]),
        ),
        uses=records(
            operands=program.operands,
            producer=program.value_op[program.operands],
            use_op=program.use_op,
            use_scope=program.use_scope,
            use_position=program.use_position,
        ),
        scopes=records(
            scope_parent=np.array([s.parent for s in program.scopes], np.int32),
            scope_kind=np.array([kinds[s.kind] for s in program.scopes], np.int8),
            scope_start=np.array([s.start for s in program.scopes], np.int32),
            scope_end=end,
            scope_twin=twin,
            scope_trips=program.scope_trips.astype(np.float64),
        ),
        outputs=records(output_value=places.value, output_use=places.use, output_argument=places.argument),
        structure=np.flatnonzero(structure).astype(np.int32),
        carries=carries,
        ended=carries[np.argsort(end[carry_body[carries]], kind="stable")],
        views=np.flatnonzero(is_view).astype(np.int32),
        fences=np.flatnonzero(is_view & ~costs["takes"][spec]).astype(np.int32),
        spread=np.flatnonzero(spread).astype(np.int32),
    )


def _made_again(program: Program, chip: Device, op_class: np.ndarray, costs: dict[str, np.ndarray]) -> np.ndarray:
    """`ProgramArrays.ops.made_again`: nothing without a library."""
    if chip.library is None:
        return np.zeros(program.op_count, np.int8)
    by_op = [costs[name][program.op_spec] for name in ("weight", "is_view", "batches", "behind")]
    return operands_alone(program, op_class, *by_op)


def _looked_up(program: Program, op_class: np.ndarray, takes: np.ndarray) -> np.ndarray:
    """`ProgramArrays.values.is_looked_up`."""
    found, elements = np.zeros(program.value_count, np.bool_), program.value_shape.prod(axis=1)
    for op in np.flatnonzero((op_class == SLICING) & ~takes).tolist():
        value = int(program.operands[program.operand_ptr[op]])
        maker = int(program.value_op[value])
        read = program.operands[program.operand_ptr[maker] : program.operand_ptr[maker + 1]]
        wider = len(read) == 1 and elements[read[0]] == elements[value]
        found[value] = wider and program.element_bytes[read[0]] < program.element_bytes[value]
    return found & (op_class[program.value_op] == ELEMENTWISE)


def _spread(program: Program, idle: np.ndarray) -> np.ndarray:
    """bool[ops]: which of the ops without work read nothing but each other."""
    idle, spread = idle & (np.diff(program.result_ptr) == 1), np.zeros(program.op_count, np.bool_)
    while _find_spread(idle, program.operand_ptr, program.operands, program.value_op, spread):
        pass  # a tied argument reads what comes later
    return spread


@kernel
def _find_spread(
    idle: np.ndarray, operand_ptr: np.ndarray, operands: np.ndarray, value_op: np.ndarray, spread: np.ndarray
) -> bool:
    """Sets spread[op] where all that it reads has it, in the order of the program; True if there was such an op."""
    found = False
    for op in range(idle.shape[0]):
        if idle[op] and not spread[op]:
            alone = True
            for use in range(operand_ptr[op], operand_ptr[op + 1]):
                alone = alone and spread[value_op[operands[use]]]
            spread[op] = alone
            found = found or alone
    return found
