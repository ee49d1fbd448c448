"""An op with one more dim in front of what it reads: batching, as `jax.vmap` does it, for StableHLO.

    dot_general lhs[m,k], rhs[k,n] -> out[m,n]
      lhs has the new dim, rhs has it    ->    lhs[s,m,k], rhs[s,k,n] -> out[s,m,n], s a batch dim
      lhs has it, rhs does not           ->    rhs is broadcast first

A rule says how (`@rule(..., batched=...)`): it is given the op as it was, operands of which some have the new dim, and
result types that have it. It returns None for what it has no form of; the op then runs once for each index of the dim.
"""

from __future__ import annotations

from autopart.core.ops.local_values import LocalOp, Value


def is_batched(local: LocalOp, operand: int) -> bool:
    """Whether an operand has the new dim."""
    return len(local.operand_types[operand].shape) > len(local.spec.operands[operand].shape)


def batch_size(local: LocalOp) -> int:
    """Length of the new dim."""
    return local.result_types[0].shape[0]


def with_batch(local: LocalOp, operand: int) -> Value:
    """An operand with the new dim: it is broadcast if it has none."""
    value, shape = local.operands[operand], local.operand_types[operand].shape
    if is_batched(local, operand):
        return value
    return local.broadcast(value, (batch_size(local), *shape), range(1, len(shape) + 1))


def all_batched(local: LocalOp) -> list[Value]:
    """All operands with the new dim."""
    return [with_batch(local, k) for k in range(len(local.operands))]


def behind(dims: tuple[int, ...] | list[int]) -> list[int]:
    """Where dims are once there is one more in front."""
    return [d + 1 for d in dims]


def alike(local: LocalOp) -> list[Value] | None:
    """The same op on more elements: elementwise ops, and ops that count dims from the last."""
    return local.clone(all_batched(local))


def elementwise(local: LocalOp) -> list[Value] | None:
    """As `alike`; a scalar that stands for an array of its own, a predicate or a bound, stays one where it can."""
    rank, operands = len(local.spec.results[0].shape), list[Value]()
    for k, type_ in enumerate(local.spec.operands):
        if type_.shape or not rank:
            operands.append(with_batch(local, k))
        elif is_batched(local, k):
            operands.append(local.broadcast(local.operands[k], local.result_types[0].shape, [0]))
        else:
            operands.append(local.operands[k])
    if "dimensions" in local.spec.attributes:
        return local.clone(operands, dimensions=list(range(rank + 1)))
    return local.clone(operands)
