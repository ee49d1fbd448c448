"""The pass `dead_code`: ops that neither an output nor an effect needs are left out of the program.

    def step(w, xs):                                     loss, grad = value_and_grad(...) in a scan over xs
        for m in xs: acc += grad(loss)(w, m)             the loss itself is returned by no one
        return w - acc

    while                                                kept: `acc` leaves it
    carry acc        -> next acc = add ...               kept
    carry total loss -> next total = add ...             left out: it feeds nothing but itself
    reduce (the loss)                                    left out: only the dead carry reads it

An op is live if an output needs it, if it has an effect (a host callback, `has_side_effect = true`), or if a live op
needs it. A live op needs

    its operands           and of a carry or join, the while or case that owns it
    the op around it       the while or case in whose scope it stands
    of a while             its condition
    of a barrier's part    the other parts: what comes after a barrier waits for all that goes into it

So a result of a branch that nobody reads is left out of every branch, and a loop without a live carry or effect is
left out whole. Arguments stay, live or not: they are what the caller passes.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.ops.rule import has_effect
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.program import ROOT, Program, Scope
from autopart.core.ragged import pointers


@register_pass("dead_code")
@dataclass(frozen=True)
class DeadCode(Pass):
    """Leaves dead ops out; ops and values are numbered anew, arguments and outputs keep their order.

    A tag keeps its name where all values that carried it are dead; it then names no value.
    """

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        live = live_ops(program)
        return program if live.all() else kept_ops(program, live)


def live_ops(program: Program) -> np.ndarray:
    """bool[ops]: the op is needed; see the module."""
    effects = np.array([has_effect(spec) for spec in program.specs], np.bool_)[program.op_spec]
    ends = program.value_op[np.array([*program.arguments, *program.outputs], np.int64)]
    roots = np.concatenate([ends, np.flatnonzero(effects)]).astype(np.int64)
    around = np.array([scope.op for scope in program.scopes], np.int64)[program.op_scope]
    also = _also_needed(program)
    live = np.zeros(program.op_count, np.bool_)
    stack = np.empty(program.op_count + 1, np.int64)
    _reach(roots, also, around, program.operand_ptr, program.operands, program.value_op, stack, live)
    return live


def _also_needed(program: Program) -> np.ndarray:
    """int64[ops]: an op that each op needs besides its operands and the op around it, or -1."""
    also = np.full(program.op_count, -1, np.int64)
    for op, owner in program.owners.items():
        also[op] = owner
    for scope in program.scopes:
        if scope.kind == "condition":
            also[scope.op] = scope.end - 1
    for parts in program.barriers:
        also[parts.start : parts.stop] = np.roll(np.arange(parts.start, parts.stop), -1)
    return also


@kernel
def _reach(
    roots: np.ndarray,
    also: np.ndarray,
    around: np.ndarray,
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    value_op: np.ndarray,
    stack: np.ndarray,
    live: np.ndarray,
) -> None:
    """Sets live[op], all False, where the op is one of `roots`, or one that was reached needs it."""
    for root in roots:
        size = _push(root, live, stack, 0)
        while size > 0:
            size -= 1
            op = stack[size]
            size = _push(also[op], live, stack, size)
            size = _push(around[op], live, stack, size)
            for use in range(operand_ptr[op], operand_ptr[op + 1]):
                size = _push(value_op[operands[use]], live, stack, size)


@kernel
def _push(op: int, live: np.ndarray, stack: np.ndarray, size: int) -> int:
    """Marks an op that was not reached yet and puts it on the stack; returns the stack's new size."""
    if op < 0 or live[op]:
        return size
    live[op] = True
    stack[size] = op
    return size + 1


def kept_ops(program: Program, live: np.ndarray) -> Program:
    """The live ops alone; every number that refers to an op, value, scope or spec is replaced by its new one."""
    operands, results = np.diff(program.operand_ptr), np.diff(program.result_ptr)
    op, value = _new_numbers(live), _new_numbers(np.repeat(live, results))
    live_scope = np.array([index == ROOT or live[s.op] for index, s in enumerate(program.scopes)], np.bool_)
    scope = _new_numbers(live_scope)
    is_used = np.bincount(program.op_spec[live], minlength=len(program.specs)) > 0
    used, op_spec = np.flatnonzero(is_used), _new_numbers(is_used)[program.op_spec[live]]
    return replace(
        program,
        specs=[program.specs[s] for s in used.tolist()],
        op_spec=op_spec.astype(np.int32),
        operand_ptr=pointers(operands[live]),
        operands=value[program.operands[np.repeat(live, operands)]].astype(np.int32),
        result_ptr=pointers(results[live]),
        op_scope=scope[program.op_scope[live]].astype(np.int32),
        scopes=[_renumbered(s, op, scope) for s, kept in zip(program.scopes, live_scope, strict=True) if kept],
        arguments=value[program.arguments].tolist(),
        outputs=value[program.outputs].tolist(),
        tags={name: [int(value[v]) for v in of if live[program.value_op[v]]] for name, of in program.tags.items()},
        owners={int(op[part]): int(op[owner]) for part, owner in program.owners.items() if live[part]},
        barriers=[range(int(op[b.start]), int(op[b.stop])) for b in program.barriers if live[b.start]],
        source=None if program.source is None else program.source.kept(live, used.tolist()),
    )


def _new_numbers(live: np.ndarray) -> np.ndarray:
    """int64[n + 1]: how many live things stand before each; that is the new number of a live one, and of the end."""
    return np.concatenate([[0], np.cumsum(live)])


def _renumbered(old: Scope, op: np.ndarray, scope: np.ndarray) -> Scope:
    if old.op < 0:
        return replace(old, end=int(op[old.end]))
    return replace(
        old, op=int(op[old.op]), parent=int(scope[old.parent]), start=int(op[old.start]), end=int(op[old.end])
    )
