"""Extremes over devices keep NaN, on CPUs, where XLA's own max and min over devices drop it.

    all_reduce max of f32      bits as i32, in the order of the numbers, NaN above all of them
                               all_reduce max of i32
                               the numbers of these bits

A float's bits are in the order of the numbers where the sign is 0; where it is 1, all other bits are turned round. What
is NaN becomes the one that is last in that order: with sign 0 for a max, with sign 1 for a min.
"""

from __future__ import annotations

from autopart.core.doors.jax_internals import ir, operations
from autopart.core.mlir_values import MlirValues, mlir_type
from autopart.core.op import TensorType

_BITS = {"f8E4M3FN": 8, "f8E5M2": 8, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}
"""Types of numbers whose extremes are kept, and how long each is."""

_REDUCERS = ("stablehlo.maximum", "stablehlo.minimum")

_COLLECTIVES = ("stablehlo.all_reduce", "stablehlo.reduce_scatter")


def keep_nan_extremes(module: ir.Module) -> None:
    """Rewrites the collectives of a module for CPUs that take a max or a min of floats."""
    with module.context:
        for op in [op for op in operations(module.operation) if op.name in _COLLECTIVES and len(op.operands) == 1]:
            reducer = op.regions[0].blocks[0].operations[0]
            if reducer.name in _REDUCERS and _dtype(op.operands[0]) in _BITS:
                _reduce_bits(op, reducer)


def _reduce_bits(op: ir.Operation, reducer: ir.OpView) -> None:
    values, result, dtype = MlirValues(), op.results[0], _dtype(op.operands[0])
    uses = [(use.owner, use.operand_number) for use in result.uses]
    with ir.InsertionPoint(op), op.location:
        op.operands[0] = _as_ordered_bits(values, op.operands[0], reducer.name)
    integer = f"i{_BITS[dtype]}"
    result.set_type(mlir_type(TensorType(values.type_of(result).shape, integer)))
    for scalar in (*op.regions[0].blocks[0].arguments, reducer.results[0]):
        scalar.set_type(mlir_type(TensorType((), integer)))
    with ir.InsertionPoint.after(op), op.location:
        number = values.bitcast(_turned_if_negative(values, result), dtype)
    for reader, operand in uses:
        reader.operands[operand] = number


def _as_ordered_bits(values: MlirValues, number: ir.Value, reducer: str) -> ir.Value:
    """The bits of the numbers as integers in the same order, with NaN as that which the reducer takes before any other.

    NaN is written as an integer: as a float, a release of XLA may turn its sign round.
    """
    type_ = values.type_of(number)
    integer, most = f"i{_BITS[type_.dtype]}", 2 ** (_BITS[type_.dtype] - 1)
    nan = values.constant(most - 1 if reducer == "stablehlo.maximum" else -most, integer, type_.shape)
    bits = _turned_if_negative(values, values.bitcast(number, integer))
    return values.select(values.compare(number, number, "NE"), nan, bits)


def _turned_if_negative(values: MlirValues, bits: ir.Value) -> ir.Value:
    """The same bits where the sign is 0; where it is 1, all others turned round. Its own reverse."""
    type_ = values.type_of(bits)
    zero = values.constant(0, type_.dtype, type_.shape)
    rest = values.constant(2 ** (int(type_.dtype[1:]) - 1) - 1, type_.dtype, type_.shape)
    return values.select(values.compare(bits, zero, "LT"), values.binary("xor", bits, rest), bits)


def _dtype(value: ir.Value) -> str:
    return MlirValues().type_of(value).dtype
