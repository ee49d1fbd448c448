"""A cone: what is computed of slices, place by place along one dim. It can be computed again over more of the dim.

    %l = slice %odd   [0:511]                          over 512 places, 1 before:   %l' = pad %odd by 1 and -1
    %r = slice %elems [2:1024:2]                                                    %r' = slice %elems [0:1024:2]
    %v = multiply %l, %r            f32[511]                                        %v' = multiply %l', %r'   f32[512]

Place j of a value is place j + `before` of what is computed again; what stands at the places that are new is of no use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rule import mappings_of, traits_of
from autopart.core.ops.traits import Elementwise
from autopart.core.passes.even_slices import ways
from autopart.core.passes.pattern_rewriter import PatternRewriter, Place
from autopart.core.program import Program
from autopart.core.splats import splat_behind


class Places(NamedTuple):
    """Along which dim a cone is computed again, how many new places there are before, and how many in all."""

    dim: int
    before: int
    size: int


@dataclass(frozen=True)
class Cone:
    """The ops of a cone in order: `leaves` are slices and what is the same all along the dim, `inner` the others."""

    leaves: frozenset[int]
    inner: tuple[int, ...]


class Window(NamedTuple):
    """What a slice takes, through the slices that it is a slice of: from `value`, of `type`, along each dim."""

    value: int
    type: TensorType
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def window_of(program: Program, op: int) -> Window:
    """The window of a slice."""
    spec, scope = program.spec(op), program.op_scope[op]
    sizes = spec.results[0].shape
    starts, strides = [0] * len(sizes), [1] * len(sizes)
    while True:
        steps = spec.attributes["strides"]
        starts = [
            first + n * step for first, n, step in zip(spec.attributes["start_indices"], starts, steps, strict=True)
        ]
        strides = [a * b for a, b in zip(strides, steps, strict=True)]
        value = int(program.operands_of(op)[0])
        op = int(program.value_op[value])
        spec = program.spec(op)
        if program.op_scope[op] != scope or spec.kind != "slice":
            return Window(value, program.type_of(value), tuple(starts), sizes, tuple(strides))


def cone_of(program: Program, value: int, dim: int, wanted: int) -> Cone | None:
    """The cone of a value along a dim, of slices of what `wanted` devices can share; None where there is none."""
    scope, leaves, inner = program.op_scope[program.value_op[value]], set[int](), set[int]()
    todo = [int(program.value_op[value])]
    while todo:
        op = todo.pop()
        spec = program.spec(op)
        if op in leaves or op in inner:
            continue
        if program.op_scope[op] != scope or len(spec.results) != 1:
            return None
        if spec.kind == "slice":
            if ways(window_of(program, op).type.shape[dim]) < wanted:
                return None
            leaves.add(op)
        elif _is_alike_along(program, op, dim):
            leaves.add(op)
        elif _is_by_place(spec, dim):
            inner.add(op)
            todo += program.value_op[program.operands_of(op)].tolist()
        else:
            return None
    return Cone(frozenset(leaves), tuple(sorted(inner)))


def _is_alike_along(program: Program, op: int, dim: int) -> bool:
    """True for a broadcast along the dim, and for a constant that is one number everywhere."""
    spec = program.spec(op)
    if spec.kind != "broadcast_in_dim":
        return not spec.operands and splat_behind(program, int(program.result_ptr[op])) is not None
    along = tuple(spec.attributes["broadcast_dimensions"])
    return dim not in along or spec.operands[0].shape[along.index(dim)] == 1


def _is_by_place(spec: OpSpec, dim: int) -> bool:
    """True if each place of the result along the dim is made of that place of the operands."""
    if not isinstance(traits_of(spec), Elementwise) or any(t.shape != spec.results[0].shape for t in spec.operands):
        return False
    return any(m.results == (dim,) and set(m.operands) == {dim} and not any(m.reads) for m in mappings_of(spec) or ())


@dataclass
class Grown:
    """Cones that are computed again, each op once for the same places."""

    at: PatternRewriter
    _made: dict[tuple[int, Places], int] = field(default_factory=dict[tuple[int, Places], int])

    def value(self, value: int, cone: Cone, places: Places) -> int:
        """A value over `places`, put in at the rewriter's place unless it stands before it already."""
        program, before = self.at.rewriting.before, self.at.place.before
        for op in (*sorted(cone.leaves), *cone.inner):
            key = int(program.result_ptr[op]), places
            if key not in self._made:
                with self.at.at(Place(self.at.scope(op), before, op)):
                    self._made[key] = self._leaf(op, places) if op in cone.leaves else self._inner(op, places)
        return self._made[value, places]

    def _inner(self, op: int, places: Places) -> int:
        program = self.at.rewriting.before
        operands = [self._made[int(value), places] for value in program.operands_of(op)]
        return self.at.again(op, operands, [_longer(t, places) for t in program.spec(op).results])[0]

    def _leaf(self, op: int, places: Places) -> int:
        """A slice over more places: where there is nothing to take, it is zero.

        What is sliced is first moved by whole strides, and made as long as all strides are, so that tiles stay tiles.
        """
        at, program, spec = self.at, self.at.rewriting.before, self.at.spec(op)
        made = _longer(spec.results[0], places)
        if spec.kind != "slice":
            return at.again(op, at.operands(op), [made])[0]
        dim, window = places.dim, window_of(program, op)
        stride = _stride(window, places)
        starts, strides = list(window.starts), list(window.strides)
        first = starts[dim] - places.before * stride
        starts[dim], strides[dim] = first % stride, stride
        low, length = first % stride - first, places.size * stride
        size = window.type.shape[dim]
        if low or length != size:
            ends = [(low, length - size - low) if d == dim else (0, 0) for d in range(len(starts))]
            value = at.pad(window.value, at.constant(0, made.dtype), *zip(*ends, strict=True))
        else:
            value = at.same(window.value)
        limits = [start + (n - 1) * step + 1 for start, n, step in zip(starts, made.shape, strides, strict=True)]
        return at.slice(value, starts, limits, strides)


def _longer(type_: TensorType, places: Places) -> TensorType:
    return TensorType(tuple(places.size if d == places.dim else n for d, n in enumerate(type_.shape)), type_.dtype)


def _stride(window: Window, places: Places) -> int:
    """Its stride; of one place alone, which has none, the one that goes through the whole dim."""
    if window.sizes[places.dim] > 1:
        return window.strides[places.dim]
    return max(window.type.shape[places.dim] // places.size, 1)
