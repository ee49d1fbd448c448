"""Tile mappings of transpose.

x[i,j,k] -> y[k,i,j]    permutation = [2, 0, 1]

k  (2) -> tile 0        i  (0) -> tile 1        j  (1) -> tile 2

A dim of which a device has one element is taken out: [1,d,f] -> [1,f,d] is reshaped to [d,f], turned and
reshaped back. XLA folds a turned matrix into the product before it, but no turned batch of one matrix:
it would keep the layout, and copy whatever meets it, as the weights of an expert that has a device for itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import OpSpec, TensorType, TileMapping
from autopart.core.ops.batching import behind, with_batch
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.traits import Elementwise


def _turns(spec: OpSpec) -> bool:
    permutation = spec.attributes["permutation"]
    return permutation[-1] != len(permutation) - 1


def _localize(local: LocalOp) -> list[Value]:
    given, whole = local.operand_types[0].shape, local.spec.operands[0].shape
    if not any(here == 1 < everywhere for here, everywhere in zip(given, whole, strict=True)):
        return local.clone()
    turned = [d for d in local.spec.attributes["permutation"] if given[d] > 1]
    kept, value = sorted(turned), local.operands[0]
    if turned != kept:
        dtype = local.operand_types[0].dtype
        value = local.reshape(value, [given[d] for d in kept])
        result = TensorType(tuple(given[d] for d in turned), dtype)
        (value,) = local.clone([value], [result], permutation=[kept.index(d) for d in turned])
    return [local.reshape(value, local.result_types[0].shape)]


def _batched(local: LocalOp) -> list[Value] | None:
    return local.clone([with_batch(local, 0)], permutation=[0, *behind(local.spec.attributes["permutation"])])


@rule(
    "transpose",
    traits=Elementwise(0, turns=_turns, cheap_to_regather=True, shown=("permutation",), passes=moved()),
    localize=_localize,
    examples=(op("transpose", "2x4x6xf32 -> 6x2x4xf32", "permutation = array<i64: 2, 0, 1>"),),
    batched=_batched,
)
def transpose(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim, where the permutation puts it."""
    shape = spec.results[0].shape
    return [TileMapping((d,), (r,), shape[r]) for r, d in enumerate(spec.attributes["permutation"])]
