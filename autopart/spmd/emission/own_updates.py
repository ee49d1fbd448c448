"""Updates that read what they overwrite, computed before anything is overwritten.

    %v = reshape %x                             a view of %x
    %u = reverse (slice %x)                     reads %x
    %y = dynamic_update_slice %v, %u, ...       XLA computes %u while it writes into %x, in place: it reads rows that
                                                are overwritten already

XLA looks for such readers, but not past views, before the update or behind it; and what is a view depends on local
shapes, as a broadcast to one row does. So an update that depends on its operand becomes an array of its own first: it
is given a layout. Barriers do not help, since XLA's CPU backend drops them before it fuses.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

from autopart.core.doors.jax_internals import ir, row_major
from autopart.core.ops.op_names import op_names
from autopart.core.ops.traits import Elementwise, Reduction, Slicing, Traits, View

UPDATES = ("stablehlo.dynamic_update_slice", "stablehlo.scatter")
_BARRIER = "stablehlo.optimization_barrier"
_ARRAYS_OF_THEIR_OWN = ("stablehlo.while", "stablehlo.if", "stablehlo.case", "stablehlo.custom_call", "func.call")
"""Ops whose results XLA never computes inside another op."""


@functools.cache
def _views() -> frozenset[str]:
    """Ops whose result is their first operand in another shape where it has as many elements; a sort, of one row."""

    def moves(traits: Traits) -> bool:
        return isinstance(traits, View | Slicing | Reduction) or (isinstance(traits, Elementwise) and not traits.weight)

    return op_names(moves) | {"stablehlo.sort"}


def settle_own_updates(updates: Sequence[ir.Operation]) -> None:
    """Makes arrays of the updates that read the operand they update; each op is of a kind in `UPDATES`."""
    for op in updates:
        arrays = 1 if op.name == UPDATES[0] else (len(op.operands) - 1) // 2
        first = 1 if op.name == UPDATES[0] else arrays + 1
        bases = [_base(op.operands[i]) for i in range(arrays)]
        if not any(_is_read_twice(base) for base in bases):
            continue
        roots = set(map(_root, bases))
        for i in range(first, first + arrays):
            update = op.operands[i]
            if _elements(update) > 1 and _depends(update, roots):
                with ir.InsertionPoint(op), op.location:
                    op.operands[i] = row_major(update)


def _elements(value: ir.Value) -> int:
    return math.prod(ir.RankedTensorType(value.type).shape)


def _seen_through(value: ir.Value) -> ir.Value | None:
    """The value that this one is a view of, if it is one."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    if op.name == _BARRIER:
        return op.operands[ir.OpResult(value).result_number]
    if len(op.operands) and op.name in _views() and _elements(op.operands[0]) == _elements(value):
        return op.operands[0]
    return None


def _base(value: ir.Value) -> ir.Value:
    """What is behind the views of a value, in its own region."""
    while (behind := _seen_through(value)) is not None:
        value = behind
    return value


def _root(value: ir.Value) -> ir.Value:
    """What is behind the views of a value; for what a loop carries, what it begins with."""
    value = _base(value)
    while isinstance(value.owner, ir.Block):
        argument = ir.BlockArgument(value)
        loop = argument.owner.owner.operation
        if loop.name != "stablehlo.while":
            break
        value = _base(loop.operands[argument.arg_number])
    return value


def _reads(value: ir.Value) -> Iterator[ir.Operation]:
    """The ops that read a value or its views, as often as they do, in its own region."""
    todo = [value]
    while todo:
        value = todo.pop()
        for use in value.uses:
            reader = use.owner.operation
            view = reader.results[use.operand_number if reader.name == _BARRIER else 0] if len(reader.results) else None
            behind = None if view is None else _seen_through(view)
            if view is not None and behind is not None and behind == value:
                todo.append(view)
            else:
                yield reader


def _is_read_twice(base: ir.Value) -> bool:
    """True if something besides one update may read the value."""
    if len(list(itertools.islice(_reads(base), 2))) > 1:
        return True
    if not isinstance(base.owner, ir.Block) or base.owner.owner.operation.name != "stablehlo.while":
        return False
    initial = [_root(operand) for operand in base.owner.owner.operation.operands]
    return initial.count(_root(base)) > 1


def _depends(value: ir.Value, roots: set[ir.Value]) -> bool:
    """True if the value is computed from one of the roots, by ops that XLA may compute inside another."""
    todo, seen = [value], set()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        if _root(value) in roots:
            return True
        if not isinstance(value.owner, ir.Block) and value.owner.operation.name not in _ARRAYS_OF_THEIR_OWN:
            todo += value.owner.operation.operands
    return False
