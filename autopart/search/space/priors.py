"""What priors are made of, before anything has been costed: the flop and bytes of each op and value.

    tile<batch/inputs, 0, "batch">   reaches 98 % of the flop, 61 % of the bytes     prior (0.98 + 0.61) * 15/16
    tile<params/*/up, 1, "model">    reaches 31 % of the flop, 22 % of the bytes     prior (0.31 + 0.22) * 1/2

Here stand the shares; `probe.py` finds what a decision reaches.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.layout import LAST_TILE
from autopart.core.op import OpSpec
from autopart.core.ops.rule import mappings_of, traits_of
from autopart.core.ops.traits import Elementwise, Slicing
from autopart.core.program import ROOT, Program
from autopart.core.ragged import entries_of
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE, is_matrix_op, looks_up, matrix_flop, op_class
from autopart.search.space.next_values import next_values

MIN_SHARE = 1e-3
"""Share of bytes and flop below which a value group is not worth a decision of its own: propagation reaches biases."""


def op_flop(program: Program) -> np.ndarray:
    """float64[ops]: flop of matrix ops, result elements of others, times the trips of their scope."""
    per_spec = [matrix_flop(s) or float(sum(math.prod(r.shape) for r in s.results)) for s in program.specs]
    return np.array(per_spec)[program.op_spec] * program.scope_trips[program.op_scope]


def value_bytes(program: Program) -> np.ndarray:
    """float64[values]: bytes of each whole value times the trips of its scope."""
    whole = program.value_shape.prod(axis=1) * program.element_bytes
    return whole * program.scope_trips[program.op_scope[program.value_op]]


def updated_arguments(program: Program, share: float = 0.999) -> np.ndarray:
    """Arguments whose next value the program returns: parameters and optimizer state.

    Only the largest, which hold `share` of the bytes: a bias that is sharded saves nothing and costs a collective. Of
    arrays of one size all or none, so that layers are treated alike.
    """
    values = np.array(
        [program.arguments[position] for position in sorted(set(next_values(program).values()))], np.int32
    )
    in_bytes = value_bytes(program)[values]
    order = np.argsort(-in_bytes, kind="stable")
    before = np.cumsum(in_bytes[order]) - in_bytes[order]
    large = order[before < share * in_bytes.sum()]
    return np.sort(values[in_bytes >= in_bytes[large].min()]) if len(large) else values[:0]


MANY_HOPS = 12
"""Ops of one operand behind which an array is still the same one: cast, transposed, sliced, reshaped, and again."""


def read_by_matrix_ops(program: Program, hops: int = MANY_HOPS) -> np.ndarray:
    """bool[values]: a matrix op, or a look-up, reads the value directly or behind at most `hops` one-operand ops.

    These read parameters; what is updated but read by none of them is optimizer state.
    """
    heavy, read = matrix_ops(program) | look_ups(program), np.zeros(program.value_count, np.bool_)
    read[program.operands[heavy[program.use_op]]] = True
    return _read_behind(program, read, hops)


def learned(program: Program, hops: int = 4) -> np.ndarray:
    """int32[n]: arguments that an optimizer updates, by an elementwise op of themselves, as p + update is.

    A cache is written into. Both the next value and the argument may stand behind `hops` ops of one operand.
    """
    arguments, found = frozenset(program.arguments), list[int]()
    for result, position in next_values(program).items():
        last = program.value_op[_behind(program, program.outputs[result], arguments, hops)]
        if op_class(program.spec(last)) == ELEMENTWISE:
            read = {_behind(program, v, arguments, hops) for v in program.operands_of(last).tolist()}
            found += read & {program.arguments[position]}
    return np.array(sorted(found), np.int32)


def _behind(program: Program, value: int, arguments: frozenset[int], hops: int) -> int:
    """What at most so many ops of one operand pass on."""
    for _ in range(hops):
        operands = program.operands_of(program.value_op[value])
        if value in arguments or len(operands) != 1:
            break
        value = int(operands[0])
    return value


def looked_up(program: Program, hops: int = MANY_HOPS) -> np.ndarray:
    """bool[values]: a look-up reads rows of the value, directly or behind at most `hops` one-operand ops."""
    read = np.zeros(program.value_count, np.bool_)
    read[program.operands[program.operand_ptr[:-1][look_ups(program)]]] = True
    return _read_behind(program, read, hops)


def walked_dims(program: Program, arguments: np.ndarray) -> dict[tuple[int, ...], frozenset[int]]:
    """Shape -> dims of arguments of that shape from which one layer after the other is taken.

    By ops in loops, at places known at run time, or by slices of one row each. Arguments may be cast or transposed
    before: layers stacked on dim 1 are walked along dim 1.
    """
    found: dict[tuple[int, ...], set[int]] = {}
    passed_on = {number: dims for number, spec in enumerate(program.specs) if (dims := _dims_passed_on(spec))}
    for value in arguments.tolist():
        shape, rows = program.type_of(value).shape, Counter[int]()
        for op, dims in _readers_of_dims(program, value, passed_on):
            spec = program.spec(op)
            if not _slices(spec):
                continue
            whole, part = spec.operands[0].shape, spec.results[0].shape
            cut = [dims[d] for d, (n, m) in enumerate(zip(whole, part, strict=True)) if m < n and d in dims]
            if traits_of(spec).by_index and program.op_scope[op] != ROOT:
                found.setdefault(shape, set()).update(cut)
            elif len(cut) == 1 and math.prod(part) * shape[cut[0]] == math.prod(whole):
                rows.update(cut)
        found.setdefault(shape, set()).update(dim for dim, count in rows.items() if count > 1)
    return {shape: frozenset(dims) for shape, dims in found.items() if dims}


def _readers_of_dims(
    program: Program, value: int, passed_on: Mapping[int, Mapping[int, int]]
) -> Iterator[tuple[int, Mapping[int, int]]]:
    """(op, dim of what it reads -> dim of `value`) of the readers of a value, and of what only passes its dims on."""
    pointer, user = program.users
    waiting = [(value, {dim: dim for dim in range(int(program.value_rank[value]))}, 0)]
    while waiting:
        read, dims, hops = waiting.pop()
        for op in dict.fromkeys(program.use_op[user[pointer[read] : pointer[read + 1]]].tolist()):
            yield op, dims
            further = passed_on.get(int(program.op_spec[op]))
            if further is not None and hops < MANY_HOPS:
                behind = {to: dims[of] for to, of in further.items() if of in dims}
                waiting.append((int(program.result_ptr[op]), behind, hops + 1))


def _dims_passed_on(spec: OpSpec) -> Mapping[int, int]:
    """Dim of the result -> dim of the operand, of an op of one operand that leaves its size; empty for others."""
    if len(spec.operands) != 1 or len(spec.results) != 1 or spec.kind == "argument":
        return {}
    if math.prod(spec.operands[0].shape) != math.prod(spec.results[0].shape):
        return {}
    tiles = ((m.operands[0], m.results[0]) for m in mappings_of(spec) or ())
    return {to: of for of, to in reversed([*tiles]) if of >= 0 and 0 <= to < LAST_TILE}


def matrix_ops(program: Program) -> np.ndarray:
    """bool[ops]: matmuls and convolutions."""
    return np.array([is_matrix_op(s) for s in program.specs], np.bool_)[program.op_spec]


@kernel
def awaited_by(
    result_ptr: np.ndarray,
    user_ptr: np.ndarray,
    user: np.ndarray,
    use_op: np.ndarray,
    is_matrix: np.ndarray,
    is_argument: np.ndarray,
    out: np.ndarray,
) -> bool:
    """out[op]: a matrix op reads what the op computes, or another such op does. True if that changed an entry.

    One pass from the last op to the first; loops, whose next values flow back, need another. The next value of an
    argument is the next step's.
    """
    changed = False
    for op in range(out.shape[0] - 1, -1, -1):
        if out[op]:
            continue
        for i in range(user_ptr[result_ptr[op]], user_ptr[result_ptr[op + 1]]):
            reader = use_op[user[i]]
            if not is_argument[reader] and (is_matrix[reader] or out[reader]):
                out[op] = True
                changed = True
                break
    return changed


def look_ups(program: Program) -> np.ndarray:
    """bool[ops]: reads of rows of a table at an array of indices."""
    return np.array([looks_up(s) for s in program.specs], np.bool_)[program.op_spec]


def _slices(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    return isinstance(traits, Slicing) and not traits.indexed


def _read_behind(program: Program, read: np.ndarray, hops: int) -> np.ndarray:
    """`read`, and what is read of it behind ops of one operand, slices such as a scan takes of stacked layers, and
    stacks of equal arrays."""
    stacks = np.array([_stacks(s) for s in program.specs], np.bool_)[program.op_spec]
    passes_on = [len(s.results) == 1 and (len(s.operands) == 1 or _slices(s)) for s in program.specs]
    ops = np.flatnonzero(np.array(passes_on, np.bool_)[program.op_spec] | stacks)
    for _ in range(hops):
        through = ops[read[program.result_ptr[ops]]]
        parts = entries_of(program.operand_ptr, through[stacks[through]])
        behind = program.operands[np.append(program.operand_ptr[:-1][through], parts)]
        if read[behind].all():
            break
        read[behind] = True
    return read


def _stacks(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    return isinstance(traits, Elementwise) and traits.joins and len(set(spec.operands)) == 1
