"""Which early results are kept for late uses, as a user says it.

    "matmuls"            results of matmuls, convolutions and whatever is a kernel of its own
    "blocks"             what enters each block, and the last block whole: see `blocks.py`
    "nothing"            nothing but arguments, which are there anyway
    "attention_out"      values that carry this tag
    "*/attention/*"      results of ops under scopes that match: names of functions and of `jax.named_scope`
    "tanh f32[64,32]"    results of ops of this kind and type, in every layer that has them
    f(op, bytes, flop)   results of ops for which it is true: `op` an `ap.OpSpec`, with kind, attributes and types

Several may stand in a list: what any of them keeps is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from autopart.base.errors import ArgumentError, UnknownNameError, closest
from autopart.base.name_patterns import matches
from autopart.core.doors.user_function import called, name_of
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Convolution, Matmul, Opaque, work
from autopart.core.program import Program

Policy = str | Callable[[OpSpec, float, float], bool]
"""What says which results are kept."""

POLICIES = ("blocks", "matmuls", "nothing")
"""The policies that have names; any other name is a tag, or a pattern of scopes."""

_TRANSFORMED = re.compile(r"\b\w+\(|\)")
"""What jax writes around a scope that it has transformed: jvp(attention)."""


def kept_ops(program: Program, keep: tuple[Policy, ...]) -> np.ndarray:
    """bool[ops]: a policy says that the op's results are kept. "blocks" says nothing about single ops.

    Constants, and scalars made wider, are never kept: they are computed anew for each use.
    Raises `UnknownNameError` for a name that nothing has, and `ArgumentError` for that of an argument.
    """
    kept = np.zeros(program.op_count, np.bool_)
    for policy in keep:
        if callable(policy):
            kept |= _by_spec(program, lambda spec, policy=policy: bool(_asked(policy, spec)))
        elif policy == "matmuls":
            kept |= _by_spec(program, lambda spec: isinstance(traits_of(spec), Matmul | Convolution | Opaque))
        elif policy not in POLICIES:
            kept |= _named(program, policy)
    return kept & ~_by_spec(
        program, lambda spec: traits_of(spec).cloned_per_use and not any(t.shape for t in spec.operands)
    )


def _asked(policy: Callable[..., Any], spec: OpSpec) -> Any:
    return called(ArgumentError, f"ap.Recompute: {name_of(policy)}", policy, spec, _bytes(spec), _flop(spec))


def _by_spec(program: Program, says: Callable[[OpSpec], bool]) -> np.ndarray:
    return np.array([says(spec) for spec in program.specs], np.bool_)[program.op_spec]


def _bytes(spec: OpSpec) -> float:
    return sum(result.bytes for result in spec.results)


def _flop(spec: OpSpec) -> float:
    known = work(traits_of(spec), spec)
    return 0.0 if known is None else known.matrix_flop + known.vector_flop


def result_name(spec: OpSpec) -> str:
    """The kind of an op and the type of its first result: what its results are called as a policy."""
    return f"{spec.kind} {spec.results[0]}"


def _named(program: Program, name: str) -> np.ndarray:
    """bool[ops]: the ops that leave values with this tag or results of this name, or stand under scopes of it."""
    found = np.zeros(program.op_count, np.bool_)
    if name in program.tags:
        tagged = program.value_op[np.array(program.tags[name], np.int64)]
        found[tagged] = found[program.value_op[program.operands[program.operand_ptr[tagged]]]] = True
        return found
    found = _by_spec(program, lambda spec: bool(spec.results) and result_name(spec) == name)
    if found.any():
        return found
    scopes = list(_scopes(program))
    for says in (lambda scope: f"/{name}/" in scope, lambda scope: matches(scope, f"*/{name}/*")):
        found[[op for op, scope in scopes if says(f"//{scope}//")]] = True
        if found.any():
            return found
    if any(matches(argument, name) for argument in program.argument_names):
        raise ArgumentError(
            f"ap.Recompute: {name!r} is an argument of the function",
            why="arguments are there for the whole step: nothing is saved by computing them again, and none can be",
            hint='name what is computed from it: "blocks", "matmuls", a tag, a pattern of scopes',
        )
    known = {part for _, scope in scopes for part in scope.split("/")}
    if " " in name:
        known = {result_name(spec) for spec in program.specs if spec.results}
    raise UnknownNameError(
        f"ap.Recompute: no policy, tag, result or scope is called {name!r}",
        hint=closest(name, [*POLICIES, *program.tags, *sorted(known)]),
    )


def _scopes(program: Program) -> Iterator[tuple[int, str]]:
    """Each op with the names of the scopes around it, as they were before jax transformed them."""
    for op in range(len(program.arguments), program.op_count):
        where = program.where(op)
        if where:
            yield op, _TRANSFORMED.sub("", where.rpartition(" ")[2])
