"""What an op costs and how the compiler may fuse it, from its kind: decided once per distinct op.

    class        work                                         bytes read
    free         none: structure, constants, views            none
    elementwise  weight x result elements, vector unit        operands
    slicing      none                                         what is kept of an operand, not all of it
    reduce       operand elements, vector unit                operands
    matmul       2 m n k, matrix unit                         operands
    conv         2 x multiply-adds inside the array           operands
    update       weight x update elements                     the update, twice; the rest stays in place
    opaque       weight x operand elements                    operands

Weights count vector-unit operations per element. Those of exp, log, tanh, logistic, divide, rsqrt, erf and sine are
the TPU compiler's own (differences of `estimated_cycles` between chains of 16 and 32 on v3, in units of an add); kinds
without an entry count 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.program import Program
from autopart.costmodel.hardware.devices import DTYPE_CLASSES, dtype_class

FREE, ELEMENTWISE, SLICING, REDUCE, MATMUL, CONV, UPDATE, OPAQUE = range(8)

CLASS_NAMES = ("free", "elementwise", "slicing", "reduce", "matmul", "conv", "update", "opaque")

STRUCTURE = frozenset(("argument", "while", "carry", "condition", "case", "join", "constant"))

VIEWS = frozenset(("reshape", "tag", "optimization_barrier", "bitcast_convert"))
"""Ops whose result is their operand's memory under another name."""

SLICES = frozenset(("slice", "dynamic_slice", "gather"))

REDUCTIONS = frozenset(("reduce", "reduce_window", "select_and_scatter"))

UPDATES = frozenset(("dynamic_update_slice", "scatter"))
"""Ops that change part of their first operand, in place where it is not needed any more."""

OPAQUES = frozenset(
    ("sort", "fft", "cholesky", "triangular_solve", "custom_call", "rng_bit_generator", "rng", "chlo.top_k")
)

WEIGHTS = {
    "exponential": 2, "tanh": 2, "exponential_minus_one": 4, "log": 4, "log_plus_one": 6, "logistic": 6, "divide": 4,
    "remainder": 8, "rsqrt": 3, "sqrt": 4, "cbrt": 8, "power": 10, "sine": 198, "cosine": 198, "tan": 200, "atan2": 30,
    "chlo.erf": 21, "chlo.erfc": 30, "chlo.erf_inv": 30, "sort": 20, "rng_bit_generator": 100, "fft": 20,
    "constant": 0, "iota": 0, "broadcast_in_dim": 0, "transpose": 0, "slice": 0, "reshape": 0, "pad": 0,
    "concatenate": 0, "reverse": 0, "copy": 0,
}  # fmt: skip

EXPENSIVE = 2
"""Elementwise ops of at least this weight are expensive: the compiler is reluctant to compute them twice."""


class SpecCosts(NamedTuple):
    """Per distinct op; flop and elements are of the whole, unpartitioned op.

    op_class, matrix_dtype   see the module; the dtype class is the first operand's
    matrix_flop       flop of a matmul or convolution
    weight            vector operations per element
    view              the result is the operand's memory
    fuses             may be computed inside a consumer
    takes             computes fusible operands inside itself
    """

    op_class: np.ndarray
    matrix_dtype: np.ndarray
    matrix_flop: np.ndarray
    weight: np.ndarray
    is_view: np.ndarray
    fuses: np.ndarray
    takes: np.ndarray
    passes: np.ndarray
    narrows: np.ndarray
    turns: np.ndarray


def spec_costs(program: Program) -> SpecCosts:
    """Costs of every spec of `program`."""
    classes = [op_class(s) for s in program.specs]
    return SpecCosts(
        op_class=np.array(classes, np.int8),
        matrix_dtype=np.array([_dtype(s) for s in program.specs], np.int8),
        matrix_flop=np.array([matrix_flop(s) for s in program.specs], float),
        weight=np.array([_weight(s) for s in program.specs], float),
        is_view=np.array([_is_view(s) for s in program.specs], np.bool_),
        fuses=np.array([_fuses(c, s.kind) for c, s in zip(classes, program.specs, strict=True)], np.bool_),
        takes=np.array([c in (ELEMENTWISE, SLICING, REDUCE, MATMUL, CONV, UPDATE) for c in classes], np.bool_),
        passes=np.array([_passes(s) for s in program.specs], float),
        narrows=np.array([_is_f32_matmul(s) and _passes(s) == 1 for s in program.specs], np.bool_),
        turns=np.array([_turns(s) for s in program.specs], np.bool_),
    )


def _fuses(found: int, kind: str) -> bool:
    """Elementwise ops, slices and constants; not gathers, which would keep a whole table alive for a late consumer."""
    return kind == "constant" or (found in (ELEMENTWISE, SLICING) and kind != "gather")


def _is_view(spec: OpSpec) -> bool:
    """True for ops in `VIEWS` and for sums over nothing but dims of size one."""
    if spec.kind == "reduce":
        return len(spec.results) == 1 and spec.operands[0].bytes == spec.results[0].bytes
    return spec.kind in VIEWS


def op_class(spec: OpSpec) -> int:
    """Class of an op; unknown kinds with operands are elementwise, which reads and writes everything once."""
    kind = spec.kind
    if kind in STRUCTURE or _is_view(spec):
        return FREE
    if kind == "dot_general":
        return MATMUL
    if kind == "convolution":
        return CONV
    for members, found in ((SLICES, SLICING), (REDUCTIONS, REDUCE), (UPDATES, UPDATE), (OPAQUES, OPAQUE)):
        if kind in members:
            return found
    return ELEMENTWISE


def matrix_flop(spec: OpSpec) -> float:
    """Flop of the matrix unit: two per multiply-add.

    >>> from autopart.core.op import TensorType
    >>> dims = {"lhs_contracting_dimensions": (1,)}
    >>> f32 = lambda *shape: TensorType(shape, "f32")
    >>> matrix_flop(OpSpec("dot_general", {"dot_dimension_numbers": dims}, (f32(8, 16), f32(16, 4)), (f32(8, 4),)))
    1024.0
    """
    if spec.kind == "dot_general":
        lhs = spec.operands[0].shape
        contracted = spec.attributes["dot_dimension_numbers"]["lhs_contracting_dimensions"]
        return 2.0 * math.prod(spec.results[0].shape) * math.prod(lhs[d] for d in contracted)
    if spec.kind == "convolution":
        return _convolution_flop(spec)
    return 0.0


def _convolution_flop(spec: OpSpec) -> float:
    """Multiply-adds whose input lies inside the array: padding and the holes of a dilated input are not counted."""
    a = spec.attributes
    numbers, (lhs, rhs), out = a["dimension_numbers"], spec.operands, spec.results[0].shape
    pairs = 1
    for i, out_dim in enumerate(numbers["output_spatial_dimensions"]):
        length = lhs.shape[numbers["input_spatial_dimensions"][i]]
        window = rhs.shape[numbers["kernel_spatial_dimensions"][i]]
        at = np.arange(out[out_dim])[:, None] * a["window_strides"][i] - a["padding"][i][0]
        at = at + np.arange(window) * a["rhs_dilation"][i]
        hole = a["lhs_dilation"][i]
        pairs *= int(((at >= 0) & (at <= (length - 1) * hole) & (at % hole == 0)).sum())
    features = out[numbers["output_feature_dimension"]] * rhs.shape[numbers["kernel_input_feature_dimension"]]
    return 2.0 * pairs * features * out[numbers["output_batch_dimension"]]


def _weight(spec: OpSpec) -> float:
    if spec.kind == "reduce_window" or spec.kind == "select_and_scatter":
        return float(math.prod(spec.attributes["window_dimensions"]))
    return float(WEIGHTS.get(spec.kind, 1 if op_class(spec) != FREE else 0))


def _turns(spec: OpSpec) -> bool:
    return spec.kind == "transpose" and spec.attributes["permutation"][-1] != len(spec.results[0].shape) - 1


def _is_f32_matmul(spec: OpSpec) -> bool:
    return op_class(spec) in (MATMUL, CONV) and spec.operands[0].dtype == "f32"


def _passes(spec: OpSpec) -> float:
    if not _is_f32_matmul(spec):
        return 1.0
    asked = spec.attributes.get("precision_config") or ("DEFAULT",)
    return max({"HIGH": 3.0, "HIGHEST": 6.0}.get(str(a), 1.0) for a in asked)


def _dtype(spec: OpSpec) -> int:
    types = spec.operands or spec.results
    return DTYPE_CLASSES.index(dtype_class(types[0].dtype)) if types else DTYPE_CLASSES.index("f32")
