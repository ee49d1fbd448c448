"""cuDNN's attention, `jax.nn.dot_product_attention(implementation="cudnn")`: batch and heads are sliced.

    q[b,s,h,d] k[b,t,h,d] v[b,t,h,e] bias[b,h,s,t] q_seqlen[b] kv_seqlen[b] -> o[b,s,h,e] lse[b,h,s]     forward
    ... lse[b,h,s] o[b,s,h,e] do[b,s,h,e] -> dq dk dv dbias                                            backward

    b, h   tiled; a bias that has one of them once is whole, and its gradient a sum

jax's own sharding rule for it names dims of q and v alone, and leaves the rest to its partitioner; so the rule is here.
Where there is no GPU a program for one is traced as if cuDNN were there; on other platforms its twin runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

from autopart.core.importer.host_calls import KernelCall
from autopart.core.importer.jaxprs import Use
from autopart.core.kernel_calls.kernel_body import KernelBody, reading
from autopart.core.kernel_calls.sharding_rule import NONE, Factors, factors_of
from autopart.core.ops.traits import Work

_INPUTS = ("q", "k", "v", "bias", "q_seqlen", "kv_seqlen", "q_offsets", "kv_offsets", "page_k", "page_v")
_BACK = (*_INPUTS, "lse", "o", "do")
_BTNH = 0
_PADDING, _CAUSAL = ("PADDING", "PADDING_CAUSAL"), ("CAUSAL", "PADDING_CAUSAL")
_EXPONENTIAL = 9.0
"""Operations of the vector unit for each score: scale, maximum, exponential, sum."""


def cudnn_attention(ctx: mlir.LoweringRuleContext, params: Mapping[str, Any], use: Use) -> KernelCall:
    """A call of it, either direction, use.read."""
    primitive, operands = cast(Primitive, ctx.primitive), tuple(ctx.avals_in)
    back = "bwd" in str(primitive)
    names = (_BACK if back else _INPUTS)[: len(operands)]
    factors = _factors(params, operands, tuple(ctx.avals_out), names, back).reading(use.read)

    def kernel(*arrays: Any) -> list[Any]:
        return primitive.bind(*arrays, **params)

    def twin(*arrays: Any) -> list[Any]:
        return (_twin_back if back else _twin)(params, dict(zip(names, arrays, strict=False)))

    has_twin = not params["dropout_rate"] and len(names) == len(operands) and not _pages(operands)
    run, like = (reading(lambda _, function=function: function, use.read) for function in (kernel, twin))
    name = f"cudnn attention{' backward' if back else ''}"
    body = KernelBody(name, operands, run, like if has_twin else None, ("cuda",))
    return KernelCall(
        body, factors, _work(params, operands, back), (str(primitive), str(operands), str(params), *use.read)
    )


def _pages(operands: Sequence[Any]) -> bool:
    return any(math.prod(a.shape) for a in operands[6:10])


def _dims(params: Mapping[str, Any], length: str, width: str) -> str:
    return f"b {length} h {width}" if params["layout"] == _BTNH else f"b h {length} {width}"


def _factors(
    params: Mapping[str, Any], operands: Sequence[Any], results: Sequence[Any], names: Sequence[str], back: bool
) -> Factors:
    """By the names of operands; one that is not used has no elements, and one of another name is whole."""
    q, k, v, o = (_dims(params, *of) for of in ("sd", "td", "te", "se"))
    known = dict(q=q, k=k, v=v, o=o, do=o, bias="b h s t", lse="b h s", q_seqlen="b", kv_seqlen="b")
    left = [q, k, v, known["bias"]] if back else [o, known["lse"]]

    def text(name: str, aval: Any) -> str:
        dims = known.get(name, "").split()
        used = math.prod(aval.shape) > 0 and len(dims) == len(aval.shape)
        return " ".join(dims if used else [NONE] * len(aval.shape))

    named = [*names, *[""] * (len(operands) - len(names))]
    sides = ", ".join(map(text, named, operands)), ", ".join(left[: len(results)])
    plain = not _pages(operands) and len(names) == len(operands)
    sliced = ("tile -; reduce b h" if back else "tile b h") if plain else "tile -"
    return factors_of(f"{sides[0]} -> {sides[1]}; {sliced}", [a.shape for a in operands], [a.shape for a in results])


def _work(params: Mapping[str, Any], operands: Sequence[Any], back: bool) -> Work:
    """Of the scores that a causal mask or a window leaves: two products forward, five backward."""
    (b, *_), (h, s, t) = operands[0].shape, _lengths(params, operands)
    d, e = operands[0].shape[-1], operands[2].shape[-1]
    rows, window = np.arange(s), params["sliding_window_length"]
    behind = np.minimum(rows + 1, t) if params["mask_type"].name in _CAUSAL else np.full(s, t)
    before = 0 if window is None else np.maximum(rows + 1 - window, 0)
    scores = float(b * h) * float(np.maximum(behind - before, 0).sum())
    products = scores * (3 * d + 2 * e) * 2 if back else scores * (d + e) * 2
    return Work(products, _EXPONENTIAL * scores)


def _lengths(params: Mapping[str, Any], operands: Sequence[Any]) -> tuple[int, int, int]:
    """Heads, queries and keys."""
    q, k = operands[0].shape, operands[1].shape
    return (q[2], q[1], k[1]) if params["layout"] == _BTNH else (q[1], q[2], k[2])


# ---- the twin


def _twin(params: Mapping[str, Any], given: Mapping[str, Any]) -> list[Any]:
    """Attention in plain jax: [o, log of the sums of exponentials]."""
    q, k, v = (_heads_first(params, given[name]) for name in ("q", "k", "v"))
    groups = q.shape[1] // k.shape[1]
    k, v = (jax.numpy.repeat(x, groups, axis=1) for x in (k, v))
    scores = jax.numpy.einsum("bhsd,bhtd->bhst", q, k, preferred_element_type=np.float32) * params["scale"]
    if given["bias"].size:
        scores += given["bias"].astype(np.float32)
    scores = jax.numpy.where(_seen(params, given, scores.shape), scores, -0.7 * np.finfo(np.float32).max)
    lse = jax.nn.logsumexp(scores, axis=-1)
    weights = jax.numpy.exp(scores - lse[..., None]).astype(v.dtype)
    o = jax.numpy.einsum("bhst,bhte->bhse", weights, v)
    if params["mask_type"].name in _PADDING:
        o *= (np.arange(o.shape[2])[:, None] < given["q_seqlen"].reshape(-1, 1, 1, 1)).astype(o.dtype)
    return [_heads_first(params, o).astype(given["q"].dtype), lse]


def _twin_back(params: Mapping[str, Any], given: Mapping[str, Any]) -> list[Any]:
    """What flows back to q, k, v and, where there is one, the bias."""
    to = ("q", "k", "v", "bias")[: 3 + params["variadic_args"][1]]

    def forward(*arrays: Any) -> Any:
        return _twin(params, {**given, **dict(zip(to, arrays, strict=True))})[0]

    return list(jax.vjp(forward, *(given[name] for name in to))[1](given["do"]))


def _heads_first(params: Mapping[str, Any], x: Any) -> Any:
    return jax.numpy.swapaxes(x, 1, 2) if params["layout"] == _BTNH else x


def _seen(params: Mapping[str, Any], given: Mapping[str, Any], shape: tuple[int, ...]) -> Any:
    """Which keys each query sees."""
    row, column = (jax.lax.broadcasted_iota(np.int32, shape, d) for d in (2, 3))
    kind, window = params["mask_type"].name, params["sliding_window_length"]
    seen = row >= column if kind in _CAUSAL else row >= 0
    if window is not None:
        seen &= row - column < window
    if kind in _PADDING:
        seen &= (row < given["q_seqlen"].reshape(-1, 1, 1, 1)) & (column < given["kv_seqlen"].reshape(-1, 1, 1, 1))
    return seen
