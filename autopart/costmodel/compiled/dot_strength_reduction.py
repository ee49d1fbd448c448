"""Products that are none: XLA:TPU multiplies and sums where an operand has one row for each matrix.

    dot %q[b,h,d], %k[b,t,h,d]      one query a head: its scores are reduce_add(%q * %k), and no matrix unit runs

Such a product reads arrays as they lie, computes what it reads, and asks for no layout.
"""

from __future__ import annotations

import math

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Matmul, largest


def is_summed(spec: OpSpec) -> bool:
    """True for products along batch dims in which an operand has nothing but those and what is summed.

    Not where there is nothing to sum.
    """
    traits = traits_of(spec)
    if not isinstance(traits, Matmul) or traits.sides is None or not traits.sides(spec).batch:
        return False
    flop, result = traits.flop(spec), spec.results[0]
    if flop == 2 * largest(spec.results):
        return False
    summed = flop / 2 / max(1.0, largest((result,)))
    each = math.prod(result.shape[d] for d in traits.sides(spec).batch) * summed
    return any(largest((operand,)) == each for operand in spec.operands)
