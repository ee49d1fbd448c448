"""The pass `index_positions`: gathers and scatters whose index counts along their own batch are marked as such.

    logp[jnp.arange(B), labels]

    %p = iota                          0 1 2 ... B-1
    %i = concatenate %p, %labels       row b is (b, labels[b])
    gather %logp, %i                   reads row b of logp for row b of the result: rows tile together

An index array says where each element of its batch reads. Where one component of it is the position along a batch dim
itself, the batch dim and the operand's dim go together, as batching dims do, and the op's rule may tile them together;
else a device would need all rows of the operand. The mark is the attribute `positions` of the op: pairs (dim of the
index array, dim of the operand).

A position is followed from its iota through what does not change it: broadcasts, reshapes and transposes, conversions
that hold it, sums with constants that cancel, bounds that do not bind, and selections whose predicate compares it with
a constant that it never or always passes, which is how negative indices are wrapped.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from autopart.core.op import OpSpec, splat_value
from autopart.core.ops.rules.index_vectors import index_array
from autopart.core.passes.marks import marked
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.program import Program

_ALWAYS = {"LT": lambda low, high, c: high < c, "LE": lambda low, high, c: high <= c,
           "GT": lambda low, high, c: low > c, "GE": lambda low, high, c: low >= c}  # fmt: skip
_NEVER = {"LT": _ALWAYS["GE"], "LE": _ALWAYS["GT"], "GT": _ALWAYS["LE"], "GE": _ALWAYS["LT"]}

MAX_DEPTH = 50
"""How many ops a position is followed through."""


@register_pass("index_positions")
@dataclass(frozen=True)
class IndexPositions(Pass):
    """Marks gathers and scatters that read or write row b for row b; nothing else changes."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        indexed = np.array([index_array(spec) is not None for spec in program.specs], np.bool_)
        positions, marks = _Positions(program), {}
        for op in np.flatnonzero(indexed[program.op_spec]).tolist():
            found = _along_batch(positions, op)
            if found:
                marks[op] = {"positions": found}
        return marked(program, marks)


def _along_batch(positions: _Positions, op: int) -> tuple[tuple[int, int], ...]:
    """(dim of the index array, dim of the operand) of each component that is the position along its batch."""
    spec = positions.program.spec(op)
    array = index_array(spec)
    assert array is not None
    indices, operand = spec.operands[array.operand].shape, spec.operands[0].shape
    found: dict[int, int] = {}
    parts = positions.components(int(positions.program.operands_of(op)[array.operand]), array.vector_dim)
    for dim, part in zip(array.indexed, parts, strict=True):
        if part is None or part.offset or dim not in array.single or part.dim in array.batching:
            continue
        if indices[part.dim] == operand[dim]:
            found.setdefault(part.dim, dim)
    return tuple(sorted(found.items()))


@dataclass(frozen=True)
class _Position:
    """An integer array whose element at i is i[dim] + offset; `size` is the length of the dim."""

    dim: int
    size: int
    offset: int = 0

    def passes(self, direction: str, constant: int) -> bool | None:
        """Whether all elements compare so with a constant; None where some do and some do not."""
        bounds = (self.offset, self.offset + self.size - 1, constant)
        if direction not in _ALWAYS:
            return None
        return True if _ALWAYS[direction](*bounds) else False if _NEVER[direction](*bounds) else None


class _Positions:
    """Which values of a program are positions."""

    def __init__(self, program: Program):
        self.program, self._depth = program, 0
        self._of = functools.cache(self._find)

    def components(self, indices: int, vector_dim: int) -> list[_Position | None]:
        """Of an index array, per component: along which of the array's dims it counts, if it does."""
        op = int(self.program.value_op[indices])
        spec = self.program.spec(op)
        shape = spec.results[0].shape
        if vector_dim == len(shape):
            return [self._of(indices)]
        if spec.kind != "concatenate" or spec.attributes["dimension"] != vector_dim:
            return [self._of(indices)] if shape[vector_dim] == 1 else [None] * shape[vector_dim]
        found: list[_Position | None] = []
        for value, type_ in zip(self.program.operands_of(op).tolist(), spec.operands, strict=True):
            width = type_.shape[vector_dim]
            found += [self._of(value)] if width == 1 else self.components(value, vector_dim)
        return found

    def _find(self, value: int) -> _Position | None:
        op = int(self.program.value_op[value])
        spec = self.program.spec(op)
        through = getattr(self, f"_through_{spec.kind}", None)
        if through is None or self._depth == MAX_DEPTH:
            return None
        self._depth += 1
        found = through(spec, *self.program.operands_of(op).tolist())
        self._depth -= 1
        return found

    def _splat(self, value: int) -> int | None:
        """The one value of all elements of an integer array, where it is known."""
        spec = self._behind(value, ("broadcast_in_dim", "reshape"))[0]
        known = splat_value(spec)
        return int(known) if known is not None and _holds(spec, int(known), int(known)) else None

    def _behind(self, value: int, views: tuple[str, ...]) -> tuple[OpSpec, list[int]]:
        """The op that makes a value, and its operands, behind all views of these kinds."""
        while True:
            op = int(self.program.value_op[value])
            spec, operands = self.program.spec(op), self.program.operands_of(op).tolist()
            if spec.kind not in views:
                return spec, operands
            value = operands[0]

    # ---- ops that make positions or leave them what they are

    def _through_iota(self, spec: OpSpec) -> _Position | None:
        dim = spec.attributes["iota_dimension"]
        size = spec.results[0].shape[dim]
        return _Position(dim, size) if size > 1 and _holds(spec, 0, size - 1) else None

    def _through_broadcast_in_dim(self, spec: OpSpec, value: int) -> _Position | None:
        inner = self._of(value)
        return inner and replace(inner, dim=spec.attributes["broadcast_dimensions"][inner.dim])

    def _through_transpose(self, spec: OpSpec, value: int) -> _Position | None:
        inner = self._of(value)
        return inner and replace(inner, dim=spec.attributes["permutation"].index(inner.dim))

    def _through_reshape(self, spec: OpSpec, value: int) -> _Position | None:
        inner = self._of(value)
        longer = [[d for d, n in enumerate(t.shape) if n > 1] for t in (spec.operands[0], spec.results[0])]
        sizes = [
            [t.shape[d] for d in dims] for t, dims in zip((spec.operands[0], spec.results[0]), longer, strict=True)
        ]
        if inner is None or sizes[0] != sizes[1]:
            return None
        return replace(inner, dim=longer[1][longer[0].index(inner.dim)])

    def _through_convert(self, spec: OpSpec, value: int) -> _Position | None:
        inner = self._of(value)
        held = inner and _holds(spec, inner.offset, inner.offset + inner.size - 1)
        return inner if held else None

    def _through_add(self, spec: OpSpec, left: int, right: int) -> _Position | None:
        return self._moved(spec, left, self._splat(right), 1) or self._moved(spec, right, self._splat(left), 1)

    def _through_subtract(self, spec: OpSpec, left: int, right: int) -> _Position | None:
        return self._moved(spec, left, self._splat(right), -1)

    def _moved(self, spec: OpSpec, value: int, by: int | None, sign: int) -> _Position | None:
        inner = self._of(value) if by is not None else None
        if inner is None or by is None:
            return None
        offset = inner.offset + sign * by
        return replace(inner, offset=offset) if _holds(spec, offset, offset + inner.size - 1) else None

    def _through_maximum(self, spec: OpSpec, left: int, right: int) -> _Position | None:
        return self._unbound("GE", left, right) or self._unbound("GE", right, left)

    def _through_minimum(self, spec: OpSpec, left: int, right: int) -> _Position | None:
        return self._unbound("LE", left, right) or self._unbound("LE", right, left)

    def _through_clamp(self, spec: OpSpec, low: int, value: int, high: int) -> _Position | None:
        return self._unbound("GE", value, low) and self._unbound("LE", value, high)

    def _unbound(self, direction: str, value: int, bound: int) -> _Position | None:
        """The position, where all of it is on this side of a constant."""
        constant = self._splat(bound)
        inner = self._of(value) if constant is not None else None
        return inner if inner and constant is not None and inner.passes(direction, constant) else None

    def _through_select(self, spec: OpSpec, predicate: int, on_true: int, on_false: int) -> _Position | None:
        taken = self._decided(predicate)
        return None if taken is None else self._of(on_true if taken else on_false)

    def _decided(self, predicate: int) -> bool | None:
        """What a comparison of a position with a constant is for all elements, where it is the same for all."""
        spec, operands = self._behind(predicate, ("broadcast_in_dim", "reshape", "transpose"))
        if spec.kind != "compare":
            return None
        inner, constant = self._of(operands[0]), self._splat(operands[1])
        if inner is None or constant is None:
            return None
        return inner.passes(spec.attributes["comparison_direction"], constant)


def _holds(spec: OpSpec, low: int, high: int) -> bool:
    """True if the result is of an integer type that both values fit."""
    dtype = spec.results[0].dtype
    digits = dtype.removeprefix("u").removeprefix("i")
    if not digits.isdigit() or dtype == "i1":
        return False
    bits = int(digits)
    least, most = (0, 2**bits) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return least <= low and high < most
