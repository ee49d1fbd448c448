"""The pass `index_positions`: gathers and scatters whose index counts along their own batch are marked as such.

    logp[jnp.arange(B), labels]

    %p = iota                          0 1 2 ... B-1
    %i = concatenate %p, %labels       row b is (b, labels[b])
    gather %logp, %i                   reads row b of logp for row b of the result: rows tile together

An index array says where each element of its batch reads. Where one component of it is the position along a batch dim
itself, the batch dim and the operand's dim go together, as batching dims do, and the op's rule may tile them together;
else a device would need all rows of the operand. The mark is the attribute `positions` of the op: pairs (dim of the
index array, dim of the operand).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rules.index_vectors import index_array
from autopart.core.passes.known_numbers import columns
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass


@register_pass("index_positions")
@dataclass(frozen=True)
class IndexPositions(PatternPass):
    """Marks gathers and scatters that read or write row b for row b; nothing else changes."""

    def wanted(self, spec: OpSpec) -> bool:
        """See `PatternPass.wanted`."""
        return index_array(spec) is not None

    def rewrite(self, at: PatternRewriter, op: int) -> None:
        """See `PatternPass.rewrite`."""
        spec, array, found = at.spec(op), index_array(at.spec(op)), dict[int, int]()
        if array is None:
            return
        operand, value = spec.operands[0].shape, at.operands(op)[array.operand]
        for dim, part in zip(array.indexed, _components(at, value, array.vector_dim), strict=False):
            along = None if part is None else _counts_along(at, part)
            if along is None or dim not in array.single or along in array.batching:
                continue
            if at.type_of(value).shape[along] == operand[dim]:
                found.setdefault(along, dim)
        if found:
            at.mark(op, positions=tuple(sorted(found.items())))


def _components(at: PatternRewriter, value: int, dim: int) -> Iterator[int | None]:
    """The values that are joined to an index array, per component; None for those of which it is not known."""
    shape, made = at.type_of(value).shape, at.spec(at.maker(value))
    if dim == len(shape) or shape[dim] == 1:
        yield value
    elif made.kind == "concatenate" and made.attributes["dimension"] == dim:
        for part in at.operands(at.maker(value)):
            yield from _components(at, part, dim)
    else:
        yield from [None] * shape[dim]


def _counts_along(at: PatternRewriter, value: int) -> int | None:
    """The dim along which the elements of a value count from 0."""
    known = columns(at, value)
    longer = [] if known is None else [d for d, n in enumerate(known.shape) if n > 1]
    if known is None or len(longer) != 1:
        return None
    return longer[0] if np.array_equal(known.reshape(-1), np.arange(known.size)) else None
