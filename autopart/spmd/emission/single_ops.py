"""One op of a program at a time, on slices of its operands, as XLA runs it alone.

    dot_general inside loops ("B", k), ("M", n)        main(x tile, w tile, position on "B", position on "M")

Each distinct op in each distinct nest is compiled once, on its own: nothing is fused with its neighbours, and the same
code runs at every place of the nest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autopart.core.doors.host_callbacks import TARGETS
from autopart.core.doors.jax_internals import compiled_alone, func, ir, numpy_dtype
from autopart.core.mlir_values import mlir_type
from autopart.core.op import OpSpec, TensorType, TileMapping
from autopart.core.ops.rule import localize, target_of
from autopart.core.table.partitioning import Partitioning
from autopart.core.table.temporal import Nest
from autopart.spmd.emission.called_functions import bring_called_functions
from autopart.spmd.emission.local_op import MlirLocalOp

_POSITION = TensorType((), "i32")


class SingleOps:
    """Runs the ops of a program one by one; what it compiles is kept while it lives."""

    def __init__(self, partitioning: Partitioning):
        self._program, self._table = partitioning.program, partitioning.table
        self._sizes: list[int] = partitioning.sizes.tolist()
        self._compiled: dict[tuple[int, Nest], Callable[..., list[np.ndarray]]] = {}

    def run(self, op: int, nest: Nest, operands: Sequence[np.ndarray], place: Sequence[int]) -> list[np.ndarray]:
        """The op's results on slices of its operands, at `place` in its nest."""
        spec = int(self._program.op_spec[op])
        if (spec, nest) not in self._compiled:
            self._compiled[spec, nest] = self._compile(spec, nest)
        return self._compiled[spec, nest](*operands, *np.array(place, np.int32))

    def _compile(self, number: int, nest: Nest) -> Callable[..., list[np.ndarray]]:
        spec, source = self._program.specs[number], self._program.source
        loops = [(self._table.of[number][mapping], self._sizes[axis]) for axis, mapping in nest]
        inputs, outputs = _tile_types(spec, loops)
        with source.module.context, ir.Location.unknown():
            module = self._module(number, nest, inputs, outputs)
        has_body = spec.kind == "custom_call" and target_of(spec) in TARGETS
        avals = [(t.shape, numpy_dtype(t.dtype)) for t in (*inputs, *[_POSITION] * len(nest))]
        results = [(t.shape, numpy_dtype(t.dtype)) for t in outputs]
        return compiled_alone(module, avals, results, source.bodies if has_body else ())

    def _module(self, number: int, nest: Nest, inputs: list[TensorType], outputs: list[TensorType]) -> ir.Module:
        """A module whose main is the op on slices, and whose last arguments are the place in the nest."""
        spec, source, module = self._program.specs[number], self._program.source, ir.Module.create()
        representative = source.representatives[number]
        types = [mlir_type(t) for t in (*inputs, *[_POSITION] * len(nest))]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(types, [mlir_type(t) for t in outputs]))
            block = main.add_entry_block()
        with ir.InsertionPoint(block):
            operands, place = list(block.arguments)[: len(inputs)], list(block.arguments)[len(inputs) :]
            positions = _Place(self._sizes, {axis: at for (axis, _), at in zip(nest, place, strict=True)})
            mappings = self._table.of[number]
            local = MlirLocalOp(spec, representative, mappings, nest, operands, inputs, outputs, positions)
            func.ReturnOp(localize(local))
        bring_called_functions(main.operation, [representative], source.module, module)
        return module


class _Place:
    """A place in a loop nest, for rules that ask where a slice lies in the whole."""

    def __init__(self, sizes: Sequence[int], positions: dict[int, ir.Value]):
        self._sizes, self._positions = sizes, positions

    def axis_size(self, axis: int) -> int:
        return self._sizes[axis]

    def axis_position(self, axis: int) -> ir.Value:
        return self._positions[axis]


def _tile_types(spec: OpSpec, loops: Sequence[tuple[TileMapping, int]]) -> tuple[list[TensorType], list[TensorType]]:
    """Types of the operands and results in the innermost of `loops`, (mapping, size) each."""
    inputs, outputs = list(spec.operands), list(spec.results)
    for mapping, size in loops:
        ways = math.prod(n for other, n in loops if other == mapping)
        inputs = [_given(t, mapping, k, size, ways) for k, t in enumerate(inputs)]
        outputs = [_tiled(t, d, size) for t, d in zip(outputs, mapping.results, strict=True)]
    return inputs, outputs


def _given(type_: TensorType, mapping: TileMapping, operand: int, size: int, ways: int) -> TensorType:
    """Of an operand, one of `size` slices, or the stretch that an iteration of all `ways` of the mapping's reads."""
    dim, stretch = mapping.operands[operand], mapping.stretch(operand)
    if stretch is None:
        return _tiled(type_, dim, size)
    shape = list(type_.shape)
    shape[dim] = stretch.length(ways)
    return TensorType(tuple(shape), type_.dtype)


def _tiled(type_: TensorType, dim: int, ways: int) -> TensorType:
    """One of `ways` slices along `dim`; the whole type for anything that is no dim."""
    if not 0 <= dim < len(type_.shape):
        return type_
    shape = list(type_.shape)
    shape[dim] //= ways
    return TensorType(tuple(shape), type_.dtype)
