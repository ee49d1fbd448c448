"""Has a constant that a pass writes the type and the numbers that were asked for, whatever type and rank they are?"""

from __future__ import annotations

import numpy as np
import pytest

from autopart.core.doors.jax_internals import ir, make_context, numpy_dtype
from autopart.core.mlir_values import MlirValues
from autopart.core.op import TensorType

DTYPES = ("i1", "f32", "f64", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")
NARROW = ("bf16", "f16")
"""Of these MLIR's Python reads no array back: the types alone are compared."""


def written(value: object, dtype: str, shape: tuple[int, ...]) -> tuple[TensorType, object]:
    """The type of a constant, and what it holds."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            values = MlirValues()
            made = values.constant(value, dtype, shape)
            assert module.operation.verify()
            held = None if dtype in NARROW else np.array(ir.DenseElementsAttr(made.owner.attributes["value"]))
            return values.type_of(made), held


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize("dtype", [*DTYPES, *NARROW])
def test_a_constant_is_of_the_type_and_the_numbers_that_were_asked_for(dtype: str, shape: tuple[int, ...]):
    numbers = (
        (np.arange(1, 1 + int(np.prod(shape))) % (2 if dtype == "i1" else 100))
        .astype(numpy_dtype(dtype))
        .reshape(shape)
    )
    type_, held = written(numbers[()] if shape == () else numbers, dtype, shape)
    assert type_ == TensorType(shape, dtype)
    if dtype not in NARROW:
        np.testing.assert_array_equal(held, numbers)
