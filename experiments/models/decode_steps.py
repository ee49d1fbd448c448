"""Decode steps as people write them: one token, or a few, for each row of a batch, with state that is donated.

stacked, carried    a decoder of 70 B parameters (8 of its 80 layers) whose caches are xs and ys of the scan over
                    layers, or carried by it and updated in place
window              layers one by one, each with a ring of the last 4,096 tokens
generate            a loop over 16 tokens around a scan over layers; rows are at positions of their own
states              a selective state-space model: a window of inputs and a state a layer
latent              keys and values of all heads in one latent vector a token
cross               a decoder that attends to its own cache and to an encoder's, which is as it is
linear              linear attention: an outer product is added to a matrix of each head

    lowered = DECODE_STEPS["stacked"].lower()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import autopart as ap


@dataclass(frozen=True)
class DecodeStep:
    """A step of a batch, its arguments as shapes, the manual schedule, and where it is compiled for."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    schedule: Sequence[ap.Tactic]
    on: tuple[str, ap.Mesh]

    def lower(self) -> ap.Lowered:
        return ap.jit(self.step, self.on[1], list(self.schedule), donate_argnums=(1,)).lower(*self.args)


V5P = ("v5p:4x2x2", ap.Mesh({"data": 2, "model": 8}, device="tpu_v5p"))
V5E = ("v5e:2x4", ap.Mesh({"data": 2, "model": 4}, device="tpu_v5e"))


def bf16(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "bfloat16")


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32")


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "int32")


def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """RMS norm along the last dim, in f32 inside."""
    return x * lax.rsqrt((x.astype("f4") ** 2).mean(-1, keepdims=True) + 1e-5).astype(x.dtype) * scale


def data(**dims: Any) -> ap.Tactic:
    return ap.ManualPartition(dims, axis="data")


def model(**dims: Any) -> ap.Tactic:
    return ap.ManualPartition(dims, axis="model")


def scores_of(q: jax.Array, keys: jax.Array, equation: str, reached: jax.Array) -> jax.Array:
    """Softmax of scaled scores over the last dim, up to what is reached of it."""
    scores = jnp.einsum(equation, q, keys).astype("f4") / math.sqrt(q.shape[-1])
    return jax.nn.softmax(jnp.where(reached, scores, -1e30)).astype(q.dtype)


def decoder(carried: bool, layers: int = 8) -> DecodeStep:
    """Caches [layers, batch, time, heads, head], grouped queries."""
    wide, heads, groups, head, hidden, vocabulary, batch, time = 8192, 64, 8, 128, 28672, 128256, 64, 8192

    def qkv(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, ...]:
        h = norm(x, w["n1"])
        q = (h @ w["q"]).reshape(batch, groups, heads // groups, head)
        return q, (h @ w["k"]).reshape(batch, 1, groups, head), (h @ w["v"]).reshape(batch, 1, groups, head)

    def attended(q: jax.Array, keys: jax.Array, values: jax.Array, at: jax.Array) -> jax.Array:
        shares = scores_of(q, keys, "bkgd,btkd->bkgt", jnp.arange(time) <= at)
        return jnp.einsum("bkgt,btkd->bkgd", shares, values)

    def rest(x: jax.Array, a: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
        x = x + a.reshape(batch, heads * head) @ w["o"]
        h = norm(x, w["n2"])
        return x + (jax.nn.silu(h @ w["g"]) * (h @ w["u"])) @ w["d"]

    def stacked_step(p: Any, cache: Any, token: jax.Array, at: jax.Array) -> Any:
        def layer(x: jax.Array, given: Any) -> Any:
            w, keys, values = given
            q, k, v = qkv(x, w)
            keys, values = (lax.dynamic_update_slice(c, n, (0, at, 0, 0)) for c, n in ((keys, k), (values, v)))
            return rest(x, attended(q, keys, values, at), w), (keys, values)

        x, (keys, values) = lax.scan(layer, p["emb"][token], (p["layers"], cache["k"], cache["v"]))
        return jnp.argmax((x @ p["head"]).astype("f4"), -1), {"k": keys, "v": values}

    def carried_step(p: Any, cache: Any, token: jax.Array, at: jax.Array) -> Any:
        def layer(carry: Any, given: Any) -> Any:
            (x, *caches), (w, i) = carry, given
            q, *new = qkv(x, w)
            caches = [lax.dynamic_update_slice(c, n[None], (i, 0, at, 0, 0)) for c, n in zip(caches, new, strict=True)]
            read = [lax.dynamic_index_in_dim(c, i, 0, False) for c in caches]
            return (rest(x, attended(q, *read, at), w), *caches), None

        first = (p["emb"][token], cache["k"], cache["v"])
        (x, keys, values), _ = lax.scan(layer, first, (p["layers"], jnp.arange(layers)))
        return jnp.argmax((x @ p["head"]).astype("f4"), -1), {"k": keys, "v": values}

    stacks = {
        "n1": (wide,), "n2": (wide,), "q": (wide, heads * head), "k": (wide, groups * head), "v": (wide, groups * head),
        "o": (heads * head, wide), "g": (wide, hidden), "u": (wide, hidden), "d": (hidden, wide),
    }  # fmt: skip
    params = {"emb": bf16(vocabulary, wide), "head": bf16(wide, vocabulary)}
    params |= {"layers": {name: bf16(layers, *shape) for name, shape in stacks.items()}}
    cache = {name: bf16(layers, batch, time, groups, head) for name in "kv"}
    columns = {f"layers/{name}": 2 for name in "qkvgu"}
    schedule = [
        data(token=0, cache={"*": 1}),
        model(p={**columns, "layers/o": 1, "layers/d": 1, "head": 1}, cache={"*": 3}),
    ]
    return DecodeStep(carried_step if carried else stacked_step, (params, cache, i32(batch), i32()), schedule, V5P)


def window() -> DecodeStep:
    """Caches [batch, groups, window, head], a dict of layers."""
    layers, wide, groups, queries, head, ring, batch = 6, 4096, 8, 4, 128, 4096, 32

    def layer(p: Any, cache: Any, x: jax.Array, at: jax.Array) -> Any:
        y = norm(x, p["n"])
        q, k, v = (
            jnp.einsum(e, y, p[n]) for e, n in (("bd,dkgh->bkgh", "q"), ("bd,dkh->bkh", "k"), ("bd,dkh->bkh", "v"))
        )
        new = {"k": k[:, :, None], "v": v[:, :, None]}
        keys, values = (lax.dynamic_update_slice_in_dim(cache[n], new[n], at % ring, 2) for n in "kv")
        shares = scores_of(q, keys, "bkgh,bkth->bkgt", jnp.arange(ring) <= at)
        x = x + jnp.einsum("bkgh,kghd->bd", jnp.einsum("bkgt,bkth->bkgh", shares, values), p["o"])
        z = norm(x, p["n2"])
        return x + (jax.nn.gelu(z @ p["u"]) * (z @ p["g"])) @ p["w"], {"k": keys, "v": values}

    def step(p: Any, cache: Any, token: jax.Array, at: jax.Array) -> Any:
        x, new = p["emb"][token], {}
        for name in cache:
            x, new[name] = layer(p[name], cache[name], x, at)
        return jnp.argmax(x @ p["emb"].T, -1), new

    names = [f"layer_{i}" for i in range(layers)]
    one = {
        "n": bf16(wide), "n2": bf16(wide), "q": bf16(wide, groups, queries, head), "k": bf16(wide, groups, head),
        "v": bf16(wide, groups, head), "o": bf16(groups, queries, head, wide), "u": bf16(wide, 4 * wide),
        "g": bf16(wide, 4 * wide), "w": bf16(4 * wide, wide),
    }  # fmt: skip
    params = dict.fromkeys(names, one) | {"emb": bf16(64000, wide)}
    cache = {name: {"k": bf16(batch, groups, ring, head), "v": bf16(batch, groups, ring, head)} for name in names}
    rows = {f"layer_*/{n}": 0 for n in "ow"}
    schedule = [
        data(token=0, cache={"*": 0}),
        model(p={**{f"layer_*/{n}": 1 for n in "qkvug"}, **rows, "emb": 0}, cache={"*": 1}),
    ]
    return DecodeStep(step, (params, cache, i32(batch), i32()), schedule, V5E)


def generate() -> DecodeStep:
    """Caches f32 [layers, batch, time, wide]; 16 tokens; each row at a position of its own."""
    layers, wide, heads, time, batch, tokens = 8, 2048, 16, 2048, 32, 16
    head = wide // heads

    def layer(p: Any, x: jax.Array, keys: jax.Array, values: jax.Array, at: jax.Array) -> Any:
        y = norm(x, p["n"])
        put = jax.vmap(lambda c, n, i: lax.dynamic_update_index_in_dim(c, n, i, 0))
        keys, values = put(keys, y @ p["k"], at), put(values, y @ p["v"], at)
        q, k, v = (c.reshape(*c.shape[:-1], heads, head) for c in (y @ p["q"], keys, values))
        shares = scores_of(q, k, "bhd,bthd->bht", jnp.arange(time)[None, None] <= at[:, None, None])
        x = x + jnp.einsum("bht,bthd->bhd", shares, v).reshape(batch, wide) @ p["o"]
        z = norm(x, p["n2"])
        return x + jax.nn.gelu(z @ p["u"]) @ p["w"], keys, values

    def step(p: Any, state: Any) -> Any:
        def turn(_: Any, state: Any) -> Any:
            token, at, keys, values = state

            def body(x: jax.Array, given: Any) -> Any:
                w, keys, values = given
                x, keys, values = layer(w, x, keys, values, at)
                return x, (keys, values)

            x, (keys, values) = lax.scan(body, p["emb"][token], (p["layers"], keys, values))
            return jnp.argmax(x @ p["head"], -1).astype("i4"), at + 1, keys, values

        return lax.fori_loop(0, tokens, turn, state)

    stacks = {"n": (wide,), "n2": (wide,), "u": (wide, 4 * wide), "w": (4 * wide, wide)}
    stacks |= dict.fromkeys("qkvo", (wide, wide))
    params = {"emb": f32(32000, wide), "head": f32(wide, 32000)}
    params |= {"layers": {name: f32(layers, *shape) for name, shape in stacks.items()}}
    state = (i32(batch), i32(batch), f32(layers, batch, time, wide), f32(layers, batch, time, wide))
    schedule = [
        data(**{"state/0": 0, "state/1": 0, "state/2": 1, "state/3": 1}),
        model(
            p={**{f"layers/{n}": 2 for n in "qkvu"}, "layers/o": 1, "layers/w": 1, "head": 1},
            **{"state/2": 3, "state/3": 3},
        ),
    ]
    return DecodeStep(step, (params, state), schedule, V5E)


def states() -> DecodeStep:
    """A window [layers, batch, 4, inner] and a state f32 [layers, batch, inner, 16]."""
    layers, wide, inner, size, taps, batch, rank = 32, 2560, 5120, 16, 4, 256, 160

    def step(p: Any, cache: Any, token: jax.Array) -> Any:
        def layer(x: jax.Array, given: Any) -> Any:
            w, window, state = given
            u, gate = jnp.split(norm(x, w["n"]) @ w["in"], 2, -1)
            window = jnp.concatenate([window[:, 1:], u[:, None]], 1)
            u = jax.nn.silu((window * w["taps"]).sum(1) + w["taps_bias"])
            step, to, of = jnp.split(u @ w["x"], [rank, rank + size], -1)
            step = jax.nn.softplus((step @ w["dt"]).astype("f4") + w["dt_bias"])
            added = (step * u.astype("f4"))[:, :, None] * to.astype("f4")[:, None]
            state = state * jnp.exp(-step[:, :, None] * jnp.exp(w["a"])) + added
            y = (state * of.astype("f4")[:, None]).sum(-1) + w["d"] * u.astype("f4")
            return x + (y.astype(x.dtype) * jax.nn.silu(gate)) @ w["out"], (window, state)

        x, (window, state) = lax.scan(layer, p["emb"][token], (p["layers"], cache["window"], cache["state"]))
        return (x @ p["emb"].T).astype("f4"), {"window": window, "state": state}

    stacks = {
        "n": bf16(layers, wide), "in": bf16(layers, wide, 2 * inner), "taps": bf16(layers, taps, inner),
        "taps_bias": bf16(layers, inner), "x": bf16(layers, inner, rank + 2 * size), "dt": bf16(layers, rank, inner),
        "dt_bias": f32(layers, inner), "a": f32(layers, inner, size), "d": f32(layers, inner),
        "out": bf16(layers, inner, wide),
    }  # fmt: skip
    cache = {"window": bf16(layers, batch, taps, inner), "state": f32(layers, batch, inner, size)}
    inner_dims = {"out": 1, "a": 1, "d": 1, "dt_bias": 1, "dt": 2, "taps": 2, "taps_bias": 1, "x": 1}
    schedule = [
        data(token=0, cache={"*": 1}),
        model(p={f"layers/{n}": d for n, d in inner_dims.items()}, cache={"window": 3, "state": 2}),
    ]
    return DecodeStep(step, ({"emb": bf16(50304, wide), "layers": stacks}, cache, i32(batch)), schedule, V5E)


def latent() -> DecodeStep:
    """A latent [layers, batch, time, 512] and a rotated key [layers, batch, time, 64] for all heads."""
    layers, wide, heads, head, latents, rotated, time, batch = 12, 2048, 16, 128, 512, 64, 4096, 64

    def step(p: Any, cache: Any, token: jax.Array, at: jax.Array) -> Any:
        def layer(x: jax.Array, given: Any) -> Any:
            w, c, r = given
            y = norm(x, w["n"])
            c = lax.dynamic_update_slice(c, (y @ w["down"])[:, None], (0, at, 0))
            r = lax.dynamic_update_slice(r, (y @ w["rotated"])[:, None], (0, at, 0))
            q = jnp.einsum("bd,dhe->bhe", y, w["q"])
            absorbed = jnp.einsum("bhe,hel->bhl", q[..., :head], w["keys"])
            scores = jnp.einsum("bhl,btl->bht", absorbed, c) + jnp.einsum("bhe,bte->bht", q[..., head:], r)
            scores = jnp.where(jnp.arange(time) <= at, scores.astype("f4") / math.sqrt(head + rotated), -1e30)
            read = jnp.einsum("bht,btl->bhl", jax.nn.softmax(scores).astype(x.dtype), c)
            x = x + jnp.einsum("bhe,hed->bd", jnp.einsum("bhl,hle->bhe", read, w["values"]), w["o"])
            z = norm(x, w["n2"])
            return x + (jax.nn.silu(z @ w["g"]) * (z @ w["u"])) @ w["w"], (c, r)

        x, (c, r) = lax.scan(layer, p["emb"][token], (p["layers"], cache["c"], cache["r"]))
        return jnp.argmax(x @ p["emb"].T, -1), {"c": c, "r": r}

    stacks = {
        "n": (wide,), "n2": (wide,), "down": (wide, latents), "rotated": (wide, rotated),
        "q": (wide, heads, head + rotated), "keys": (heads, head, latents), "values": (heads, latents, head),
        "o": (heads, head, wide), "g": (wide, 5632), "u": (wide, 5632), "w": (5632, wide),
    }  # fmt: skip
    params = {"emb": bf16(102400, wide), "layers": {name: bf16(layers, *shape) for name, shape in stacks.items()}}
    cache = {"c": bf16(layers, batch, time, latents), "r": bf16(layers, batch, time, rotated)}
    by_heads = {"layers/q": 2, "layers/keys": 1, "layers/values": 1, "layers/o": 1}
    schedule = [
        data(token=0, cache={"*": 1}),
        model(p={**by_heads, "layers/g": 2, "layers/u": 2, "layers/w": 1, "emb": 0}),
    ]
    return DecodeStep(step, (params, cache, i32(batch), i32()), schedule, V5E)


def cross() -> DecodeStep:
    """Own cache [layers, batch, heads, time, head], carried; an encoder's keys and values, given and not donated."""
    layers, wide, heads, head, time, source, batch = 12, 1280, 20, 64, 448, 1500, 64

    def attended(p: Any, x: jax.Array, keys: jax.Array, values: jax.Array, reached: jax.Array) -> jax.Array:
        shares = scores_of(jnp.einsum("bd,dhe->bhe", x, p["q"]), keys, "bhe,bhte->bht", reached)
        return jnp.einsum("bhe,hed->bd", jnp.einsum("bht,bhte->bhe", shares, values), p["o"])

    def step(p: Any, cache: Any, encoded: Any, token: jax.Array, at: jax.Array) -> Any:
        def layer(carry: Any, given: Any) -> Any:
            (x, keys, values), (w, other_keys, other_values, i) = carry, given
            y = norm(x, w["n"])
            k, v = (jnp.einsum("bd,dhe->bhe", y, w["own"][n])[None, :, :, None] for n in "kv")
            keys, values = (lax.dynamic_update_slice(c, n, (i, 0, 0, at, 0)) for c, n in ((keys, k), (values, v)))
            x = x + attended(w["own"], y, keys[i], values[i], jnp.arange(time) <= at)
            x = x + attended(w["other"], norm(x, w["n2"]), other_keys, other_values, True)
            return (x + jax.nn.gelu(norm(x, w["n3"]) @ w["u"]) @ w["w"], keys, values), None

        given = (p["layers"], encoded["k"], encoded["v"], jnp.arange(layers))
        (x, keys, values), _ = lax.scan(layer, (p["emb"][token], cache["k"], cache["v"]), given)
        return x @ p["emb"].T, {"k": keys, "v": values}

    attention = {"q": bf16(layers, wide, heads, head), "o": bf16(layers, heads, head, wide)}
    own = attention | {n: bf16(layers, wide, heads, head) for n in "kv"}
    stacks = {"own": own, "other": attention, "u": bf16(layers, wide, 4 * wide), "w": bf16(layers, 4 * wide, wide)}
    stacks |= {n: bf16(layers, wide) for n in ("n", "n2", "n3")}
    cache = {n: bf16(layers, batch, heads, time, head) for n in "kv"}
    encoded = {n: bf16(layers, batch, heads, source, head) for n in "kv"}
    heads_of = {"layers/*/q": 2, "layers/*/k": 2, "layers/*/v": 2, "layers/*/o": 1, "layers/u": 2, "layers/w": 1}
    schedule = [
        data(token=0, cache={"*": 1}, encoded={"*": 1}),
        model(p=heads_of, cache={"*": 2}, encoded={"*": 2}),
    ]
    args = ({"emb": bf16(51865, wide), "layers": stacks}, cache, encoded, i32(batch), i32())
    return DecodeStep(step, args, schedule, V5E)


def linear() -> DecodeStep:
    """A matrix f32 [layers, batch, heads, head, head]."""
    layers, wide, heads, head, batch = 24, 2048, 16, 128, 64

    def step(p: Any, memory: Any, token: jax.Array) -> Any:
        def layer(x: jax.Array, given: Any) -> Any:
            w, m = given
            y = norm(x, w["n"])
            q, k, v = (jnp.einsum("bd,dhe->bhe", y, w[n]).astype("f4") for n in "qkv")
            m = m * jax.nn.sigmoid(w["decay"])[None, :, None, None] + k[..., :, None] * v[..., None, :]
            read = jnp.einsum("bhe,bhef->bhf", q, m).reshape(batch, wide).astype(x.dtype)
            x = x + (norm(read, w["n3"]) * jax.nn.silu(y @ w["gate"])) @ w["o"]
            z = norm(x, w["n2"])
            return x + (jax.nn.silu(z @ w["g"]) * (z @ w["u"])) @ w["w"], m

        x, memory = lax.scan(layer, p["emb"][token], (p["layers"], memory))
        return jnp.argmax(x @ p["emb"].T, -1), memory

    stacks = {n: bf16(layers, wide, heads, head) for n in "qkv"} | {n: bf16(layers, wide) for n in ("n", "n2", "n3")}
    stacks |= {"gate": bf16(layers, wide, wide), "o": bf16(layers, wide, wide), "decay": f32(layers, heads)}
    stacks |= {"g": bf16(layers, wide, 5632), "u": bf16(layers, wide, 5632), "w": bf16(layers, 5632, wide)}
    columns = {"q": 2, "k": 2, "v": 2, "decay": 1, "gate": 2, "o": 1, "g": 2, "u": 2, "w": 1}
    schedule = [
        data(token=0, memory=1),
        model(p={f"layers/{n}": d for n, d in columns.items()}, memory=2),
    ]
    args = ({"emb": bf16(65536, wide), "layers": stacks}, f32(layers, batch, heads, head, head), i32(batch))
    return DecodeStep(step, args, schedule, V5E)


DECODE_STEPS: dict[str, Callable[[], DecodeStep]] = {
    "stacked": lambda: decoder(carried=False),
    "carried": lambda: decoder(carried=True),
    "window": window,
    "generate": generate,
    "states": states,
    "latent": latent,
    "cross": cross,
    "linear": linear,
}
"""Programs by name; the last three were written when the rules for what loops carry were made."""
