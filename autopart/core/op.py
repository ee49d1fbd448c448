"""What an op is to the partitioner: its kind, attributes and types, without its operands.

Ops that are equal in all of this share one `OpSpec`, so that a rule runs once for the 32 equal layers of a
transformer:

    OpSpec(kind="dot_general", attributes={...}, operands=(f32[8,16], f32[16,4]), results=(f32[8,4],))

A `TileMapping` says: slice these operands so, and the op becomes a loop with this action per result. It is one
einsum-like factor of the op, as long as `extent`:

    lhs[b,k] . rhs[k,n] -> out[b,n]
      b  operands (0, WHOLE)  results (0,)       extent 8
      n  operands (WHOLE, 1)  results (1,)       extent 4
      k  operands (1, 0)      results (SUM,)     extent 16

Two mappings that slice one dim exclude each other, unless one follows the other: a reshape of 64 into [4, 16] tiles 4
once the axes outside have cut 64 four ways and so used up the 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autopart.core.stretch import Stretch

WHOLE = -1
"""Operand entry of a mapping: the operand is not sliced."""

SUM, MAX, MIN, MUL, AND, OR = 17, 18, 19, 20, 21, 22
"""Result entries of a mapping that are reductions; smaller numbers are tile<d>."""

ANY = 23
"""Result entry of a mapping: every device computes the same value."""

REDUCTION_NAMES = {SUM: "sum", MAX: "max", MIN: "min", MUL: "mul", AND: "and", OR: "or"}

MAX_RANK = 16

_BITS = {
    "f4E2M1FN": 4,
    "i4": 4,
    "ui4": 4,
    "i2": 2,
    "ui2": 2,
    "i1": 8,
    "bf16": 16,
    "f16": 16,
    "f32": 32,
    "f64": 64,
    "complex<f32>": 64,
    "complex<f64>": 128,
}


@dataclass(frozen=True)
class TensorType:
    """Shape and element type (StableHLO spelling: f32, bf16, i32, ui8, i1, complex<f32>)."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def element_bytes(self) -> float:
        """Bytes per element; a packed 4-bit element is half a byte, a bool one byte."""
        bits = _BITS.get(self.dtype)
        if bits is None:
            digits = "".join(c for c in self.dtype.lstrip("uif")[:2] if c.isdigit())
            bits = int(digits) if digits else 32
        return bits / 8

    @property
    def bytes(self) -> float:
        """Bytes of the whole array."""
        return math.prod(self.shape) * self.element_bytes

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class TileMapping:
    """One way to turn an op into a loop over a mesh axis.

    operands  per operand the dim that is sliced, or `WHOLE`
    results   per result the dim the iterations tile, or a reduction (`SUM`, ...), or `ANY`
    extent    length of the factor: the product of the axes that take this mapping must divide it
    after     a mapping that loops outside must have used up, to its whole extent, before this one is true
    drawn_by  (operand, dim) pairs: a tile there, which no mapping that can be taken slices, is moved to where this one
              slices the operand, by an exchange instead of a gather
    reads     per operand the stretch that an iteration reads of the dim instead of its tile, or None; () for none
    """

    operands: tuple[int, ...]
    results: tuple[int, ...]
    extent: int
    after: TileMapping | None = None
    drawn_by: tuple[tuple[int, int], ...] = ()
    reads: tuple[Stretch | None, ...] = ()

    @property
    def is_only_drawn(self) -> bool:
        """It is for a tile that is there: it slices no operand, or neighbours' elements are moved for it.

        A reader that slices the result does as well without it.
        """
        return bool(self.drawn_by) and (bool(self.reads) or all(dim == WHOLE for dim in self.operands))

    def stretch(self, operand: int) -> Stretch | None:
        """What an iteration reads of an operand instead of a tile of it, if so."""
        return self.reads[operand] if self.reads else None


@dataclass(frozen=True)
class OpSpec:
    """Kind, attributes and types of an op: all that a rule may look at.

    kind        op name without its StableHLO prefix ("dot_general"; "chlo.erf_inv" keeps the chlo prefix)
    attributes  decoded to Python: ints, bools, strings, tuples, `DimensionNumbers` as nested dicts,
                a splat constant as a NumPy scalar, any other constant as an `Opaque`
    region      what a reducer computes ("add", "max", "min", "mul", "and", "or"), "overwrite" for a scatter
                that returns the update, "argmax" or "argmin" of pairs (value, position), "opaque" for any other
                region, "" without regions
    """

    kind: str
    attributes: Mapping[str, Any] = field(hash=False)
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    region: str = ""


@dataclass(frozen=True)
class Opaque:
    """An attribute that is not decoded, such as a large constant; equal attributes share one number."""

    number: int


def splat_value(spec: OpSpec) -> np.generic | None:
    """The value of a splat constant; None where the constant is dense or `spec` is no constant."""
    value = spec.attributes.get("value") if spec.kind == "constant" else None
    return value if isinstance(value, np.generic) else None
