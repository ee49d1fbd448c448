"""The pass `joined_pads`: a sum of many pads of one array's parts becomes the concatenation of the parts.

    for i in range(L): x = tanh(x @ w[i])            the gradient of each w[i], f32[1,d,d], is padded to f32[L,d,d]

    %s = add (pad %g1 by 1 before) (pad %g0 ...)      %y = concatenate %g0, %g1, %g2, ...
    %t = add (pad %g2 by 2 before) %s           ->
    ...

A compiler adds all of it in one kernel, which reads each part once. Written as sums it is an array of the whole stack
for every layer. Parts at one place are added first, places that no pad fills are zeros, and what else is added comes
last. Few pads stay as they are: what reads them is known to take them as they stand.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.op import TensorType
from autopart.core.passes.only_readers import only_read
from autopart.core.passes.padding.padding_text import constant
from autopart.core.passes.pads import MOST_PARTS, Pad, pad_of
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.passes.rewritten_as import Place, location_of, mlir_type, put_in
from autopart.core.program import Program


class _Sum(NamedTuple):
    """A sum of parts along a dim, by their places, and of other values."""

    dim: int
    parts: dict[tuple[int, int], list[int]]
    others: list[int]


@register_pass("joined_pads")
@dataclass(frozen=True)
class JoinedPads(Pass):
    """Sums of many pads of one array's parts become concatenations of the parts.

    Each op is looked at once: it is in one sum.
    """

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        kind = {name: np.array([spec.kind == name for spec in program.specs], np.bool_) for name in ("add", "pad")}
        adds = kind["add"][program.op_spec]
        if program.source is None or kind["pad"][program.op_spec].sum() <= MOST_PARTS or not adds.any():
            return program
        inside, rewriting = _read_once(program, adds), Rewriting(program)
        pads = np.zeros(program.op_count, np.int32)
        _count_pads(
            adds, kind["pad"][program.op_spec], inside, program.operand_ptr, program.operands, program.value_op, pads
        )
        for op in np.flatnonzero(adds & ~inside & (pads > MOST_PARTS)).tolist():
            total = _sum(program, op, inside)
            if total is not None:
                _put(rewriting, op, total)
        return rewriting.program()


def _read_once(program: Program, adds: np.ndarray) -> np.ndarray:
    """bool[ops]: one addition beside the op reads its one result, and nothing else does."""
    beside = program.op_scope[program.value_op[program.operands]] == program.op_scope[program.use_op]
    once = only_read(program, adds[program.use_op] & beside) & (np.diff(program.users[0]) == 1)
    once[[*program.tags_of, *program.outputs]] = False
    one = np.diff(program.result_ptr) == 1
    one[one] = once[program.result_ptr[:-1][one]]
    return one


@kernel
def _count_pads(
    adds: np.ndarray,
    pads: np.ndarray,
    inside: np.ndarray,
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    value_op: np.ndarray,
    found: np.ndarray,
) -> None:
    """Fills in found[op], 0 at first: the pads in the sum whose last addition an op is."""
    for op in range(adds.shape[0]):
        if adds[op]:
            for use in range(operand_ptr[op], operand_ptr[op + 1]):
                maker = value_op[operands[use]]
                if inside[maker]:
                    found[op] += 1 if pads[maker] else found[maker]


def _sum(program: Program, root: int, inside: np.ndarray) -> _Sum | None:
    """The sum that an addition is the last of, if it is one of many pads that are apart or at one place."""
    pads, others, left = list[Pad](), list[int](), program.operands_of(root).tolist()[::-1]
    while left:
        value = left.pop()
        maker = int(program.value_op[value])
        pad = pad_of(program, maker) if inside[maker] else None
        if pad is not None:
            pads.append(pad)
        elif inside[maker] and program.spec(maker).kind == "add":
            left += program.operands_of(maker).tolist()[::-1]
        else:
            others.append(value)
    if len(pads) <= MOST_PARTS or len({pad.dim for pad in pads}) > 1:
        return None
    parts: dict[tuple[int, int], list[int]] = {}
    for pad in pads:
        parts.setdefault((pad.places.start, pad.places.stop), []).append(pad.value)
    apart = all(a[1] <= b[0] for a, b in pairwise(sorted(parts)))
    return _Sum(pads[0].dim, dict(sorted(parts.items())), others) if apart else None


def _put(rewriting: Rewriting, op: int, total: _Sum) -> None:
    """Puts the concatenation in the place of a sum."""
    program = rewriting.before
    values = [*(value for same in total.parts.values() for value in same), *total.others]
    types = [program.type_of(value) for value in values]
    text = _text(types, total, program.spec(op).results[0], location_of(rewriting, op))
    [result] = put_in(rewriting, text, values, Place(int(program.op_scope[op]), op, op))
    rewriting.replace(int(program.result_ptr[op]), result)


def _text(types: Sequence[TensorType], total: _Sum, result: TensorType, line: str) -> str:
    """A function of the parts, in order of their places, and of the others."""
    lines, joined, end, number = list[str](), list[tuple[str, str]](), 0, 0

    def zeros_until(place: int) -> None:
        if place > end:
            size = TensorType((*result.shape[: total.dim], place - end, *result.shape[total.dim + 1 :]), result.dtype)
            types_ = f"({mlir_type(TensorType((), result.dtype))}) -> {mlir_type(size)}"
            lines.append(f"{constant(f'%n{end}', result.dtype, 0)} {line}")
            lines.append(f"%z{end} = stablehlo.broadcast_in_dim %n{end}, dims = [] : {types_} {line}")
            joined.append((f"%z{end}", mlir_type(size)))

    for (start, stop), same in total.parts.items():
        zeros_until(start)
        name, kind = f"%a{number}", mlir_type(types[number])
        for k in range(number + 1, number + len(same)):
            lines.append(f"%s{k} = stablehlo.add {name}, %a{k} : {kind} {line}")
            name = f"%s{k}"
        joined.append((name, kind))
        end, number = stop, number + len(same)
    zeros_until(result.shape[total.dim])
    whole, names, kinds = mlir_type(result), *(", ".join(column) for column in zip(*joined, strict=True))
    lines.append(f"%y{number} = stablehlo.concatenate {names}, dim = {total.dim} : ({kinds}) -> {whole} {line}")
    for k in range(number, len(types)):
        lines.append(f"%y{k + 1} = stablehlo.add %y{k}, %a{k} : {whole} {line}")
    arguments = ", ".join(f"%a{k}: {mlir_type(type_)}" for k, type_ in enumerate(types))
    body = "\n".join(lines)
    return f"func.func @main({arguments}) -> {whole} {{\n{body}\nreturn %y{len(types)} : {whole} {line}\n}}"
