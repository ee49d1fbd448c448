"""Reductions that come last: of the largest arrays, where these are written in place and reduced whole.

    %t = scatter %g, %i, %dy     writes into %g
    %r = all_reduce %t           XLA does not reduce in place what was written in place: there are two tables now
    ...                          parameters beside the table are updated
    -> the updates, and then all_reduce %t behind a barrier with them

XLA's scheduler orders by bytes that are made and freed, which are the same for both orders. But gradients that wait for
their updates lie anywhere, and leave no room for a second table between them. A reduction is moved if each device uses
what it leaves for arithmetic alone, element by element, as an optimizer does, so that nothing large waits for it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from autopart.core.op import TensorType
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Constant, Elementwise, Matmul, Slicing, Update, View
from autopart.core.program import ROOT, Program
from autopart.spmd.device_local import DeviceLocal


class LastReductions(NamedTuple):
    """What comes last, and what comes before it.

    values    are reduced behind a barrier, since no product waits for one
    products  whose smallest operand is behind a barrier -> the place of that operand
    ops       make these values, or depend on them
    outputs   of the program, that depend on none of them
    """

    values: frozenset[int]
    products: dict[int, int]
    ops: frozenset[int]
    outputs: tuple[int, ...]


NONE = LastReductions(frozenset(), {}, frozenset(), ())


def last_reductions(local: DeviceLocal) -> LastReductions:
    """Finds them; `NONE` where there are none, or where there is nothing to do before."""
    program = local.program
    made = [v for v in dict.fromkeys(program.outputs) if program.value_op[v] >= len(program.arguments)]
    largest = max((_bytes(local.local_type(v, int(local.settled[v]))) for v in made), default=math.inf)
    values, ops, products = set[int](), set[int](), dict[int, int]()
    for value, plan in zip(local.at_def.tolist(), local.def_plans, strict=True):
        if [step.kind for step in plan.steps] != ["all_reduce"] or not _is_written_in_place(program, value):
            continue
        if _bytes(local.local_type(value, int(local.native[value]))) >= largest:
            if not (after := _arithmetic_after(program, value)):
                continue
            ops |= after
            if (way := _way_from_product(local, value)) and (place := _smallest_operand(local, way[-1])) >= 0:
                ops |= set(way)
                products[way[-1]] = place
            else:
                values.add(value)
    before = tuple(v for v in made if int(program.value_op[v]) not in ops)
    return LastReductions(frozenset(values), products, frozenset(ops), before) if ops and before else NONE


def _bytes(type_: TensorType) -> float:
    return math.prod(type_.shape) * type_.element_bytes


def _way_from_product(local: DeviceLocal, value: int) -> list[int]:
    """The ops from the one that makes a value back to a product that it adds, each read once."""
    program, op = local.program, int(local.program.value_op[value])
    for added in program.operands_of(op).tolist() if program.spec(op).kind == "add" else []:
        way = []
        while _is_read_once(program, added) and added not in local.at_def:
            way.append(int(program.value_op[added]))
            if isinstance(traits_of(program.spec(way[-1])), Matmul):
                return way
            if not _moves_one_array(program, way[-1]):
                break
            added = int(program.operands_of(way[-1])[0])
    return []


def _moves_one_array(program: Program, op: int) -> bool:
    traits = traits_of(program.spec(op))
    is_view = isinstance(traits, View) and not traits.fence
    moves = is_view or (isinstance(traits, Elementwise) and traits.weight == 0)
    return moves and len(program.operands_of(op)) == 1


def _smallest_operand(local: DeviceLocal, product: int) -> int:
    """The place of a product's smaller operand; -1 if one of them is larger than what it makes."""
    program = local.program
    uses = range(program.operand_ptr[product], program.operand_ptr[product + 1])
    read = [_bytes(local.local_type(int(program.operands[use]), int(local.required[use]))) for use in uses]
    made = program.results_of(product)[0]
    return read.index(min(read)) if max(read) <= _bytes(local.local_type(made, int(local.native[made]))) else -1


def _is_read_once(program: Program, value: int) -> bool:
    pointer, _ = program.users
    return bool(pointer[value + 1] == pointer[value] + 1) and program.op_scope[program.value_op[value]] == ROOT


def _is_written_in_place(program: Program, value: int) -> bool:
    """True for an update of an array, or one to which an array is added: XLA then writes into that one."""
    op = int(program.value_op[value])
    read = [op]
    if program.spec(op).kind == "add":
        read = program.value_op[program.operands_of(op)].tolist()
    return any(_is_update(program, other) for other in read)


def _is_update(program: Program, op: int) -> bool:
    spec = program.spec(op)
    traits = traits_of(spec)
    return isinstance(traits, Update) and not traits.one_per_row(spec)


def _arithmetic_after(program: Program, value: int) -> set[int]:
    """The op that makes a value, and all that depends on it; empty if something of that is more than arithmetic."""
    pointer, users = program.users
    first = int(program.value_op[value])
    if program.op_scope[first] != ROOT:
        return set()
    found, ahead = {first}, [first]
    while ahead:
        for result in program.results_of(ahead.pop()):
            readers = np.unique(program.use_op[users[pointer[result] : pointer[result + 1]]]).tolist()
            for op in readers:
                if op in found or op < len(program.arguments):
                    continue
                if program.op_scope[op] != ROOT or not _is_arithmetic(program, op):
                    return set()
                found.add(op)
                ahead.append(op)
    return found


def _is_arithmetic(program: Program, op: int) -> bool:
    traits = traits_of(program.spec(op))
    return isinstance(traits, Elementwise | Slicing | Constant) or (isinstance(traits, View) and not traits.fence)
