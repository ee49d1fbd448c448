"""Tile mappings of elementwise ops.

    a[i,j] + b[i,j] -> c[i,j]

    i  (0, 0) -> tile 0
    j  (1, 1) -> tile 1

Scalar operands (the bounds of clamp, the predicate of select) stay whole. A bitcast between widths has one more, minor
dim on the narrow side, which is not sliced. The `chlo.broadcast_*` ops align trailing dims and stretch those of size 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from autopart.core.op import AND, MAX, MIN, MUL, OR, SUM, WHOLE, OpSpec, TileMapping
from autopart.core.ops import batching
from autopart.core.ops.passages import Passage, either, linear_in, moved, together
from autopart.core.ops.rule import Example, rule
from autopart.core.ops.rules.example_text import op, reducer
from autopart.core.ops.rules.factors import common_dims
from autopart.core.ops.traits import Elementwise, View

_NEAR = 2e-5
"""Vectorised and scalar code of one function differ in the last bits."""

_FLOAT_UNARY = (
    "cbrt", "cosine", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "rsqrt", "sine",
    "sqrt", "tan", "tanh", "ceil", "floor", "round_nearest_afz", "round_nearest_even", "abs", "negate", "sign",
)  # fmt: skip
_INT_UNARY = ("not", "popcnt", "count_leading_zeros")
_NUMBER_BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "remainder")
_INT_BINARY = ("and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical")
_CHLO_UNARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "cosh", "digamma", "erf", "erf_inv", "erfc",
    "lgamma", "sinh", "square", "tan", "conj", "is_inf", "is_neg_inf", "is_pos_inf", "constant_like",
)  # fmt: skip
_CHLO_BINARY = ("next_after", "polygamma", "zeta", "mulhi")
_CHLO_BROADCAST = (
    "add", "and", "atan2", "compare", "complex", "divide", "maximum", "minimum", "multiply", "next_after", "or",
    "polygamma", "power", "remainder", "select", "shift_left", "shift_right_arithmetic", "shift_right_logical",
    "subtract", "xor", "zeta",
)  # fmt: skip


_COST = {
    "exponential": 2, "tanh": 2, "exponential_minus_one": 2, "log": 3, "log_plus_one": 2, "logistic": 6, "divide": 3,
    "remainder": 33, "rsqrt": 2, "sqrt": 2, "cbrt": 2, "power": 3, "sine": 198, "cosine": 198, "tan": 220, "atan2": 30,
    "atan": 30, "erf": 21, "floor": 3, "ceil": 3, "round_nearest_afz": 3, "round_nearest_even": 3,
}  # fmt: skip
"""Operations of the vector unit per element, in units of an add: the TPU compiler's own (differences of
`estimated_cycles` between chains of 16 and 32 with an add and a multiplication between, on v3). It counts nothing for
roots, log1p, expm1 and atan, which take some here, nor for what changes a sign, which is one operation."""

_GPU_CYCLES = {
    "tanh": 467, "sine": 958, "cosine": 978, "tan": 978, "power": 510, "atan2": 431, "log_plus_one": 229,
    "exponential_minus_one": 190, "cbrt": 178, "log": 166, "exponential": 79, "rsqrt": 75, "sqrt": 75, "divide": 19,
    "logistic": 105, "erfc": 640, "add": 7, "subtract": 7, "multiply": 3,
}  # fmt: skip
"""Clock cycles per f32 element on a GPU, as XLA:GPU's fusion counts them: its profile of an H100
(`xla/service/gpu/model/hlo_op_profiles_data.h`); tan as a cosine, logistic as exp, add and divide,
erfc by what is done with it."""

_EXPANDED = {
    "acos": 5, "acosh": 11, "asin": 7, "asinh": 14, "atanh": 8, "bessel_i1e": 84, "conj": 4, "constant_like": 0,
    "cosh": 5, "digamma": 76, "erf_inv": 39, "erfc": 63, "is_inf": 2, "lgamma": 57, "next_after": 24, "polygamma": 279,
    "sinh": 13, "zeta": 132,
}  # fmt: skip
"""Ops per element that XLA expands a kind into, each counted once."""


def _numerator(spec: OpSpec) -> Iterable[Passage]:
    """A sum is divided part by part, but for integers, whose remainders are lost."""
    whole_numbers = spec.results[0].dtype.startswith(("i", "ui"))
    return () if whole_numbers else linear_in(0)(spec)


def _rounds(spec: OpSpec) -> bool:
    """True for a convert to a type that does not hold every number of its operand's: a float of less than twice the
    bits."""
    if spec.kind != "convert" or spec.operands[0].dtype == spec.results[0].dtype:
        return False
    return spec.results[0].element_bytes < 2 * spec.operands[0].element_bytes


def _converted(spec: OpSpec) -> Iterable[Passage]:
    """Anything as what it is (jax writes such converts), and a float as a float of another width.

    A sum of integers wraps around in their own type, and would not in a wider one.
    """
    (given,), (made,) = spec.operands, spec.results
    if given.dtype == made.dtype:
        return moved()(spec)
    return linear_in(0)(spec) if all(t.dtype.startswith(("f", "bf")) for t in (given, made)) else ()


_PASSES = {
    "add": either(together(SUM), together(OR)), "subtract": together(SUM), "negate": together(SUM),
    "multiply": either(linear_in(0, 1), together(MUL), together(AND)), "divide": _numerator, "select": moved(0),
    "maximum": either(together(MAX), together(OR)), "minimum": either(together(MIN), together(AND)),
    "or": together(OR), "and": together(AND), "real": together(SUM), "imag": together(SUM), "conj": together(SUM),
    "complex": together(SUM), "convert": _converted,
}  # fmt: skip
"""How reductions pass. Booleans are added by "or" and multiplied by "and", as StableHLO defines."""

_STOPS = {
    "next_after": "not linear: it adds less than tests can tell",
    "reduce_precision": "parts are rounded otherwise than their sum",
    "map": "what its region computes is not looked at",
}

_NEUTRAL = {"add": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf}
"""XLA drops an op of which one operand is this number."""

_SHOWN = {"compare": ("comparison_direction",), "map": ("dimensions",)}


def _traits(kind: str) -> Elementwise:
    """What a kind costs; kinds in neither table are one operation per element, on any processor."""
    name = kind.removeprefix("chlo.").removeprefix("broadcast_")
    shown = _SHOWN.get(name, ())
    if name in _COST:
        reason = "operations of the vector unit; XLA counts the function as one"
        cycles = _GPU_CYCLES.get(name)
        return Elementwise(_COST[name], cycles, passes=_PASSES.get(name), shown=shown, flop_reason=reason)
    return Elementwise(
        _EXPANDED.get(name, 1),
        _GPU_CYCLES.get(name),
        passes=_PASSES.get(name),
        passes_rounded=_rounds,
        keeps_numbers=name == "convert",
        stops_sums=_STOPS.get(name, ""),
        flop_reason="XLA drops a convert to the type that is there" if name == "convert" else "",
        sums=name == "add",
        neutral=_NEUTRAL.get(name),
        cheap_to_regather=kind == "convert",
        shown=shown,
    )


ERF = _traits("chlo.erf")


def _broadcasting_traits(kind: str) -> Elementwise:
    traits = _traits(kind)
    return replace(traits, shown=("broadcast_dimensions", *traits.shown))


def _examples(kind: str) -> Iterable[Example]:
    float_, int_ = "4x6xf32", "4x6xi32"
    match kind.removeprefix("chlo."):
        case name if name in _INT_UNARY:
            yield op(kind, f"{int_} -> {int_}")
        case "conj":
            yield op(kind, "4x6xcomplex<f32> -> 4x6xcomplex<f32>")
        case "is_finite" | "is_inf" | "is_neg_inf" | "is_pos_inf":
            yield op(kind, f"{float_} -> 4x6xi1")
        case "constant_like":
            yield op(kind, f"{float_} -> {float_}", "value = 2.0 : f32")
        case "real" | "imag":
            yield op(kind, "4x6xcomplex<f32> -> 4x6xf32")
        case "complex":
            yield op(kind, f"{float_}, {float_} -> 4x6xcomplex<f32>")
        case "convert":
            yield from (op(kind, f"{float_} -> {to}") for to in ("4x6xbf16", "4x6xi32", "4x6xi1", float_))
        case "reduce_precision":
            yield op(kind, f"{float_} -> {float_}", "exponent_bits = 5 : i32, mantissa_bits = 7 : i32")
        case "bitcast_convert":
            yield op(kind, f"{float_} -> 4x6xi32")
            yield op(kind, f"{float_} -> 4x6x4xui8")
            yield op(kind, "4x6x2xui16 -> 4x6xui32")
        case "compare":
            direction = "comparison_direction = #stablehlo<comparison_direction LT>"
            yield op(kind, f"{float_}, {float_} -> 4x6xi1", direction)
        case "select":
            yield op(kind, f"4x6xi1, {float_}, {float_} -> {float_}")
            yield op(kind, f"i1, {float_}, {float_} -> {float_}")
        case "clamp":
            yield op(kind, f"{float_}, {float_}, {float_} -> {float_}")
            yield op(kind, f"f32, {float_}, f32 -> {float_}")
        case "map":
            yield op(kind, f"{float_}, {float_} -> {float_}", "dimensions = array<i64: 0, 1>", reducer("add f32"))
        case "mulhi" | "shift_left" | "shift_right_arithmetic" | "shift_right_logical" | "and" | "or" | "xor":
            yield op(kind, f"{int_}, {int_} -> {int_}", feed=((0, 31), (0, 31)))
        case name if name in _NUMBER_BINARY:
            yield op(kind, f"{float_}, {float_} -> {float_}", feed=((1, 4), (1, 4)), tolerance=_NEAR)
            yield op(kind, "8xi32, 8xi32 -> 8xi32", feed=((1, 4), (1, 4)))
        case "atan2" | "next_after" | "polygamma" | "zeta":
            yield op(kind, f"{float_}, {float_} -> {float_}", feed=((1, 4), (1, 4)), tolerance=_NEAR)
        case _:
            yield op(kind, f"{float_} -> {float_}", feed=((0.05, 0.95),), tolerance=_NEAR)


@rule(
    *_FLOAT_UNARY,
    *_INT_UNARY,
    *_INT_BINARY,
    *_NUMBER_BINARY,
    *(f"chlo.{k}" for k in (*_CHLO_UNARY, *_CHLO_BINARY)),
    *(
        "atan2",
        "clamp",
        "compare",
        "complex",
        "convert",
        "imag",
        "is_finite",
        "map",
        "real",
        "reduce_precision",
        "select",
    ),
    traits=_traits,
    examples=lambda kind: list(_examples(kind)),
    batched=batching.elementwise,
)
def elementwise(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim, in all operands and results at once."""
    return common_dims(spec, range(len(spec.results[0].shape)))


@rule(
    "bitcast_convert",
    traits=View(cheap_to_regather=True, flop_reason="the same bits; XLA counts one operation per element"),
    examples=lambda kind: list(_examples(kind)),
    batched=batching.alike,
)
def bitcast_convert(spec: OpSpec) -> Iterable[TileMapping]:
    """The dims that both sides have; the minor dim of the narrow side holds the parts of one element."""
    return common_dims(spec, range(min(len(spec.operands[0].shape), len(spec.results[0].shape))))


def _broadcast_examples(kind: str) -> Iterable[Example]:
    dtype = "i32" if kind.split("_", 1)[1].startswith(("and", "or", "xor", "shift")) else "f32"
    out = {"chlo.broadcast_compare": "i1", "chlo.broadcast_complex": "complex<f32>"}.get(kind, dtype)
    extra = "comparison_direction = #chlo<comparison_direction LT>" if kind == "chlo.broadcast_compare" else ""
    if kind == "chlo.broadcast_select":
        yield op(kind, "i1, 4x6xf32, 6xf32 -> 4x6xf32")
        yield op(kind, "4x6xi1, 4x6xf32, 4x6xf32 -> 4x6xf32")
        return
    for left, right in (("4x6x", "6x"), ("4x1x", "1x6x"), ("", "4x6x")):
        types = f"{left}{dtype}, {right}{dtype} -> 4x6x{out}"
        yield op(kind, types, extra, feed=((1, 4), (1, 4)), tolerance=_NEAR)


@rule(
    *(f"chlo.broadcast_{k}" for k in _CHLO_BROADCAST),
    traits=_broadcasting_traits,
    examples=lambda kind: list(_broadcast_examples(kind)),
)
def broadcasting_elementwise(spec: OpSpec) -> Iterable[TileMapping]:
    """Every result dim; an operand is sliced where it has the dim at full size, aligned as the op says."""
    shape = spec.results[0].shape
    explicit = spec.attributes.get("broadcast_dimensions")
    longest = max(len(t.shape) for t in spec.operands)
    for d, size in enumerate(shape):
        operands = []
        for type_ in spec.operands:
            dims = list(range(len(shape) - len(type_.shape), len(shape)))
            if explicit is not None and len(type_.shape) < longest:
                dims = list(explicit)
            own = dims.index(d) if d in dims else WHOLE
            operands.append(own if own != WHOLE and type_.shape[own] == size else WHOLE)
        yield TileMapping(tuple(operands), (d,), size)
