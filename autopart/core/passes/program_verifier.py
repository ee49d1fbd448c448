"""Is a program one that the rest of autopart may trust? Kernels index its arrays without looking.

arrays       one entry per op; pointers from 0 on, never falling; as many operands and results as the spec says
numbers      specs, scopes and operands that exist; an operand has the type that its op reads
scopes       `verify_scopes.py`: nested, in the order of their numbers, each op in the innermost one around it
structure    `verify_scopes.py`: conditions, carries, joins and barriers stand where their owners say
ends         arguments first, one op each; a tied argument reads its output and another nothing; names for all
dominance    an operand is defined before it is read, in a scope around the reader's
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autopart.base.errors import ProgramError
from autopart.base.jit.kernels import kernel
from autopart.core.passes.verify_scopes import scope_problems, structure_problems
from autopart.core.program import ROOT, Program


class InvalidProgramError(ProgramError):
    """A program that breaks an invariant of `Program`: a mistake in a pass, or in the importer."""


def verify_program(program: Program) -> None:
    """Raises `InvalidProgramError` with the first thing that is wrong."""
    for look in _CHECKS:
        for problem in look(program):
            raise InvalidProgramError(f"the program is not valid: {problem}")


def _array_problems(program: Program) -> Iterator[str]:
    ops = len(program.op_spec)
    if len(program.op_scope) != ops:
        yield f"op_scope has {len(program.op_scope)} entries for {ops} ops"
    for name, pointer in (("operand_ptr", program.operand_ptr), ("result_ptr", program.result_ptr)):
        if len(pointer) != ops + 1:
            yield f"{name} has {len(pointer)} entries for {ops} ops"
        elif pointer[0] != 0 or (np.diff(pointer) < 0).any():
            yield f"{name} does not rise from 0"
    if program.operand_ptr[-1] != len(program.operands):
        yield f"operand_ptr ends at {program.operand_ptr[-1]} of {len(program.operands)} operands"
    yield from _outside("op_spec", program.op_spec, len(program.specs))
    yield from _outside("op_scope", program.op_scope, len(program.scopes))
    yield from _outside("operands", program.operands, program.value_count)


def _outside(name: str, numbers: np.ndarray, count: int) -> Iterator[str]:
    wrong = np.flatnonzero((numbers < 0) | (numbers >= count))
    if len(wrong):
        yield f"{name}[{wrong[0]}] is {numbers[wrong[0]]}, of {count}"


def _spec_problems(program: Program) -> Iterator[str]:
    for name, pointer, sizes in (
        ("operands", program.operand_ptr, [len(s.operands) for s in program.specs]),
        ("results", program.result_ptr, [len(s.results) for s in program.specs]),
    ):
        wrong = np.flatnonzero(np.diff(pointer) != np.array(sizes, np.int64)[program.op_spec])
        if len(wrong):
            op = int(wrong[0])
            yield f"op {op} ({program.spec(op).kind}) has {pointer[op + 1] - pointer[op]} {name}, unlike its spec"
    source = program.source
    if source is not None and (source.op_count, len(source.representatives)) != (program.op_count, len(program.specs)):
        yield f"its source is of {source.op_count} ops and {len(source.representatives)} specs"


def _type_problems(program: Program) -> Iterator[str]:
    numbers: dict[object, int] = {}

    def rows(of: list[tuple[object, ...]]) -> tuple[np.ndarray, np.ndarray]:
        flat = [numbers.setdefault(t, len(numbers)) for types in of for t in types]
        return np.cumsum([0, *map(len, of)]), np.array(flat, np.int64)

    first_read, reads = rows([s.operands for s in program.specs])
    first_made, makes = rows([s.results for s in program.specs])
    wrong = _first_of_another_type(
        program.op_spec, program.operand_ptr, program.operands, program.result_ptr, program.value_op,
        first_read, reads, first_made, makes,
    )  # fmt: skip
    if wrong >= 0:
        op, value = int(program.use_op[wrong]), int(program.operands[wrong])
        yield f"op {op} ({program.spec(op).kind}) reads %{value}, which is {program.type_of(value)}, as another type"


@kernel
def _first_of_another_type(
    op_spec: np.ndarray,
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    result_ptr: np.ndarray,
    value_op: np.ndarray,
    first_read: np.ndarray,
    reads: np.ndarray,
    first_made: np.ndarray,
    makes: np.ndarray,
) -> int:
    """The first use that reads a value as what it is not, or -1; spec s reads types `reads[first_read[s]:]`, and makes
    `makes[first_made[s]:]`."""
    for op in range(op_spec.shape[0]):
        for use in range(operand_ptr[op], operand_ptr[op + 1]):
            value = operands[use]
            maker = value_op[value]
            made = makes[first_made[op_spec[maker]] + value - result_ptr[maker]]
            if reads[first_read[op_spec[op]] + use - operand_ptr[op]] != made:
                return use
    return -1


def _end_problems(program: Program) -> Iterator[str]:
    count, kinds = len(program.arguments), [s.kind for s in program.specs]
    is_argument = np.array([kind == "argument" for kind in kinds], np.bool_)[program.op_spec]
    if program.arguments != list(range(count)) or not is_argument[:count].all() or is_argument[count:].any():
        yield "the arguments are not its first ops, one result each"
        return
    for what, names, of in (
        ("argument", program.argument_names, count),
        ("output", program.output_names, len(program.outputs)),
    ):
        if len(names) != of:
            yield f"{len(names)} {what} names for {of}"
    if len(set(program.argument_names)) != count:
        yield "two arguments have one name"
    yield from _outside("outputs", np.array(program.outputs, np.int64), program.value_count)
    yield from _outside("donated", np.array(sorted(program.donated), np.int64), count)
    yield from _tie_problems(program)
    is_tag = np.array([kind == "tag" for kind in kinds], np.bool_)
    for name, values in program.tags.items():
        yield from _outside(f"tags[{name!r}]", np.array(values, np.int64), program.value_count)
        if not is_tag[program.op_spec[program.value_op[np.array(values, np.int64)]]].all():
            yield f"tag {name!r} names a value that carries none"


def _tie_problems(program: Program) -> Iterator[str]:
    tied = {argument: output for output, argument in program.ties.items()}
    if len(tied) != len(program.ties):
        yield "an argument is tied twice"
    for argument in range(len(program.arguments)):
        output = tied.get(argument)
        wanted = [] if output is None else program.outputs[output : output + 1]
        if program.operands_of(argument).tolist() != wanted:
            yield f"argument {argument} does not read the output that it is tied to, and nothing else"


def _dominance_problems(program: Program) -> Iterator[str]:
    """Operands and outputs; a carry's or join's are read at the end of the body or branch, a tied one at the very end.

    A carry's first result is the value inside its loop, and is read there alone; its second is the value after it.
    """
    outputs = np.array(program.outputs, np.int32)
    values = np.concatenate([program.operands, outputs], dtype=np.int32)
    position = np.concatenate([program.use_position, np.full_like(outputs, program.op_count)], dtype=np.int32)
    scope = np.concatenate([program.use_scope, np.full_like(outputs, ROOT)], dtype=np.int32)
    earliest, latest = program.value_op + 1, np.full(program.value_count, program.op_count, np.int32)
    never_in = np.full(program.value_count, -1, np.int32)
    for carry, loop in program.owners.items():
        if program.spec(carry).kind == "carry":
            inside, after = program.results_of(carry)
            earliest[after] = latest[inside] = program.scopes[program.inner_scopes[loop][1]].end
            never_in[inside] = program.op_scope[carry]
    parent = np.array([max(s.parent, ROOT) for s in program.scopes], np.int32)
    of_values = program.value_op, program.op_scope, earliest, latest, never_in
    wrong = _first_undefined(values, position, scope, *of_values, parent)
    if wrong >= 0:
        reader = f"op {program.use_op[wrong]}" if wrong < len(program.operands) else "an output"
        yield f"{reader} reads %{values[wrong]}, which is not defined there"


@kernel
def _first_undefined(
    values: np.ndarray,
    position: np.ndarray,
    scope: np.ndarray,
    value_op: np.ndarray,
    op_scope: np.ndarray,
    earliest: np.ndarray,
    latest: np.ndarray,
    never_in: np.ndarray,
    parent: np.ndarray,
) -> int:
    """The first of some uses, `values` read at a `position` in a `scope`, of what is not defined there, or -1.

    earliest, latest, never_in   of each value: from where and up to where it may be read, and in which scope it may not
    """
    for use in range(values.shape[0]):
        value, at = values[use], scope[use]
        around = op_scope[value_op[value]]
        while at > around:
            at = parent[at]
        early = position[use] < earliest[value] or position[use] > latest[value]
        if early or at != around or never_in[value] == scope[use]:
            return use
    return -1


_CHECKS = (
    _array_problems,
    _spec_problems,
    _type_problems,
    scope_problems,
    structure_problems,
    _end_problems,
    _dominance_problems,
)
"""In this order: each relies on those before it."""
