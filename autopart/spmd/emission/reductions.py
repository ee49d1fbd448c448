"""Reductions on one device, and what combines two parts of one.

%t = stablehlo.reduce(%x, %zero) over dim 2, with the region of `reducer`: ^bb0(%a, %b): return (add %a, %b)
"""

from __future__ import annotations

from collections.abc import Sequence

from autopart.core.doors.jax_internals import ir, stablehlo
from autopart.core.mlir_values import MlirValues, mlir_type
from autopart.core.op import REDUCTION_NAMES, SUM, TensorType
from autopart.core.ops.rules.reduce import identity

REDUCERS = {"sum": "add", "max": "maximum", "min": "minimum", "mul": "multiply", "and": "and", "or": "or"}
"""Reduction -> the op that combines two parts."""


def reduced(value: ir.Value, dim: int, code: int) -> ir.Value:
    """The reduction of a value over a dim, without it, in the reduction of a code of `core/op.py`."""
    values = MlirValues()
    type_ = values.type_of(value)
    dim %= len(type_.shape)
    start = values.constant(identity(code, type_.dtype), type_.dtype)
    result = mlir_type(TensorType(type_.shape[:dim] + type_.shape[dim + 1 :], type_.dtype))
    attributes: dict[str, ir.Attribute] = {"dimensions": ir.DenseI64ArrayAttr.get([dim])}
    op = ir.Operation.create("stablehlo.reduce", [result], [value, start], attributes, regions=1)
    reducer(op, mlir_type(TensorType((), type_.dtype)), code)
    return op.results[0]


def added_at(array: ir.Value, new: ir.Value, dims: Sequence[int], index: ir.Value, is_batched: bool) -> ir.Value:
    """The array with what is new added at an index of some dims, which `new` lacks.

    `index` has an entry for each dim; if the first dim of all three is a batch, it has them for each index of that. The
    op is linear in both arrays: what it adds up may stay pending, where a slice that is read and written may not.
    """
    values = MlirValues()
    type_, batch = values.type_of(array), [0] if is_batched else []
    window = [d for d in range(len(values.type_of(new).shape)) if d not in batch]
    numbers = stablehlo.ScatterDimensionNumbers.get(window, list(dims), batch, batch, list(dims), len(batch))
    attributes: dict[str, ir.Attribute] = {"scatter_dimension_numbers": numbers}
    attributes |= {"indices_are_sorted": ir.BoolAttr.get(True), "unique_indices": ir.BoolAttr.get(True)}
    op = ir.Operation.create("stablehlo.scatter", [array.type], [array, index, new], attributes, regions=1)
    reducer(op, mlir_type(TensorType((), type_.dtype)), SUM)
    return op.results[0]


def reducer(op: ir.Operation, scalar: ir.Type, code: int) -> None:
    """Gives an op the region that combines two parts."""
    block = op.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        kind = f"stablehlo.{REDUCERS[REDUCTION_NAMES[code]]}"
        stablehlo.return_([ir.Operation.create(kind, [scalar], list(block.arguments)).results[0]])
