"""Tile mappings of collectives and sharding marks in a program for one device, where they change nothing.

    all_reduce over groups of one: x[i,j] -> x[i,j]      i  (0) -> tile 0      j  (0) -> tile 1

A one-device `shard_map` leaves them behind. On several devices the op must not run, so what remains is its operand.
Collectives over larger groups stand in regions that a model partitions by hand. They run as they are; along other axes
they tile on every dim that they do not work along.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autopart.core.op import OpSpec, TileMapping
from autopart.core.ops.passages import Passage, moved
from autopart.core.ops.rule import Example, LocalOp, Value, register_custom_call, rule
from autopart.core.ops.rules.example_text import op, reducer
from autopart.core.ops.rules.factors import common_dims
from autopart.core.ops.traits import Collective, View

_WORKED_ALONG = ("all_gather_dim", "scatter_dimension", "split_dimension", "concat_dimension")
_PRICED_AS = {
    "cross-replica-sum": "all_reduce",
    "collective_permute": "all_permute",
    "collective_broadcast": "all_permute",
}
"""Kinds that the cost model has under another name; a broadcast sends what a permute does."""
_GROUPS = "replica_groups = dense<0> : tensor<1x1xi64>"


def _examples(kind: str) -> list[Example]:
    types, region = "4x6xf32 -> 4x6xf32", ""
    more = {
        "all_gather": ", all_gather_dim = 0 : i64",
        "all_to_all": ", split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 1 : i64",
        "reduce_scatter": ", scatter_dimension = 0 : i64",
    }.get(kind, "")
    if kind in ("all_reduce", "reduce_scatter"):
        region = reducer("add f32")
    if kind == "collective_permute":
        return [op(kind, types, "source_target_pairs = dense<0> : tensor<1x2xi64>")]
    return [op(kind, types, _GROUPS + more, region)]


def _traits(kind: str) -> Collective:
    """Over groups of one the operand itself: nothing is left to reduce or to send."""
    adds = kind in ("all_reduce", "cross-replica-sum")
    return Collective(
        communicates=communicates,
        priced_as=_PRICED_AS.get(kind, kind),
        read_through=True,
        passes=_unchanged,
        flop_reason="XLA counts an add per element, also over a group of one" if adds else "",
    )


def communicates(spec: OpSpec) -> bool:
    """True for a collective between several devices."""
    if "replica_groups" in spec.attributes:
        groups: Any = spec.attributes["replica_groups"]
        return not isinstance(groups, tuple) or [len(group) for group in groups] != [1]
    pairs: Any = spec.attributes.get("source_target_pairs", ())
    return not isinstance(pairs, tuple) or len(pairs) > 1


def _unchanged(spec: OpSpec) -> Iterable[Passage]:
    return moved()(spec) if spec.operands == spec.results and not communicates(spec) else ()


def _operands(local: LocalOp) -> list[Value]:
    return local.clone() if communicates(local.spec) else list(local.operands)


@rule(
    "all_reduce",
    "all_gather",
    "all_to_all",
    "reduce_scatter",
    "collective_permute",
    "collective_broadcast",
    "cross-replica-sum",
    traits=_traits,
    localize=_operands,
    examples=_examples,
)
def one_device_collective(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim that the op does not work along; over groups of one every dim, if the op leaves shapes as they are."""
    if not communicates(spec):
        return _identity(spec)
    along = {spec.attributes[name] for name in _WORKED_ALONG if name in spec.attributes}
    return common_dims(spec, (d for d in range(len(spec.results[0].shape)) if d not in along))


def _identity(spec: OpSpec) -> Iterable[TileMapping]:
    if spec.operands != spec.results:
        return ()
    return common_dims(spec, range(len(spec.results[0].shape))) if len(spec.results) == 1 else ()


for _target in ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"):
    register_custom_call(
        _target,
        traits=View(read_through=True, passes=_unchanged, flop_reason="XLA knows no flop of a custom call"),
        localize=_operands,
        examples=[op("custom_call", "4x6xf32 -> 4x6xf32", f'call_target_name = "{_target}"')],
    )(_identity)
