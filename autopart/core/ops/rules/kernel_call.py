"""Tile mappings of kernels: those that stand on the call (`core/kernel_calls/`).

    custom_call @autopart_kernel(x[8,16], w[16]) {rule "a b, b -> a b; tile a=8; reduce -"}      a  (0, _) -> tile 0

A call of slices says how far those may be sliced, and has their share of the work: a program that is written out in
parts, microbatch by microbatch, is read again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

from autopart.core.kernel_calls.call_config import CONFIG, KERNEL, config_of
from autopart.core.kernel_calls.sharding_rule import Factors, factors_of
from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.batching import batch_size, is_batched
from autopart.core.ops.rule import LocalOp, Value, register_custom_call
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.positions import offset
from autopart.core.ops.traits import Opaque, Work


def factors_on(spec: OpSpec) -> Factors:
    """The factors of a call; none where nothing stands on it."""
    operands, results = (tuple(t.shape for t in types) for types in (spec.operands, spec.results))
    config = config_of(spec)
    return Factors((), (), ()) if config is None else _factors(config["rule"], operands, results)


@functools.lru_cache(maxsize=4096)
def _factors(rule: str, operands: tuple[tuple[int, ...], ...], results: tuple[tuple[int, ...], ...]) -> Factors:
    return factors_of(rule, operands, results)


def _work(spec: OpSpec) -> Work | None:
    """What the call says of its flop; -1 where nobody knows them."""
    config = config_of(spec)
    if config is None or config["matrix_flop"] < 0:
        return None
    return Work(float(config["matrix_flop"]), float(config["vector_flop"]))


def _localize(local: LocalOp) -> list[Value]:
    config, factors = dict(local.spec.attributes[CONFIG]), factors_on(local.spec)
    ways = {factor.name: local.ways(number) for number, factor in enumerate(factors.sliced)}
    share = {work: config[work] // math.prod(ways.values()) for work in ("matrix_flop", "vector_flop")}
    operands = list(local.operands)
    for k, number in factors.starts.items():
        if local.ways(number) > 1:
            operands[k] = _moved(local, operands[k], number)
    left: dict[str, Any] = {CONFIG: {**config, **share, "rule": str(factors.after(ways))}}
    return local.clone(operands, None, **left)


def _moved(local: LocalOp, start: Value, number: int) -> Value:
    """A start, behind the slices of a factor that other devices hold."""
    dims = local.mappings[number].operands
    length = next(t.shape[d] for t, d in zip(local.operand_types, dims, strict=True) if d != WHOLE)
    return local.binary("add", start, local.convert(offset(local, number, length), local.type_of(start).dtype))


def _batched(local: LocalOp) -> list[Value] | None:
    """The kernel mapped over the dim; none where a start would have one."""
    config, factors = config_of(local.spec), factors_on(local.spec)
    has_dim = [is_batched(local, k) for k in range(len(local.operands))]
    if config is None or any(has_dim[k] for k in factors.starts):
        return None
    size = batch_size(local)
    work = {name: config[name] * size for name in ("matrix_flop", "vector_flop")}
    left: dict[str, Any] = {CONFIG: {**config, **work, "rule": str(factors.mapped(has_dim, size))}}
    return local.clone(None, None, **left)


_EXAMPLE = (
    f'call_target_name = "{KERNEL}", {CONFIG} = {{index = 0 : i64, name = "matmul", whole = "", products = "", '
    'matrix_flop = 384 : i64, vector_flop = 0 : i64, rule = "m k, k n -> m n; tile m=4 n=6; reduce k:sum=8"}'
)


@register_custom_call(
    KERNEL,
    traits=Opaque(flop=_work, flop_reason="those of the kernel's twin; XLA knows no flop of a custom call"),
    localize=_localize,
    batched=_batched,
    examples=(op("custom_call", "4x8xf32, 8x6xf32 -> 4x6xf32", _EXAMPLE),),
)
def kernel_call(spec: OpSpec) -> Iterable[TileMapping]:
    """One for each factor that its rule slices."""
    return factors_on(spec).mappings()
