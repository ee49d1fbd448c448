"""The pass `updated_stacks`: stacks of which a scan takes slices and gives back others are updated in place.

    ys[i] = f(xs[i])                 xs donated, or carried by a loop around it; ys their next value: zeros to begin
                                     with, written row by row
    -> carried c, that begins as xs: c[i] = f(c[i])

    c[i] = update(c[i], k, at)       a row is read, changed in a part, and written back whole
    -> update(c, k, (i, at))         what reads the row reads it in c

Caches of layers, states of environments, tables of optimizers: there is one array where there were two, and the loop
writes what changes. A row is read in its own turn alone, before it is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass


@register_pass("updated_stacks")
@dataclass(frozen=True)
class UpdatedStacks(PatternPass):
    """Stacks of which a scan takes slices and gives back others are updated in place."""

    roots = ("carry", "dynamic_update_slice")
    again = False

    def rewrite(self, at: PatternRewriter, op: int) -> int | None:
        """See `PatternPass.rewrite`."""
        if at.spec(op).kind == "carry":
            _begin_as_last(at, op)
            return None
        return _updated_in_part(at, op)


def _begin_as_last(at: PatternRewriter, op: int) -> None:
    """Has a carry of zeros, all of whose rows are written, begin as the stack whose next value it is."""
    program, (initial, following) = at.rewriting.before, at.operands(op)
    inside, after = at.rewriting.results(op)
    update, last = at.maker(following), _last(at, after)
    if last is None or at.splat(initial) is None or at.type_of(last) != at.type_of(inside):
        return
    if at.spec(update).kind != "dynamic_update_slice" or at.rewriting.readers(inside) != [update]:
        return
    _, row, index, *others = at.operands(update)
    if not _is_row(at, row, inside) or not _are_zero(at, others) or not _counts(at, index, program.owners[op], inside):
        return
    uses = at.rewriting.uses(last)
    if uses and all(_takes_row(at, at.rewriting.user(use), last, index) for use in uses):
        for use in uses:
            at.rewriting.read(use, inside)
        at.rewriting.read(int(program.operand_ptr[op]), last)


def _last(at: PatternRewriter, value: int) -> int | None:
    """The value that is no more where this one is its next: of a donated argument, or of a loop around it."""
    program, readers = at.rewriting.before, at.rewriting.readers(value)
    place = program.ties.get(program.output_place.get(value, -1), -1)
    if place in program.donated:
        return program.arguments[place]
    if len(readers) == 1 and at.spec(readers[0]).kind == "carry" and at.operands(readers[0])[1] == value:
        return at.rewriting.results(readers[0])[0]
    return None


def _counts(at: PatternRewriter, index: int, loop: int, stack: int) -> bool:
    """True for a number that a loop counts from 0 on, once for each row of a stack."""
    program, op = at.rewriting.before, at.maker(index)
    if at.spec(op).kind != "carry" or program.owners.get(op) != loop or index != at.rewriting.results(op)[0]:
        return False
    first, following = at.operands(op)
    added = at.spec(at.maker(following)).kind == "add" and at.operands(at.maker(following))
    scope = program.scopes[program.inner_scopes[loop][1]]
    is_whole = scope.trips_known and scope.trips == at.type_of(stack).shape[0]
    return bool(is_whole and added and added[0] == index and at.splat(added[1]) == 1 and at.splat(first) == 0)


def _is_row(at: PatternRewriter, row: int, stack: int) -> bool:
    return at.type_of(row).shape == (1, *at.type_of(stack).shape[1:])


def _are_zero(at: PatternRewriter, starts: list[int]) -> bool:
    return all(at.splat(start) == 0 for start in starts)


def _takes_row(at: PatternRewriter, op: int, stack: int, index: int) -> bool:
    """True for an op that takes row `index` of a stack."""
    spec = at.spec(op)
    if spec.kind != "dynamic_slice" or not _is_row(at, at.rewriting.results(op)[0], stack):
        return False
    read, place, *others = at.operands(op)
    return read == stack and place == index and _are_zero(at, others)


def _updated_in_part(at: PatternRewriter, op: int) -> int | None:
    """An update of a part of a row, where the row was read, updated so and written back."""
    stack, row, index, *others = at.operands(op)
    written = _is_row(at, row, stack) and _are_zero(at, others) and at.made_by(row, "broadcast_in_dim", "reshape")
    if not written:
        return None
    [whole] = at.operands(at.maker(row))
    if at.type_of(whole).shape != at.type_of(stack).shape[1:] or at.rewriting.is_seen(whole):
        return None
    parts, before = list[int](), whole
    while at.made_by(before, "dynamic_update_slice") is not None:
        parts.append(at.maker(before))
        before = at.operands(parts[-1])[0]
    taken = at.maker(before)
    starts = [start for part in parts for start in at.operands(part)[2:]]
    if not parts or any(at.type_of(start) != at.type_of(index) for start in starts):
        return None
    if at.made_by(before, "reshape") is None or not _takes_row(at, at.maker(at.operands(taken)[0]), stack, index):
        return None
    with at.at(at.place_of(parts[0])):
        made = stack
        for part in reversed(parts):
            _, update, *starts = at.operands(part)
            made = at.dynamic_update_slice(made, at.reshape(update, (1, *at.type_of(update).shape)), [index, *starts])
        zero = at.constant(0, at.type_of(index).dtype)
        again = at.dynamic_slice(made, [index, *[zero] * len(others)], at.type_of(row).shape)
        at.replace(parts[0], at.reshape(again, at.type_of(whole).shape))
    return made
