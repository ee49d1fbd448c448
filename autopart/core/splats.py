"""A value whose elements are all one constant, seen behind the broadcasts and views that spread it.

%z = broadcast_in_dim(constant 0)      ->      splat_behind(program, %z) == 0
"""

from __future__ import annotations

import numpy as np

from autopart.core.op import splat_value
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Traits, View
from autopart.core.program import Program


def splat_behind(program: Program, value: int) -> np.generic | None:
    """The one number of all elements of a value; None where there is no such number, or it is not known."""
    op = int(program.value_op[value])
    while len(program.operands_of(op)) == 1 and _spreads(traits_of(program.spec(op))):
        op = int(program.value_op[program.operands_of(op)[0]])
    return splat_value(program.spec(op))


def _spreads(traits: Traits) -> bool:
    """True for a view, and for the broadcast of a scalar."""
    return isinstance(traits, View) or traits.cloned_per_use
