"""What values hold, where that is known before the program runs: constants, iotas and what is computed of these.
Arrays that a function closes over are constants too.

%i = floor((iota + 0.5) * 16 / 32)      ->      numbers(at, %i) == [0 0 1 1 2 2 ...]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autopart.core.doors.jax_internals import ir, numpy_dtype
from autopart.core.op import OpSpec, splat_value
from autopart.core.ops.rules.roll import ROLL
from autopart.core.passes.pattern_rewriter import PatternRewriter

MOST = 1 << 18
"""Elements of an array that is looked at."""

MOST_WEIGHTS = 1 << 23
"""Elements of a matrix of weights that is looked at, and of what is computed on the way."""

_BY_ELEMENT: Mapping[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "ceil": np.ceil,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "floor": np.floor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negate": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "round_nearest_even": np.rint,
    "select": np.where,
    "sign": np.sign,
    "subtract": np.subtract,
    "xor": np.bitwise_xor,
}

_COMPARED = {
    "EQ": np.equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
    "NE": np.not_equal,
}


def numbers(at: PatternRewriter, value: int) -> np.ndarray | None:
    """The elements of a value; None where they are not known, or too many. Found out once."""
    known, shape = columns(at, value), at.type_of(value).shape
    return None if known is None or math.prod(shape) > _most(at) else np.broadcast_to(known, shape)


def columns(at: PatternRewriter, value: int) -> np.ndarray | None:
    """As `numbers`, of as large an array as there may be: a dim along which all elements are alike has the length 1."""
    left = [value]
    while left:
        reads = () if left[-1] in at.numbers else _read(at, left[-1])
        if unknown := [v for v in reads if v not in at.numbers]:
            left += unknown
        else:
            last = left.pop()
            if last not in at.numbers:
                at.numbers[last] = _computed(at, last)
    return at.numbers[value]


def weights(at: PatternRewriter, value: int) -> np.ndarray | None:
    """As `numbers`, of larger arrays, and of sums and sines, whose last bit each platform rounds for itself.

    What is known by this is kept with what is known exactly: a pass asks for one of the two.
    """
    at.rounded = True
    return numbers(at, value)


def _most(at: PatternRewriter) -> int:
    return MOST_WEIGHTS if at.rounded else MOST


def _read(at: PatternRewriter, value: int) -> list[int]:
    """What a value is computed of, if it is of a kind that is computed here."""
    op = at.maker(value)
    spec = at.spec(op)
    wanted = len(spec.results) == 1 and _is_plain(at, spec.results[0].dtype)
    return at.operands(op) if wanted and _is_computed(at, spec) else []


def _computed(at: PatternRewriter, value: int) -> np.ndarray | None:
    """The elements of a value of which those of all operands are known, or are known to be none."""
    op = at.maker(value)
    spec = at.spec(op)
    if len(spec.results) != 1 or not _is_plain(at, spec.results[0].dtype):
        return None
    if spec.kind == "constant":
        return _constant(at, op, spec)
    if spec.kind == "argument":
        held, place = at.rewriting.before.source.closed_over, at.rewriting.before.argument_place[value]
        return np.asarray(held[place]) if place < len(held) else None
    if not _is_computed(at, spec):
        return None
    read = [known for operand in at.operands(op) if (known := at.numbers[operand]) is not None]
    if len(read) < len(spec.operands):
        return None
    by_column = _BY_ELEMENT.get(spec.kind) or _BY_COLUMN.get(spec.kind)
    shapes = [known.shape for known in read] if by_column else [t.shape for t in spec.operands]
    if max(map(math.prod, [np.broadcast_shapes(*shapes)] if by_column else shapes), default=0) > MOST_WEIGHTS:
        return None
    with np.errstate(all="ignore"):
        if by_column:
            made = by_column(*read) if spec.kind in _BY_ELEMENT else by_column(spec, *read)
        else:
            whole = [np.broadcast_to(known, shape) for known, shape in zip(read, shapes, strict=True)]
            made = (_ROUNDED if at.rounded and spec.kind in _ROUNDED else _OTHERS)[spec.kind](spec, *whole)
    if made is None or made.size > MOST_WEIGHTS:
        return None
    return np.asarray(made).astype(numpy_dtype(spec.results[0].dtype), copy=False)


def _is_computed(at: PatternRewriter, spec: OpSpec) -> bool:
    return any(spec.kind in kinds for kinds in (_BY_ELEMENT, _BY_COLUMN, _OTHERS, _ROUNDED if at.rounded else {}))


def _is_plain(at: PatternRewriter, dtype: str) -> bool:
    if at.rounded and dtype in ("bf16", "f16"):
        return True
    return dtype in ("f32", "f64", "i1") or dtype.removeprefix("u").removeprefix("i").isdigit()


def _constant(at: PatternRewriter, op: int, spec: OpSpec) -> np.ndarray | None:
    splat, source = splat_value(spec), at.rewriting.representative(at.rewriting.spec_number(op))
    if splat is not None:
        return np.full((1,) * len(spec.results[0].shape), splat)
    if source is None or math.prod(spec.results[0].shape) > MOST_WEIGHTS:
        return None
    return np.asarray(ir.DenseElementsAttr(source.attributes["value"]))


def _iota(spec: OpSpec) -> np.ndarray:
    dim, shape = spec.attributes["iota_dimension"], spec.results[0].shape
    return np.arange(shape[dim]).reshape([-1 if d == dim else 1 for d in range(len(shape))])


def _broadcast(spec: OpSpec, a: np.ndarray) -> np.ndarray:
    dims = spec.attributes["broadcast_dimensions"]
    shape = [1] * len(spec.results[0].shape)
    for d, n in zip(dims, a.shape, strict=True):
        shape[d] = n
    return a.transpose(np.argsort(dims)).reshape(shape)


def _reshaped(spec: OpSpec, a: np.ndarray) -> np.ndarray | None:
    """Of dims of which some of length 1 come or go, and of others."""
    shape, made = spec.operands[0].shape, spec.results[0].shape
    if [n for n in shape if n > 1] == [n for n in made if n > 1]:
        sizes = iter([m for n, m in zip(shape, a.shape, strict=True) if n > 1])
        return a.reshape([next(sizes) if n > 1 else 1 for n in made])
    return np.broadcast_to(a, shape).reshape(made) if math.prod(shape) <= MOST_WEIGHTS else None


def _divide(spec: OpSpec, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Of integers towards zero; each platform has its own result of a division by zero."""
    if np.issubdtype(a.dtype, np.floating):
        return a / b
    return None if (b == 0).any() else (a - np.fmod(a, b)) // b


def _remainder(spec: OpSpec, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """With the sign of what is divided."""
    return None if np.issubdtype(a.dtype, np.integer) and (b == 0).any() else np.fmod(a, b)


def _converted(spec: OpSpec, a: np.ndarray) -> np.ndarray | None:
    """Unknown where a number is none of the integers: what that gives, each platform says for itself."""
    made = np.dtype(numpy_dtype(spec.results[0].dtype))
    if np.issubdtype(a.dtype, np.floating) and np.issubdtype(made, np.integer):
        ends = np.iinfo(made)
        if not ((a > ends.min - 1.0) & (a < ends.max + 1.0)).all():
            return None
    return a


def _reduced(spec: OpSpec, a: np.ndarray, start: np.ndarray) -> np.ndarray | None:
    plain = spec.region == "and" and bool(start.all()) and a.dtype == bool
    return np.asarray(a.all(spec.attributes["dimensions"])) if plain else None


def _sliced(spec: OpSpec, a: np.ndarray) -> np.ndarray:
    names = ("start_indices", "limit_indices", "strides")
    return a[tuple(slice(*ends) for ends in zip(*(spec.attributes[name] for name in names), strict=True))]


_BY_COLUMN: Mapping[str, Callable[..., np.ndarray | None]] = {
    "broadcast_in_dim": _broadcast,
    "compare": lambda spec, a, b: _COMPARED[spec.attributes["comparison_direction"]](a, b),
    "convert": _converted,
    "divide": _divide,
    "iota": _iota,
    "remainder": _remainder,
    "reshape": _reshaped,
    "transpose": lambda spec, a: a.transpose(spec.attributes["permutation"]),
}
"""What is computed of dims of length 1 as of longer ones."""

_OTHERS: Mapping[str, Callable[..., np.ndarray | None]] = {
    "concatenate": lambda spec, *parts: np.concatenate(parts, spec.attributes["dimension"]),
    ROLL: lambda spec, a: np.roll(a, spec.attributes[ROLL], spec.attributes["dimension"]),
    "reduce": _reduced,
    "reverse": lambda spec, a: np.flip(a, spec.attributes["dimensions"]),
    "slice": _sliced,
}


def _summed(spec: OpSpec, a: np.ndarray, start: np.ndarray) -> np.ndarray | None:
    plain = spec.region == "add" and np.issubdtype(a.dtype, np.floating)
    return start + a.sum(spec.attributes["dimensions"]) if plain else _reduced(spec, a, start)


_ROUNDED: Mapping[str, Callable[..., np.ndarray | None]] = {
    "cosine": lambda spec, a: np.cos(a),
    "reduce": _summed,
    "sine": lambda spec, a: np.sin(a),
}
"""What `weights` computes besides."""
