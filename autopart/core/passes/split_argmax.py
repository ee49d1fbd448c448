"""The pass `split_argmax`: the position of an extreme is found by two reductions that devices can share.

    %v, %p = reduce(%x, iota) by argmax        ->      %m = reduce(%x) by maximum
                                                       %h = %x == %m                      (or %x is no number)
                                                       %p = reduce(select(%h, iota, most)) by minimum

No collective combines pairs, so a tile of the reduced dim would be gathered: the logits of a vocabulary, for each token
that is decoded. Of the two reductions each has a collective, of a number per row. On one device they read the array
twice, which beside the matmul that makes logits is nothing; short dims of small arrays stay as they are.

The numbers are the same to the bit: the first of equal extremes, the first that is no number before all others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.doors.jax_internals import numpy_dtype
from autopart.core.op import MAX, MIN, OpSpec
from autopart.core.ops.rules.reduce import identity
from autopart.core.passes.groups import is_long
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass

_EXTREMES = {"argmax": (MAX, "maximum"), "argmin": (MIN, "minimum")}


@register_pass("split_argmax")
@dataclass(frozen=True)
class SplitArgmax(PatternPass):
    """Argmax and argmin along long dims become two reductions."""

    again = False
    roots = ("reduce",)

    def wanted(self, spec: OpSpec) -> bool:
        """See `PatternPass.wanted`."""
        dims, array = spec.attributes["dimensions"], spec.operands[0]
        return spec.region in _EXTREMES and len(dims) == 1 and is_long(array, dims[0]) and array.dtype != "i1"

    def rewrite(self, at: PatternRewriter, op: int) -> tuple[int, int] | None:
        """See `PatternPass.rewrite`."""
        spec, (array, places, start, zero) = at.spec(op), at.operands(op)
        (code, extreme), dims, shape = _EXTREMES[spec.region], spec.attributes["dimensions"], spec.operands[0].shape
        counts, known, first = at.spec(at.maker(places)), at.splat(start), at.splat(zero)
        if counts.kind != "iota" or (counts.attributes["iota_dimension"],) != dims or first is None or first != 0:
            return None
        if known is None or known != identity(code, spec.operands[0].dtype):
            return None
        value = at.combine(extreme, array, start, dims)
        spread = at.broadcast(value, shape, [d for d in range(len(shape)) if d not in dims])
        found = at.binary("or", at.compare(array, spread, "EQ"), at.compare(array, array, "NE"))
        dtype = spec.operands[1].dtype
        most = at.constant(np.iinfo(numpy_dtype(dtype)).max, dtype)
        return value, at.combine("minimum", at.select(found, places, at.broadcast(most, shape)), most, dims)
