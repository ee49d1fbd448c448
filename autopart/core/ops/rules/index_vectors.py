"""The index vectors of gather and scatter, one component per indexed dim.

    indices i32[b,2], index_vector_dim 1    ->    components i32[b], i32[b]

Where an indexed dim is sliced, its component is shifted to count from the start of this device's slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autopart.core.op import OpSpec
from autopart.core.ops.rule import LocalOp, Value


@dataclass(frozen=True)
class IndexArray:
    """The index array of a gather or scatter.

    operand     its number among the op's operands
    vector_dim  the dim that holds an index vector; the rank if vectors have one component and no dim
    indexed     the dim of operand 0 that each component indexes
    single      dims of operand 0 of which an index takes one element, and which have no dim in the window
    batching    dims of the index array that go with a batching dim of operand 0
    """

    operand: int
    vector_dim: int
    indexed: tuple[int, ...]
    single: tuple[int, ...]
    batching: tuple[int, ...]


def index_array(spec: OpSpec) -> IndexArray | None:
    """What `spec` reads or writes at; None if it is no gather or scatter."""
    if spec.kind == "gather":
        n = spec.attributes["dimension_numbers"]
        read = n["start_index_map"], n["collapsed_slice_dims"], n["start_indices_batching_dims"]
        return IndexArray(1, n["index_vector_dim"], *map(tuple, read))
    if spec.kind == "scatter":
        n = spec.attributes["scatter_dimension_numbers"]
        written = n["scattered_dims_to_operand_dims"], n["inserted_window_dims"], n["scatter_indices_batching_dims"]
        return IndexArray(len(spec.results), n["index_vector_dim"], *map(tuple, written))
    return None


def positions(spec: OpSpec) -> dict[int, int]:
    """Dim of the index array -> dim of the operand that its own position indexes: row b reads or writes row b.

    The pass `index_positions` finds them; such dims tile together, as batching dims do.
    """
    return dict(spec.attributes.get("positions", ()))


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


def counted_again(local: LocalOp, indices: int) -> dict[int, int]:
    """Operand dim -> dim of the components along which its index counts from 0 on each device.

    Those of `positions` whose loop slices the operand, and operand number `indices`, together: row b of the slice of
    one is row b of the slice of the other.
    """
    array, along = index_array(local.spec), positions(local.spec)
    counted: dict[int, int] = {}
    for m, mapping in enumerate(local.mappings):
        dim, index_dim = mapping.operands[0], mapping.operands[indices]
        if local.ways(m) > 1 and array is not None and index_dim in along and along[index_dim] == dim:
            counted[dim] = index_dim - (index_dim > array.vector_dim)
    return counted
