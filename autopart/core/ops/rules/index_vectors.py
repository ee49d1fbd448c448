"""The index vectors of gather and scatter, one component per indexed dim.

    indices i32[b,2], index_vector_dim 1    ->    components i32[b], i32[b]

Where an indexed dim is sliced, its component is shifted to count from the start of this device's slice.
"""

from __future__ import annotations

from collections.abc import Sequence

from autopart.core.ops.rule import LocalOp, Value


def components(local: LocalOp, indices: Value, vector_dim: int) -> list[Value]:
    """The index array taken apart; each component has the shape of the index array without the vector dim."""
    shape = local.type_of(indices).shape
    if vector_dim == len(shape):
        return [indices]
    parts = []
    for k in range(shape[vector_dim]):
        starts = [k if d == vector_dim else 0 for d in range(len(shape))]
        limits = [k + 1 if d == vector_dim else n for d, n in enumerate(shape)]
        part = local.slice(indices, starts, limits) if shape[vector_dim] > 1 else indices
        parts.append(local.reshape(part, shape[:vector_dim] + shape[vector_dim + 1 :]))
    return parts


def assembled(local: LocalOp, parts: Sequence[Value], vector_dim: int) -> Value:
    """The index array put together again, of the components' element type; the vector dim is made explicit."""
    shape = local.type_of(parts[0]).shape
    single = (*shape[:vector_dim], 1, *shape[vector_dim:])
    columns = [local.reshape(part, single) for part in parts]
    return local.concatenate(columns, vector_dim) if len(columns) > 1 else columns[0]
