"""MLIR attributes as plain Python values, and back.

    array<i64: 0, 2>                                     (0, 2)
    dense<[[1, 0], [0, 0]]> : tensor<2x2xi64>            ((1, 0), (0, 0))
    #stablehlo.dot<lhs_contracting_dimensions = [1]...>  {"lhs_contracting_dimensions": (1,), ...}
    #stablehlo<comparison_direction LT>                  "LT"

The `value` of a constant is its NumPy scalar where all elements are equal, else an `Opaque` whose number is a digest of
the content: equal constants have equal numbers, in every process. Callers keep results per attribute; nothing is cached
here.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, cast

import numpy as np

from autopart.core.doors.jax_internals import chlo, ir, numpy_dtype, stablehlo
from autopart.core.op import Opaque

_DENSE_ARRAYS = (
    ir.DenseI64ArrayAttr,
    ir.DenseI32ArrayAttr,
    ir.DenseBoolArrayAttr,
    ir.DenseF64ArrayAttr,
    ir.DenseF32ArrayAttr,
    ir.DenseI8ArrayAttr,
    ir.DenseI16ArrayAttr,
)
_MAX_DECODED_ELEMENTS = 65536
_ENUM = re.compile(r"#\w+<\w+ (\w+)>")

_CONV_FIELDS = {
    "input": ("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"),
    "kernel": ("kernel_input_feature_dimension", "kernel_output_feature_dimension", "kernel_spatial_dimensions"),
    "output": ("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions"),
}
_DIMENSION_NUMBERS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (
        stablehlo.DotDimensionNumbers,
        (
            "lhs_batching_dimensions",
            "rhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "rhs_contracting_dimensions",
        ),
    ),
    (
        stablehlo.GatherDimensionNumbers,
        (
            "offset_dims",
            "collapsed_slice_dims",
            "operand_batching_dims",
            "start_indices_batching_dims",
            "start_index_map",
            "index_vector_dim",
        ),
    ),
    (
        stablehlo.ScatterDimensionNumbers,
        (
            "update_window_dims",
            "inserted_window_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
            "scattered_dims_to_operand_dims",
            "index_vector_dim",
        ),
    ),
    (stablehlo.ConvDimensionNumbers, tuple(name for names in _CONV_FIELDS.values() for name in names)),
    (
        chlo.RaggedDotDimensionNumbers,
        (
            "lhs_batching_dimensions",
            "rhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "rhs_contracting_dimensions",
            "lhs_ragged_dimensions",
            "rhs_group_dimensions",
        ),
    ),
)
"""Attribute classes that name dimensions, with their fields in the order of their constructors."""


def decode(attribute: ir.Attribute) -> Any:
    """An attribute as ints, bools, floats, strings, tuples and dicts; what is none of these is an `Opaque`."""
    match attribute:
        case ir.DenseElementsAttr():
            return _decode_elements(attribute)
        case ir.StringAttr():
            return attribute.value_bytes.decode("utf-8", "backslashreplace")  # a backend_config may be any bytes
        case ir.BoolAttr() | ir.IntegerAttr() | ir.FloatAttr() | ir.FlatSymbolRefAttr():
            return attribute.value
        case ir.ArrayAttr():
            return tuple(decode(entry) for entry in attribute)
        case ir.DictAttr():
            return {entry.name: decode(entry.attr) for entry in attribute}
        case ir.TypeAttr():
            return str(attribute.value)
        case ir.UnitAttr():
            return True
        case _ if isinstance(attribute, _DENSE_ARRAYS):
            return tuple(attribute)
        case _:
            pass
    for cls, names in _DIMENSION_NUMBERS:
        if cls.isinstance(attribute):
            return _decode_dimensions(cls(attribute), names)
    text = str(attribute)
    enum = _ENUM.fullmatch(text)
    return enum.group(1) if enum else text


def decode_constant(attribute: ir.Attribute) -> np.generic | Opaque:
    """The value of a constant op: a NumPy scalar of its element type, or an `Opaque` where elements differ."""
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        element = str(ir.ShapedType(attribute.type).element_type)
        return numpy_dtype(element).type(cast(Any, attribute.get_splat_value()).value)
    return Opaque(_digest(attribute))


def decode_complex_constant(text: str) -> np.generic | Opaque:
    """As `decode_constant`, for `dense<(1.0,2.0)> : tensor<3xcomplex<f32>>`, which MLIR's bindings cannot hand out."""
    splat = re.search(r"dense<\((.*?),(.*?)\)> : tensor<.*?(complex<f\d+>)>", text)
    if splat is None:
        return Opaque(_digest_bytes(text.encode()))
    real, imaginary = (_parse_float(part, splat.group(3)) for part in splat.groups()[:2])
    return numpy_dtype(splat.group(3)).type(complex(real, imaginary))


def encode(value: Any, like: ir.Attribute) -> ir.Attribute:
    """The attribute of `like`'s kind that decodes to `value`. Raises `TypeError` for kinds no rule changes."""
    if isinstance(like, ir.BoolAttr):
        return ir.BoolAttr.get(bool(value))
    if isinstance(like, ir.IntegerAttr):
        return ir.IntegerAttr.get(like.type, value)
    if isinstance(like, ir.StringAttr):
        return ir.StringAttr.get(value)
    if isinstance(like, ir.DictAttr):
        return ir.DictAttr.get({entry.name: encode(value[entry.name], entry.attr) for entry in like})
    if isinstance(like, _DENSE_ARRAYS):
        return type(like).get(list(value))
    if isinstance(like, ir.DenseIntElementsAttr):
        element = ir.ShapedType(like.type).element_type
        array = np.asarray(value, numpy_dtype(str(element)))
        return ir.DenseIntElementsAttr.get(cast(Any, array), type=element, shape=array.shape)
    for cls, names in _DIMENSION_NUMBERS:
        if cls.isinstance(like):
            return cls.get(*(list(v) if isinstance(v := value[name], tuple) else v for name in names))
    raise TypeError(f"no way back from {value!r} to an attribute like {like}")


def _decode_dimensions(attribute: Any, names: tuple[str, ...]) -> dict[str, Any]:
    values = {name: getattr(attribute, name) for name in names}
    return {name: v if isinstance(v, int) else tuple(v) for name, v in values.items()}


def _decode_elements(attribute: ir.DenseElementsAttr) -> Any:
    if len(attribute) > _MAX_DECODED_ELEMENTS:
        return Opaque(_digest(attribute))
    return _tuples(np.asarray(attribute).tolist())


def _tuples(nested: Any) -> Any:
    return tuple(map(_tuples, nested)) if isinstance(nested, list) else nested


def _digest(attribute: ir.Attribute) -> int:
    return _digest_bytes(_content(attribute))


def _content(attribute: ir.Attribute) -> bytes:
    """The bytes of a dense attribute with its type; its text where it is a splat or not of NumPy's own types."""
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        return str(attribute).encode()
    if isinstance(attribute, (ir.DenseIntElementsAttr, ir.DenseFPElementsAttr)):
        element = ir.ShapedType(attribute.type).element_type
        if str(element) in ("f64", "f32", "f16", "i64", "i32", "i16", "i8", "ui64", "ui32", "ui16", "ui8", "i1"):
            return np.asarray(attribute).tobytes() + str(attribute.type).encode()
    return str(attribute).encode()


def _digest_bytes(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=6).digest(), "big")


def _parse_float(text: str, element: str) -> float:
    """A float as MLIR prints it: decimal, or the bits in hexadecimal for infinities and NaNs."""
    text = text.strip()
    if not text.startswith("0x"):
        return float(text)
    bits = np.uint64(int(text, 16)) if element == "complex<f64>" else np.uint32(int(text, 16))
    return float(bits.view(np.float64 if element == "complex<f64>" else np.float32))
