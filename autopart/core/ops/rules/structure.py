"""Tile mappings of the ops that hold a program together, not in its module but made when it is read.

    argument (next)          an argument; `next` is its updated value, where the program returns one
    carry init, next         a loop-carried value: inside the loop, and after it
    join a, b, ...           one result of a case: whichever branch ran
    tag x                    a named value

All are identities: operands and results tile alike. Marks of a scope (while, case, condition) carry no array that a
loop over a mesh axis could slice.
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import OpSpec, TileMapping
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.rules.factors import common_dims
from autopart.core.ops.traits import Structural, View


def _localize(local: LocalOp) -> list[Value]:
    """The local operands, as they are; which of them reaches a join or a carry is for control flow to say."""
    return list(local.operands)[: len(local.result_types)]


@rule("argument", traits=Structural(), localize=_localize, structural=True)
@rule("carry", "join", traits=Structural(passes=moved()), localize=_localize, structural=True)
@rule("tag", traits=View(cheap_to_regather=True, passes=moved()), localize=_localize, structural=True)
def identity(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim, in all operands and results at once."""
    return common_dims(spec, range(len(spec.results[0].shape)))


@rule("while", "case", "if", "condition", traits=Structural(), localize=_localize, structural=True)
def scope_mark(spec: OpSpec) -> Iterable[TileMapping]:
    """No mappings: predicates are scalars, and results are joined by ops of their own."""
    return ()
