"""Do the scopes of a program nest, and do structural ops stand where their owners say?

op   4  while                       scope 1  condition  [6, 8)    of op 4, in scope 0
     5  carry                       scope 2  body       [8, 11)   of op 4, in scope 0
     6    compare
     7    condition                 the condition ends in its `condition` op
     8    ...                       carries stand between their while and its condition
    11  case, 12 ..., 14 join       joins stand after the last branch
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autopart.core.program import ROOT, Program, Scope

_OWNER = {"carry": "while", "join": "case"}


def scope_problems(program: Program) -> Iterator[str]:
    """What is wrong with the scopes themselves, and with who owns them."""
    scopes = program.scopes
    root = scopes[ROOT] if scopes else None
    if root is None or (root.kind, root.op, root.parent, root.start, root.end) != (
        "program",
        -1,
        -1,
        0,
        program.op_count,
    ):
        yield f"scope 0 is {root}, not the whole program"
        return
    innermost = np.zeros(program.op_count, np.int64)
    free_from = {ROOT: 0}
    for number, scope in enumerate(scopes[1:], 1):
        parent = scopes[scope.parent] if 0 <= scope.parent < number else None
        if parent is None or not parent.start <= scope.start <= scope.end <= parent.end:
            yield f"scope {number} ({scope.kind}) is not within a scope before it"
            return
        if scope.start < max(free_from[scope.parent], scope.op + 1):
            yield f"scope {number} ({scope.kind}) begins before its op, or in the scope before it"
        if scope.trips < 0:
            yield f"scope {number} runs {scope.trips} times"
        free_from[scope.parent], free_from[number] = scope.end, scope.start
        innermost[scope.start : scope.end] = number
    wrong = np.flatnonzero(innermost != program.op_scope)
    if len(wrong):
        yield f"op {wrong[0]} stands in scope {innermost[wrong[0]]}, and op_scope says {program.op_scope[wrong[0]]}"


def structure_problems(program: Program) -> Iterator[str]:
    """What is wrong with loops, branches and barriers."""
    yield from _region_problems(program)
    owned = _ops_of(program, "carry", "join")
    if sorted(program.owners) != owned:
        yield f"owners are given for ops {sorted(program.owners)[:8]}, and the carries and joins are {owned[:8]}"
        return
    for op, owner in program.owners.items():
        yield from _owned_problems(program, op, owner)
    yield from _barrier_problems(program)


def _ops_of(program: Program, *kinds: str) -> list[int]:
    wanted = np.array([spec.kind in kinds for spec in program.specs], np.bool_)
    return np.flatnonzero(wanted[program.op_spec]).tolist()


def _region_problems(program: Program) -> Iterator[str]:
    for owner in sorted({*_ops_of(program, "while", "case"), *program.inner_scopes}):
        kind = program.spec(owner).kind if 0 <= owner < program.op_count else "no op"
        inner = [program.scopes[n] for n in program.inner_scopes.get(owner, [])]
        kinds = [scope.kind for scope in inner]
        if not (kinds == ["condition", "body"] if kind == "while" else kind == "case" and {*kinds} == {"branch"}):
            yield f"op {owner} ({kind}) owns {', '.join(kinds) or 'no scope'}"
        elif any(scope.parent != program.op_scope[owner] for scope in inner):
            yield f"a scope of op {owner} is not in the op's own scope"
        elif kind == "while" and not _ends_in_condition(program, inner[0]):
            yield f"the condition of op {owner} does not end in a condition op"


def _ends_in_condition(program: Program, scope: Scope) -> bool:
    return scope.start < scope.end and program.spec(scope.end - 1).kind == "condition"


def _owned_problems(program: Program, op: int, owner: int) -> Iterator[str]:
    kind = program.spec(op).kind
    inner = [program.scopes[n] for n in program.inner_scopes.get(owner, [])]
    if not inner or program.spec(owner).kind != _OWNER[kind]:
        yield f"op {op} ({kind}) has op {owner} as its {_OWNER[kind]}"
    elif program.op_scope[op] != program.op_scope[owner]:
        yield f"op {op} ({kind}) is in another scope than op {owner}, its {_OWNER[kind]}"
    elif kind == "carry" and not owner < op < inner[0].start:
        yield f"op {op} (carry) does not stand between op {owner} and its condition"
    elif kind == "join" and op < inner[-1].end:
        yield f"op {op} (join) stands before the end of op {owner}'s branches"
    elif len(program.operands_of(op)) != len(inner):
        yield f"op {op} ({kind}) reads {len(program.operands_of(op))} values, for {len(inner)} regions"


def _barrier_problems(program: Program) -> Iterator[str]:
    parts = [op for barrier in program.barriers for op in barrier]
    if parts != _ops_of(program, "optimization_barrier"):
        yield "the barriers are not its optimization_barrier ops, in order"
    elif any(len(set(program.op_scope[b.start : b.stop].tolist())) > 1 for b in program.barriers):
        yield "the parts of a barrier are in several scopes"
