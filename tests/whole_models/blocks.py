"""Blocks of models, written once for all frameworks.

    get("up", (64, 256))     a parameter: a framework's own way to make or find it
    x                        [batch, length, width]; a block returns the same shape
    more                     what else a block may read: a key, edges of a graph, heads

A block is registered by its function's name. It is written as in papers' code, with whatever way of writing is usual:
`einsum` here, `transpose` and `reshape` there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import mlir

Get = Callable[..., jax.Array]


class More(NamedTuple):
    """What a block reads besides its parameters and its input.

    key     for random numbers
    edges   int32[edges, 2] of nodes; a node is a place of a sequence
    heads   of attention, as an array's shape, since it is no number to compute with: [heads]
    """

    key: jax.Array
    edges: jax.Array
    heads: jax.Array


BLOCKS: dict[str, Callable[[Get, jax.Array, More], jax.Array]] = {}


def block(make: Callable[[Get, jax.Array, More], jax.Array]) -> Callable[[Get, jax.Array, More], jax.Array]:
    """Registers a block under its function's name."""
    if make.__name__ in BLOCKS:
        raise ValueError(f"two blocks are called {make.__name__}")
    BLOCKS[make.__name__] = make
    return make


def rms(get: Get, x: jax.Array, name: str = "norm") -> jax.Array:
    """Root mean square norm over the last dim, in f32 as usual."""
    wide = x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x
    normed = wide * lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
    return (normed * get(name, (x.shape[-1],))).astype(x.dtype)


def layer_norm(get: Get, x: jax.Array, name: str = "ln") -> jax.Array:
    """Mean and variance over the last dim."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * get(f"{name}_s", (x.shape[-1],)) + get(f"{name}_b", (x.shape[-1],))


def split_heads(x: jax.Array, heads: int) -> jax.Array:
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def softmax_of(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array | None) -> jax.Array:
    """[b, t, h, e] of each: attention over t."""
    scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) / max(q.shape[-1], 1) ** 0.5
    scores = scores if mask is None else jnp.where(mask, scores, -1e9)
    return jnp.einsum("bhqk,bkhe->bqhe", jax.nn.softmax(scores, -1), v)


def causal(length: int) -> jax.Array:
    return jnp.tril(jnp.ones((length, length), bool))


@block
def attention(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Heads by one product for q, k and v."""
    d, h = x.shape[-1], len(more.heads)
    q, k, v = jnp.split(layer_norm(get, x) @ get("qkv", (d, 3 * d)), 3, -1)
    out = softmax_of(split_heads(q, h), split_heads(k, h), split_heads(v, h), causal(x.shape[1]))
    return x + out.reshape(x.shape) @ get("out", (d, d))


@block
def grouped_queries(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Fewer keys than queries, rotary positions."""
    d, h = x.shape[-1], len(more.heads)
    groups, e = max(h // 2, 1), d // h
    y = rms(get, x)
    q = split_heads(y @ get("q", (d, h * e)), h)
    k, v = (split_heads(y @ get(n, (d, groups * e)), groups) for n in "kv")
    q, k = rotary(q), rotary(k)
    k, v = (jnp.repeat(z, h // groups, 2) for z in (k, v))
    return x + softmax_of(q, k, v, causal(x.shape[1])).reshape(*x.shape[:2], h * e) @ get("o", (h * e, d))


def rotary(x: jax.Array) -> jax.Array:
    half = x.shape[-1] // 2
    if not half:
        return x
    angle = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    sin, cos = (f(angle)[None, :, None].astype(x.dtype) for f in (jnp.sin, jnp.cos))
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


@block
def window_attention(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Each place sees a band of places; relative positions are looked up."""
    d, t, h = x.shape[-1], x.shape[1], len(more.heads)
    q, k, v = (split_heads(x @ get(n, (d, d)), h) for n in ("wq", "wk", "wv"))
    far = jnp.arange(t)[:, None] - jnp.arange(t)[None]
    bias = get("bias", (7, h))[jnp.clip(far + 3, 0, 6)].transpose(2, 0, 1)
    scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) + bias
    weights = jax.nn.softmax(jnp.where(jnp.abs(far) <= 3, scores, -1e9), -1)
    return x + jnp.einsum("bhqk,bkhe->bqhe", weights, v).reshape(x.shape) @ get("wo", (d, d))


@block
def blocked_attention(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Blocks of places see the block before them: padded, reshaped, joined with its neighbour."""
    b, t, d = x.shape
    size = max(t // 4, 1)
    blocks = -(-t // size)
    y = jnp.pad(x @ get("w", (d, d)), ((0, 0), (0, blocks * size - t), (0, 0))).reshape(b, blocks, size, d)
    before = jnp.concatenate([jnp.zeros_like(y[:, :1]), y[:, :-1]], 1)
    seen = jnp.concatenate([before, y], 2)
    weights = jax.nn.softmax(jnp.einsum("bnqd,bnkd->bnqk", y, seen), -1)
    return x + jnp.einsum("bnqk,bnkd->bnqd", weights, seen).reshape(b, blocks * size, d)[:, :t]


@block
def linear_attention(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Sums of outer products of keys and values, by cumsum."""
    d, h = x.shape[-1], len(more.heads)
    q, k, v = (split_heads(x @ get(n, (d, d)), h) for n in ("q", "k", "v"))
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    state = jnp.cumsum(jnp.einsum("bthe,bthf->bthef", k, v), 1)
    norm = jnp.einsum("bthe,bthe->bth", q, jnp.cumsum(k, 1))
    return x + (jnp.einsum("bthe,bthef->bthf", q, state) / (norm[..., None] + 1e-6)).reshape(x.shape)


@block
def cross_chunks(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A few learned queries read all places, and all places read them (Perceiver)."""
    d = x.shape[-1]
    latents = get("latents", (3, d))
    read = jax.nn.softmax(jnp.einsum("ld,btd->blt", latents, x), -1) @ x
    back = jax.nn.softmax(jnp.einsum("btd,bld->btl", x, read), -1) @ read
    return x + back @ get("w", (d, d))


@block
def mlp(get: Get, x: jax.Array, more: More) -> jax.Array:
    d = x.shape[-1]
    y = jax.nn.gelu(layer_norm(get, x) @ get("up", (d, 4 * d)) + get("up_b", (4 * d,)))
    return x + y @ get("down", (4 * d, d)) + get("down_b", (d,))


@block
def swiglu(get: Get, x: jax.Array, more: More) -> jax.Array:
    d = x.shape[-1]
    y = rms(get, x)
    return x + (jax.nn.silu(y @ get("gate", (d, 2 * d))) * (y @ get("up", (d, 2 * d)))) @ get("down", (2 * d, d))


@block
def one_hot_experts(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Tokens to experts by one-hot masks with a capacity (GShard)."""
    d, e = x.shape[-1], 4
    flat = x.reshape(-1, d)
    gates = jax.nn.softmax(flat @ get("router", (d, e)), -1)
    mask = jax.nn.one_hot(gates.argmax(-1), e, dtype=x.dtype)
    place = jnp.cumsum(mask, 0) * mask - 1
    capacity = max(len(flat) // 2, 1)
    slots = jax.nn.one_hot(jnp.where(place < capacity, place, -1).max(-1).astype(int), capacity, dtype=x.dtype)
    dispatch = jnp.einsum("ne,nc->nec", mask, slots)
    h = jax.nn.relu(jnp.einsum("nec,nd,edf->ecf", dispatch, flat, get("w1", (e, d, 2 * d))))
    out = jnp.einsum("ecf,efd->ecd", h, get("w2", (e, 2 * d, d)))
    return x + jnp.einsum("nec,ecd,n->nd", dispatch, out, gates.max(-1)).reshape(x.shape)


@block
def sorted_experts(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Tokens sorted by their expert, multiplied in groups, put back."""
    d, e = x.shape[-1], 4
    flat = x.reshape(-1, d)
    weights, chosen = lax.top_k(jax.nn.softmax(flat @ get("router", (d, e)), -1), 2)
    order = jnp.argsort(chosen.reshape(-1), stable=True)
    rows = jnp.take(flat, order // 2, axis=0)
    sizes = jnp.bincount(chosen.reshape(-1), length=e)
    h = jax.nn.silu(lax.ragged_dot(rows, get("w1", (e, d, 2 * d)), sizes))
    out = lax.ragged_dot(h, get("w2", (e, 2 * d, d)), sizes)
    back = jnp.zeros_like(out).at[order].set(out).reshape(len(flat), 2, d)
    return x + (back * weights[..., None]).sum(1).reshape(x.shape)


@block
def looped_experts(get: Get, x: jax.Array, more: More) -> jax.Array:
    """All experts on all tokens, by a scan over experts."""
    d, e = x.shape[-1], 3
    gates = jax.nn.softmax(x @ get("router", (d, e)), -1)

    def one(total: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        w, gate = given
        return total + jnp.tanh(x @ w) * gate[..., None], None

    return x + lax.scan(one, jnp.zeros_like(x), (get("w", (e, d, d)), jnp.moveaxis(gates, -1, 0)))[0]


@block
def message_passing(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Messages along edges, added up at their ends by `segment_sum`."""
    d = x.shape[-1]
    nodes = x.reshape(-1, d)
    source, target = more.edges[:, 0], more.edges[:, 1]
    messages = jnp.tanh(jnp.concatenate([nodes[source], nodes[target]], -1) @ get("w", (2 * d, d)))
    return jnp.tanh(jax.ops.segment_sum(messages, target, len(nodes))).reshape(x.shape) + x


@block
def graph_attention(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A softmax over the edges that end at a node: `segment_max`, `segment_sum`, and a scatter-add."""
    d = x.shape[-1]
    nodes = x.reshape(-1, d) @ get("w", (d, d))
    source, target = more.edges[:, 0], more.edges[:, 1]
    score = jax.nn.leaky_relu(nodes[source] @ get("a", (d,)) + nodes[target] @ get("b", (d,)))
    score = jnp.exp(score - lax.stop_gradient(jax.ops.segment_max(score, target, len(nodes)))[target])
    share = score / (jax.ops.segment_sum(score, target, len(nodes))[target] + 1e-6)
    return x + jnp.zeros_like(nodes).at[target].add(share[:, None] * nodes[source]).reshape(x.shape)


@block
def scattered(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Sums at the ends of edges, and nothing beside them."""
    source, target, length = more.edges[:, 0], more.edges[:, 1], max(x.shape[1], 1)
    return jnp.zeros_like(x).at[target // length, target % length].add(x[source // length, source % length])


@block
def degree_norm(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Counts edges at each node; the count alone is what is read, at the end of the block."""
    nodes = x.reshape(-1, x.shape[-1])
    degree = jnp.zeros((len(nodes),), x.dtype).at[more.edges[:, 1]].add(1.0)
    return x * lax.rsqrt(1 + degree).reshape(*x.shape[:2], 1)


@block
def state_space(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A diagonal linear recurrence by `associative_scan` (S5, Mamba)."""
    d = x.shape[-1]
    decay = jax.nn.sigmoid(x @ get("a", (d, d)))

    def joined(one: tuple, other: tuple) -> tuple:
        return one[0] * other[0], other[0] * one[1] + other[1]

    state = lax.associative_scan(joined, (decay, x * (1 - decay)), axis=1)[1]
    return x + state * jax.nn.silu(x @ get("g", (d, d)))


@block
def complex_states(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Complex diagonal states by a scan over places (S4D, LRU)."""
    d = x.shape[-1]
    decay, angle = get("log_decay", (d,)), get("angle", (d,))
    turn = jnp.exp(lax.complex(-jnp.exp(decay.astype(jnp.float32)), angle.astype(jnp.float32)))

    def step(state: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = turn * state + u * 1.5
        return state, (state * (0.5 - 2j)).real.astype(x.dtype)

    start = jnp.zeros((x.shape[0], d), jnp.complex64)
    return x + jnp.moveaxis(lax.scan(step, start, jnp.moveaxis(x, 1, 0))[1], 0, 1)


@block
def recurrent(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A gated recurrent unit, unrolled twice in its scan."""
    d = x.shape[-1]
    u, w = get("u", (d, 3 * d)), get("w", (d, 3 * d))

    def step(h: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        (za, ra, na), (zb, rb, nb) = jnp.split(v, 3, -1), jnp.split(h @ u, 3, -1)
        z = jax.nn.sigmoid(za + zb)
        h = z * h + (1 - z) * jnp.tanh(na + jax.nn.sigmoid(ra + rb) * nb)
        return h, h

    seen = jnp.moveaxis(x @ w, 1, 0)
    return x + jnp.moveaxis(lax.scan(step, jnp.zeros((x.shape[0], d), x.dtype), seen, unroll=2)[1], 0, 1)


@block
def causal_convolution(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Depthwise, over places, padded at the start."""
    d = x.shape[-1]
    return x + jax.nn.silu(
        lax.conv_general_dilated(
            x, get("k", (4, 1, d)), (1,), [(3, 0)], dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=d
        )
    )


@block
def dilated_convolution(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Gated, dilated (WaveNet)."""
    d = x.shape[-1]
    y = lax.conv_general_dilated(
        x, get("k", (3, d, 2 * d)), (1,), "SAME", rhs_dilation=(2,), dimension_numbers=("NWC", "WIO", "NWC")
    )
    a, b = jnp.split(y, 2, -1)
    return x + (jnp.tanh(a) * jax.nn.sigmoid(b)) @ get("w", (d, d))


@block
def down_and_up(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A strided convolution, and back by a transposed one and a repeat (UNet)."""
    d, t = x.shape[-1], x.shape[1]
    numbers = ("NWC", "WIO", "NWC")
    small = jax.nn.relu(lax.conv_general_dilated(x, get("down", (2, d, d)), (2,), "SAME", dimension_numbers=numbers))
    up = lax.conv_transpose(small, get("up", (2, d, d)), (2,), "SAME", dimension_numbers=numbers)[:, :t]
    return x + up + jnp.repeat(small, 2, axis=1)[:, :t]


@block
def grouped_convolution(get: Get, x: jax.Array, more: More) -> jax.Array:
    """In groups, then a norm over groups of features (ResNeXt)."""
    b, t, d = x.shape
    groups = len(more.heads)
    y = lax.conv_general_dilated(
        x,
        get("k", (3, d // groups, d)),
        (1,),
        "SAME",
        dimension_numbers=("NWC", "WIO", "NWC"),
        feature_group_count=groups,
    ).reshape(b, t, groups, d // groups)
    y = (y - y.mean((1, 3), keepdims=True)) * lax.rsqrt(y.var((1, 3), keepdims=True) + 1e-5)
    return x + y.reshape(x.shape) * get("s", (d,))


@block
def pooled(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Max and mean over windows, squeeze and excite."""
    d = x.shape[-1]
    top = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 1), (1, 1, 1), "SAME")
    mean = lax.reduce_window(x, 0.0, lax.add, (1, 3, 1), (1, 1, 1), "SAME") / 3
    gate = jax.nn.sigmoid(jax.nn.relu(x.mean(1) @ get("a", (d, max(d // 4, 1)))) @ get("b", (max(d // 4, 1), d)))
    return x + (top - mean) * gate[:, None]


@block
def batch_norm(get: Get, x: jax.Array, more: More) -> jax.Array:
    mean, variance = x.mean((0, 1)), x.var((0, 1))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * get("s", (x.shape[-1],)) + get("b", (x.shape[-1],))


@block
def dropped(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Dropout, and a whole path that is dropped for some examples."""
    keep = jax.random.bernoulli(more.key, 0.8, x.shape)
    path = jax.random.uniform(jax.random.fold_in(more.key, 1), (x.shape[0], 1, 1)) < 0.7
    return x + jnp.where(keep, x @ get("w", (x.shape[-1],) * 2), 0) * path.astype(x.dtype)


@block
def mixer(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Products over places, then over features, by transposes."""
    t, d = x.shape[1:]
    y = layer_norm(get, x).swapaxes(1, 2)
    y = x + (jax.nn.gelu(y @ get("t1", (t, 2 * t))) @ get("t2", (2 * t, t))).swapaxes(1, 2)
    return y + jax.nn.gelu(y @ get("d1", (d, d)))


@block
def fourier(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Fourier transforms over features and places (FNet), and a filter there."""
    return x + jnp.fft.fft2(x.astype(jnp.float32)).real.astype(x.dtype) * 0.1 * get("s", (x.shape[-1],))


@block
def shifted(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Each place mixed with the one before it: padded, rolled, joined (RWKV)."""
    d = x.shape[-1]
    before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, : x.shape[1]]
    mix = jax.nn.sigmoid(get("mix", (d,)))
    return x * mix + before * (1 - mix) + jnp.roll(x, 1, 1) * 0.1 @ get("w", (d, d))


@block
def quantised(get: Get, x: jax.Array, more: More) -> jax.Array:
    """The nearest of some vectors, straight through (VQ)."""
    d = x.shape[-1]
    book = get("book", (8, d))
    far = (x**2).sum(-1, keepdims=True) - 2 * x @ book.T + (book**2).sum(-1)
    return x + lax.stop_gradient(jnp.take(book, far.argmin(-1), axis=0) - x) * 0.5


@block
def top_places(get: Get, x: jax.Array, more: More) -> jax.Array:
    """The best places go through a layer, and back where they were."""
    b, t, d = x.shape
    k = max(t // 2, 1)
    score, place = lax.top_k((x @ get("r", (d,))), k)
    chosen = jnp.take_along_axis(x, place[..., None], 1)
    done = jnp.tanh(chosen @ get("w", (d, d))) * jax.nn.sigmoid(score)[..., None]
    return x.at[jnp.arange(b)[:, None], place].add(done)


@block
def fixed_point(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A layer applied three times by `fori_loop`, started by a `cond`."""
    w = get("w", (x.shape[-1],) * 2)
    start = lax.cond(x.mean() > 0, lambda v: v, lambda v: -v, x)
    return x + lax.fori_loop(0, 3, lambda _, v: jnp.tanh(v @ w + x), start)


@block
def low_rank(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A frozen matrix and a product of two thin ones (LoRA)."""
    d = x.shape[-1]
    return x + x @ lax.stop_gradient(get("w", (d, d))) + 2.0 * ((x @ get("a", (d, 2))) @ get("b", (2, d)))


@block
def whitened(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A small covariance, its Cholesky factor, and a triangular solve."""
    few = min(x.shape[-1], 4)
    y = x[..., :few].reshape(-1, few)
    cov = y.T @ y / max(len(y), 1) + jnp.eye(few, dtype=x.dtype)
    solved = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(cov), y.T, lower=True).T
    return x.at[..., :few].set(solved.reshape(*x.shape[:2], few)) * get("s", (x.shape[-1],))


@block
def patches(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Pairs of places become one row and are taken apart again (Swin's merging)."""
    b, t, d = x.shape
    even = t - t % 2
    rows = x[:, :even].reshape(b, even // 2, 2 * d)
    y = (rows @ get("w", (2 * d, 2 * d))).reshape(b, even, d)
    return x + jnp.concatenate([y, jnp.zeros_like(x[:, even:])], 1)


@jax.custom_vjp
def _clipped(x: jax.Array) -> jax.Array:
    return x


_clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))


@block
def clipped_gradients(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A gradient of its own, and a layer that is computed again."""
    w = get("w", (x.shape[-1],) * 2)
    return x + _clipped(jax.checkpoint(lambda v: jnp.sin(v @ w))(x))


@block
def long_chain(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Sixty small steps of an integrator, written one after the other."""
    w = get("w", (x.shape[-1],))
    for _ in range(60):
        x = x + 0.1 * jnp.sin(x * w)
    return x


@block
def nested_loops(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Loops in loops in loops."""
    w = get("w", (x.shape[-1],))

    def looped(depth: int, v: jax.Array) -> jax.Array:
        if not depth:
            return jnp.sin(v * w)
        return lax.scan(lambda c, _: (looped(depth - 1, c), None), v, None, length=1 + depth % 2)[0]

    return x + looped(6, x)


@block
def checked(get: Get, x: jax.Array, more: More) -> jax.Array:
    """An error from the host where something is wrong, which jax writes while it lowers."""
    return eqx.error_if(x * get("s", (x.shape[-1],)), jnp.isnan(x).any(), "not a number")


def _watched(x: jax.Array) -> jax.Array:
    jax.debug.callback(lambda total: None, x.sum())
    return x * 1


_watched_p = Primitive("watched")
_watched_p.def_impl(_watched)
_watched_p.def_abstract_eval(lambda x: x)
mlir.register_lowering(_watched_p, mlir.lower_fun(_watched, multiple_results=False))


@jax.custom_jvp
def _bound(x: jax.Array) -> jax.Array:
    return _watched_p.bind(x)


_bound.defjvp(lambda x, t: (_bound(*x), *t))


@block
def watched(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A callback that no equation shows: a library's own primitive writes it while it is lowered."""
    return _bound(x) * get("s", (x.shape[-1],))


@block
def solved(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A least squares of few features by QR, and a linear system."""
    few = min(x.shape[-1], 3)
    y = x[..., :few]
    gram = jnp.einsum("bti,btj->bij", y, y) + jnp.eye(few, dtype=x.dtype)
    q, r = jnp.linalg.qr(gram)
    back = jnp.linalg.solve(r @ q + jnp.eye(few, dtype=x.dtype), y.swapaxes(1, 2)).swapaxes(1, 2)
    return x.at[..., :few].set(back) * get("s", (x.shape[-1],))


@block
def squashed(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Nothing but elementwise ops and one scale."""
    return jnp.tanh(x * get("s", (x.shape[-1],))) * 1.5 - 0.25
