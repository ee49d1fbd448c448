"""Arrays that a module holds as constants: arguments of the program, before those of the function.

    ap.jit(lambda x: x @ table, mesh)      main(%x): %c = constant dense<"0x3F...">      argument "closed_over/0", "x"

jax writes what a function closes over into the module, where each device would hold it whole and nothing would count
it. As arguments they take memory, are read, tiled, listed and explained like all others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from autopart.core.doors.jax_internals import ir, numpy_dtype
from autopart.core.op import OpSpec

LARGE_BYTES = 2**16
"""A constant of so many bytes, whose elements differ, becomes an argument. What is smaller, such as a table of indices,
stays where passes and the compiler look into it."""

CLOSED_OVER = "closed_over"
"""What the names of these arguments begin with."""

_HEX = re.compile(r'dense<"0x([0-9A-Fa-f]*)">')


def large_constants(specs: Sequence[OpSpec], made_from: Sequence[ir.Operation | None]) -> dict[int, np.ndarray]:
    """The arrays of those specs that are large constants, by number; `made_from` has an op of each."""
    found: dict[int, np.ndarray] = {}
    for number, (spec, op) in enumerate(zip(specs, made_from, strict=True)):
        if spec.kind == "constant" and op is not None and spec.results[0].bytes >= LARGE_BYTES:
            array = _elements(op, spec)
            if array is not None:
                found[number] = array
    return found


def _elements(op: ir.Operation, spec: OpSpec) -> np.ndarray | None:
    """The elements of a constant; None where all are one, or MLIR does not hand them out."""
    try:
        attribute = op.attributes["value"]
    except TypeError:  # complex numbers
        return None
    if not isinstance(attribute, ir.DenseElementsAttr) or attribute.is_splat:
        return None
    type_, dtype = spec.results[0], numpy_dtype(spec.results[0].dtype)
    if dtype.isbuiltin == 1:
        return np.array(cast(Any, attribute), dtype)
    bits = _HEX.search(str(attribute))
    data = np.frombuffer(bytes.fromhex(bits.group(1)), np.uint8) if bits else np.empty(0, np.uint8)
    return data.view(dtype).reshape(type_.shape) if data.size == type_.bytes else None
