"""Tile mappings of rolls, an op that no module has: the pass `refilled_slices` makes it of the two parts of one array,
joined the other way round. A module has these again.

x[i,j] -> y[i,j']     i    (0) -> tile 0
                      j    (1) -> tile 1     a tile reads what its neighbours have, the first what the last one has
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import OpSpec, TileMapping
from autopart.core.ops.batching import all_batched
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.rules.factors import common_dims
from autopart.core.ops.rules.stretches import reads_of, stretched
from autopart.core.ops.traits import Elementwise
from autopart.core.stretch import Stretch

ROLL = "roll"
"""The kind, and the attribute: by how many places elements move on along `dimension`, the last ones to the front."""


def _localize(local: LocalOp) -> list[Value]:
    if list(reads_of(local)):
        return [local.operands[0]]
    return [_rolled(local, local.operands[0], local.spec.attributes["dimension"])]


def _batched(local: LocalOp) -> list[Value] | None:
    return [_rolled(local, all_batched(local)[0], local.spec.attributes["dimension"] + 1)]


def _rolled(local: LocalOp, value: Value, dim: int) -> Value:
    """The last elements of a dim, and then the others."""
    shape, by = local.type_of(value).shape, local.spec.attributes[ROLL]
    size = shape[dim]
    parts = []
    for begin, end in ((size - by, size), (0, size - by)):
        ends = [(begin, end) if d == dim else (0, n) for d, n in enumerate(shape)]
        parts.append(local.slice(value, *zip(*ends, strict=True)))
    return local.concatenate(parts, dim)


@rule(
    ROLL,
    traits=Elementwise(0, joins=True, shown=("dimension", ROLL), passes=moved()),
    localize=_localize,
    batched=_batched,
)
def roll(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim; the one that is rolled by what its tiles read."""
    dim, shape, by = spec.attributes["dimension"], spec.results[0].shape, spec.attributes[ROLL]
    yield from common_dims(spec, [d for d in range(len(shape)) if d != dim])
    low = by if 2 * by <= shape[dim] else by - shape[dim]
    yield stretched(spec, {0: (dim, Stretch(shape[dim], low, wraps=True))}, dim)
