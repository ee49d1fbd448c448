"""Functions of jax that `ap.kernel` knows by name: paged attention on TPUs, whose kernels copy blocks of their own.

    paged_attention          q[b,h,d], pages k and v[h,p,s,d]       each device has some sequences and heads
    ragged_paged_attention   q[t,h,d], pages of k and v[p,s,2h,d]   each device has some heads

Their twins run where their kernels cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class KnownFunction(NamedTuple):
    """A function, by the rule of operands and results of given shapes, and its twin."""

    rule: Callable[[Sequence[tuple[int, ...]]], str]
    twin: Callable[..., Any]


def known_function(fn: Callable[..., Any]) -> KnownFunction | None:
    """What is known of a function of jax, be some of its arguments given."""
    plain: Any = getattr(fn, "func", fn)
    name = getattr(plain, "__name__", "")
    return (
        FUNCTIONS.get(name) if getattr(plain, "__module__", "").startswith("jax.experimental.pallas.ops.tpu") else None
    )


def _paged(
    q: Any,
    k: Any,
    v: Any,
    lengths: Any,
    pages: Any,
    *,
    mask_value: float = -1e30,
    attn_logits_soft_cap: Any = None,
    **_: Any,
) -> Any:
    k, v = (jnp.moveaxis(x[:, pages], 0, 1).reshape(q.shape[0], x.shape[0], -1, x.shape[-1]) for x in (k, v))
    by_group = q.reshape(*k.shape[:2], -1, q.shape[-1])
    scores = _capped(
        jnp.einsum("bgjd,bgtd->bgjt", by_group, k, preferred_element_type=jnp.float32), attn_logits_soft_cap
    )
    scores = jnp.where(jnp.arange(k.shape[2]) < lengths[:, None, None, None], scores, mask_value)
    return jnp.einsum("bgjt,bgtd->bgjd", jax.nn.softmax(scores), v).reshape(q.shape).astype(q.dtype)


def _ragged(
    q: Any, kv: Any, lengths: Any, pages: Any, starts: Any, count: Any, *, sm_scale: float = 1.0, soft_cap: Any = None,
    sliding_window: Any = None, k_scale: Any = None, v_scale: Any = None, **_: Any,
) -> Any:  # fmt: skip
    tokens = jnp.arange(q.shape[0])
    sequence = jnp.clip(jnp.searchsorted(starts, tokens, side="right") - 1, 0, count[0] - 1)
    of_token = kv[pages[sequence]].reshape(q.shape[0], -1, *kv.shape[2:])
    k, v = of_token[:, :, 0::2] * (k_scale or 1), of_token[:, :, 1::2] * (v_scale or 1)
    by_group = q.reshape(q.shape[0], k.shape[2], -1, q.shape[-1])
    scores = _capped(
        jnp.einsum("tgjd,tsgd->tgjs", by_group, k, preferred_element_type=jnp.float32) * sm_scale, soft_cap
    )
    place = lengths[sequence] - starts[sequence + 1] + tokens
    seen = jnp.arange(k.shape[1]) <= place[:, None]
    if sliding_window is not None:
        seen &= jnp.arange(k.shape[1]) > place[:, None] - sliding_window
    made = jnp.einsum("tgjs,tsgd->tgjd", jax.nn.softmax(jnp.where(seen[:, None, None], scores, -1e30)), v).reshape(
        q.shape
    )
    return jnp.where((tokens < starts[count[0]])[:, None, None], made, 0).astype(q.dtype)


def _capped(scores: Any, cap: float | None) -> Any:
    return scores if cap is None else cap * jnp.tanh(scores / cap)


FUNCTIONS = {
    "paged_attention": KnownFunction(lambda _: "b h d, h p s d, h p s d, b, b n -> b h d; tile b h", _paged),
    "ragged_paged_attention": KnownFunction(
        lambda shapes: f"t h d, p s h d, n, n l, m, o -> t h d; tile h={shapes[1][2] // 2}", _ragged
    ),
}
"""By their names."""
