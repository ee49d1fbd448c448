"""What the search for the best place of a reduction reads of a program: its passages, and who can stand for parts.

    %z = constant 0                  identity[%z] has the bit of SUM: on every device, zeros are parts of a sum of zeros
    %s = broadcast %scalar           from_scalars: rather than gather its tiles, every device makes all of it
    while   carry %z, %next          order: the carry is visited where the loop starts, and again where its body ends

Computed once per program, whatever its partitioning.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.op import MUL, SUM, OpSpec, splat_value
from autopart.core.ops.passages import Passage
from autopart.core.ops.rule import passages_of, traits_of
from autopart.core.ops.traits import Convolution, Elementwise, Matmul, Opaque
from autopart.core.program import Program

UNKNOWN_TRIPS = 2
"""How often a loop of unknown length is taken to run at least: a reduction after it is cheaper than one inside."""


class PassageArrays(NamedTuple):
    """A program's passages.

    first[spec]          its passages are first[spec] .. first[spec + 1]
    code[passage]        the reduction; parts[start[passage] + k] is True where operand k is in parts
    rounded[spec]        what passes is rounded otherwise than in the whole
    grows[spec]          its result has more bytes than all that it reads: a sum is reduced before it, unless another
                         joins it behind
    divided[spec]        a kernel whose work must stay divided: what slices it on an axis passes no sum on that axis
    free[spec]           it does no work of its own: to do all of it on each device costs nothing
    reverses[spec]       it turns dims around, which costs nothing where windows[spec] is True for what reads it
    is_carry[op]         True for what a loop carries; carries: these ops
    leaves[spec]         a value leaves a loop or a branch through it
    from_scalars[op]     True if it reads no array
    identity[value]      bit (code - SUM) is set where it is known to change nothing in a reduction by `code`
    scope[op], runs      the scope that an op's results belong to, and how often each scope runs
    element_bytes[value] bytes of one element
    order                ops as they are visited; -1 - op where the body of the loop that owns a carry ends
    """

    first: np.ndarray
    code: np.ndarray
    start: np.ndarray
    parts: np.ndarray
    rounded: np.ndarray
    grows: np.ndarray
    divided: np.ndarray
    free: np.ndarray
    reverses: np.ndarray
    windows: np.ndarray
    is_carry: np.ndarray
    carries: np.ndarray
    leaves: np.ndarray
    from_scalars: np.ndarray
    identity: np.ndarray
    scope: np.ndarray
    runs: np.ndarray
    element_bytes: np.ndarray
    order: np.ndarray


def passage_arrays(program: Program) -> PassageArrays:
    """Collects them; milliseconds for a training step."""
    found = [_passages(spec) for spec in program.specs]
    flat = [passage for passages in found for passage in passages]
    traits = [traits_of(spec) for spec in program.specs]
    first = np.cumsum([0, *map(len, found)]).astype(np.int32)
    code = np.array([p.code for p in flat], np.int64)
    start = np.cumsum([0, *(len(p.parts) for p in flat)]).astype(np.int32)
    parts = np.array([part for p in flat for part in p.parts], np.bool_)
    scalars = np.array([not any(t.shape for t in spec.operands) for spec in program.specs], np.bool_)
    is_argument = np.zeros(program.op_count, np.bool_)
    is_argument[program.value_op[np.array(program.arguments, np.int64)]] = True
    carries = np.array([spec.kind == "carry" for spec in program.specs], np.bool_)[program.op_spec]
    known, identity = (
        np.array([_identity(spec) for spec in program.specs], np.uint8),
        np.zeros(program.value_count, np.uint8),
    )
    keeps = np.array([t.keeps_numbers for t in traits], np.bool_)
    _identities(
        program.op_spec, program.operand_ptr, program.operands, program.result_ptr,
        first, code, start, parts, known, keeps, identity,
    )  # fmt: skip
    return PassageArrays(
        first=first,
        code=code,
        start=start,
        parts=parts,
        rounded=np.array([t.passes_rounded(s) for t, s in zip(traits, program.specs, strict=True)], np.bool_),
        grows=np.array([_grows(spec) for spec in program.specs], np.bool_),
        divided=np.array([isinstance(t, (Matmul, Convolution, Opaque)) for t in traits], np.bool_),
        free=np.array([not isinstance(t, Elementwise) or t.weight == 0 for t in traits], np.bool_),
        reverses=np.array([isinstance(t, Elementwise) and t.reverses for t in traits], np.bool_),
        windows=np.array([isinstance(t, Convolution) for t in traits], np.bool_),
        is_carry=carries,
        carries=np.flatnonzero(carries).astype(np.int32),
        leaves=np.array([spec.kind in ("carry", "join") for spec in program.specs], np.bool_),
        from_scalars=scalars[program.op_spec] & ~is_argument,
        identity=identity,
        scope=program.op_scope,
        runs=_runs(program),
        element_bytes=program.element_bytes,
        order=_order(program, carries),
    )


def _passages(spec: OpSpec) -> tuple[Passage, ...]:
    """Those of ops with one result, and of carries."""
    return passages_of(spec) if len(spec.results) == 1 or spec.kind == "carry" else ()


def _grows(spec: OpSpec) -> bool:
    return sum(t.bytes for t in spec.results) > sum(t.bytes for t in spec.operands)


def _identity(spec: OpSpec) -> int:
    """The reductions, as bits, of which a splat constant is the result and each part: zeros, NaN and infinity, of a
    sum."""
    value = splat_value(spec)
    if value is None:
        return 0
    return int(value == 0 or not np.isfinite(complex(value))) | int(value == 1) << (MUL - SUM)


@kernel
def _identities(
    op_spec: np.ndarray,
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    result_ptr: np.ndarray,
    first: np.ndarray,
    code: np.ndarray,
    start: np.ndarray,
    parts: np.ndarray,
    known: np.ndarray,
    keeps: np.ndarray,
    found: np.ndarray,
) -> None:
    """`identity`: constants, and what passages make of them: parts of which each is an identity make an identity."""
    for op in range(op_spec.shape[0]):
        spec = op_spec[op]
        if result_ptr[op + 1] != result_ptr[op] + 1:
            continue
        bits = found[operands[operand_ptr[op]]] if keeps[spec] else known[spec]
        for passage in range(first[spec], first[spec + 1]):
            bit = 1 << (code[passage] - SUM)
            holds = False
            for use in range(operand_ptr[op], operand_ptr[op + 1]):
                if parts[start[passage] + use - operand_ptr[op]]:
                    holds = found[operands[use]] & bit != 0
                    if not holds:
                        break
            if holds:
                bits |= bit
        found[result_ptr[op]] = bits


def _runs(program: Program) -> np.ndarray:
    """How often each scope runs when the program runs once."""
    runs = np.ones(len(program.scopes))
    for index, scope in enumerate(program.scopes):
        trips = scope.trips if scope.trips_known else max(UNKNOWN_TRIPS, scope.trips)
        runs[index] = trips * (runs[scope.parent] if index else 1)
    return runs


def _order(program: Program, carries: np.ndarray) -> np.ndarray:
    """Ops in program order; each carry once more behind the body of its loop, inner loops first."""
    every = np.arange(program.op_count)
    again = np.flatnonzero(carries)
    ends = [program.scopes[program.inner_scopes[program.owners[op]][1]].end for op in again.tolist()]
    place = np.concatenate([2 * every + 1, 2 * np.array(ends, np.int64)])
    entry = np.concatenate([every, -1 - again])
    return entry[np.lexsort((entry, place))].astype(np.int32)
