"""Programs of every sort that named schedules are found in: which of their inputs are data is known here alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autopart as ap
from autopart.core.program import Program

MESH = ap.Mesh({"a": 4, "b": 2}, device="tpu_v3")


def f32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def trained(loss: Callable, state: Any, *batch: Any) -> tuple[Callable, tuple, tuple[int, ...]]:
    """A step of gradient descent with momentum; `state` is donated."""

    def step(params, momentum, *data):
        grads = jax.grad(loss)(params, *data)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum

    return step, (state, state, *batch), (0, 1)


def perceptron():
    """Rows of features straight into a matmul, with biases."""
    params = {"w1": f32(512, 2048), "b1": f32(2048), "w2": f32(2048, 512), "b2": f32(512)}

    def loss(p, x, y):
        h = jax.nn.relu(x @ p["w1"] + p["b1"])
        return ((h @ p["w2"] + p["b2"] - y) ** 2).sum()

    return trained(loss, params, f32(4096, 512), f32(4096, 512))


def inference():
    """The same without anything that is updated: weights and data are inputs alike."""

    def predict(w1, w2, x):
        return jax.nn.relu(x @ w1) @ w2

    return predict, (f32(512, 2048), f32(2048, 512), f32(4096, 512)), ()


def two_towers():
    """Images and texts of one batch, compared all with all."""
    params = {"image": f32(256, 1024), "image_out": f32(1024, 128), "text": f32(512, 1024), "text_out": f32(1024, 128)}

    def loss(p, image, text):
        u = jnp.tanh(image @ p["image"]) @ p["image_out"]
        v = jnp.tanh(text @ p["text"]) @ p["text_out"]
        logits = u @ v.T
        return jax.nn.logsumexp(logits, axis=1).sum() - jnp.diagonal(logits).sum()

    return trained(loss, params, f32(2048, 256), f32(2048, 512))


def transported():
    """Sets of points, each moved to another by entropic optimal transport: the other sets are operands of products."""

    def loss(p, x, y):
        costs = -2 * jnp.einsum("bnd,bmd->bnm", x @ p["metric"], y)

        def turn(_, prices):
            rows = -jax.nn.logsumexp(prices[1][:, None] - costs, axis=2)
            return rows, -jax.nn.logsumexp(rows[:, :, None] - costs, axis=1)

        zeros = jnp.zeros(x.shape[:2])
        return sum(prices.mean() for prices in jax.lax.fori_loop(0, 8, turn, (zeros, zeros)))

    return trained(loss, {"metric": f32(64, 64)}, f32(64, 256, 64), f32(64, 256, 64))


def critic():
    """Real and made images by the same convolutions, with a penalty on the gradient at the real ones."""
    params = {"in": f32(4, 4, 3, 64), "out": f32(16 * 16 * 64, 1)}

    def judged(p, x):
        dims = ("NHWC", "HWIO", "NHWC")
        h = jax.lax.conv_general_dilated(x, p["in"] / jnp.linalg.norm(p["in"]), (2, 2), "SAME", dimension_numbers=dims)
        return jax.nn.leaky_relu(h).reshape(len(x), -1) @ p["out"]

    def loss(p, real, made):
        slopes = jax.vmap(jax.grad(lambda x: judged(p, x[None])[0, 0]))(real)
        return judged(p, made).mean() - judged(p, real).mean() + (slopes**2).sum()

    return trained(loss, params, f32(64, 32, 32, 3), f32(64, 32, 32, 3))


def players():
    """Images that one net makes of noise and another compares with real ones: rows of pixels divide the work too."""
    params = {
        "made": f32(128, 8 * 8 * 64),
        "up": f32(4, 4, 64, 32),
        "down": f32(4, 4, 32, 64),
        "out": f32(8 * 8 * 64, 1),
    }
    dims = ("NHWC", "HWIO", "NHWC")

    def judged(p, x):
        h = jax.lax.conv_general_dilated(x, p["down"], (2, 2), "SAME", dimension_numbers=dims)
        return jax.nn.relu(h).reshape(len(x), -1) @ p["out"]

    def loss(p, real, noise):
        h = jax.nn.relu(noise @ p["made"]).reshape(-1, 8, 8, 64)
        made = jax.lax.conv_transpose(h, p["up"], (2, 2), "SAME", dimension_numbers=dims)
        return judged(p, made).mean() - judged(p, real).mean()

    return trained(loss, params, f32(256, 16, 16, 32), f32(256, 128))


def gated(kv_heads: int = 2):
    """Separate query, key and value, keys shared by heads, and a gated MLP; two layers."""
    d, heads, size, hidden = 256, 8, 32, 1024
    layer = {
        "norm": f32(d), "q": f32(d, heads, size), "k": f32(d, kv_heads, size), "v": f32(d, kv_heads, size),
        "o": f32(heads, size, d), "gate": f32(d, hidden), "up": f32(d, hidden), "down": f32(hidden, d),
    }  # fmt: skip
    params = {"embedding": f32(2048, d), "layers": [layer, layer]}

    def block(p, x):
        y = x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * p["norm"]
        q, k, v = (jnp.einsum("bsd,dhe->bshe", y, p[n]) for n in "qkv")
        q = q.reshape(*q.shape[:2], kv_heads, heads // kv_heads, size)
        scores = jax.nn.softmax(jnp.einsum("bsgre,btge->bgrst", q, k) / size**0.5)
        mixed = jnp.einsum("bgrst,btge->bsgre", scores, v).reshape(*x.shape[:2], heads, size)
        x = x + jnp.einsum("bshe,hed->bsd", mixed, p["o"])
        return x + (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]

    def loss(p, tokens, labels):
        x = p["embedding"][tokens]
        for layer_params in p["layers"]:
            x = block(layer_params, x)
        logits = x @ p["embedding"].T
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).sum()

    return trained(loss, params, i32(32, 128), i32(32, 128))


def routed():
    """A mixture of experts with dense dispatch."""
    params = {"router": f32(128, 8), "up": f32(8, 128, 512), "down": f32(8, 512, 128)}

    def loss(p, x, y):
        gates = jax.nn.softmax(x @ p["router"])
        hidden = jax.nn.relu(jnp.einsum("nd,edf->enf", x, p["up"]))
        out = jnp.einsum("enf,efd->end", hidden, p["down"])
        return ((jnp.einsum("end,ne->nd", out, gates) - y) ** 2).sum()

    return trained(loss, params, f32(1024, 128), f32(1024, 128))


def routed_layers():
    """Layers of experts in a scan, whose tokens are dispatched by their places."""
    params = {"router": f32(4, 128, 8), "up": f32(4, 8, 128, 512), "down": f32(4, 8, 512, 128)}

    def layer(x, p):
        gates = jax.nn.softmax(x @ p["router"])
        to = jax.nn.one_hot(jnp.argmax(gates, -1), 8)
        sent = to[..., None] * jax.nn.one_hot((jnp.cumsum(to, 0) - 1) * to, 256)
        hidden = jax.nn.relu(jnp.einsum("ecd,edf->ecf", jnp.einsum("nec,nd->ecd", sent, x), p["up"]))
        back = jnp.einsum("ecf,efd->ecd", hidden, p["down"])
        return x + jnp.einsum("nec,ecd->nd", sent * gates[..., None], back), None

    return trained(
        lambda p, x, y: ((jax.lax.scan(layer, x, p)[0] - y) ** 2).sum(), params, f32(1024, 128), f32(1024, 128)
    )


def graph():
    """Messages along edges, added up at the nodes."""
    params = {"edge": f32(256, 256), "node": f32(256, 256)}

    def loss(p, nodes, senders, receivers):
        h = jnp.tanh(nodes @ p["node"])
        for _ in range(2):
            messages = jnp.tanh(h[senders] @ p["edge"])
            h = jnp.tanh((h + jax.ops.segment_sum(messages, receivers, h.shape[0])) @ p["node"])
        return (h**2).sum()

    return trained(loss, params, f32(1024, 256), i32(8192), i32(8192))


def cached():
    """One token of a decoder, with a cache that is updated and weights that are not."""
    params = {"q": f32(256, 8, 32), "kv": f32(256, 2, 8, 32), "o": f32(8, 32, 256)}

    def step(p, cache, x, at):
        q, kv = jnp.einsum("bd,dhe->bhe", x, p["q"]), jnp.einsum("bd,dche->bche", x, p["kv"])
        cache = jax.lax.dynamic_update_slice(cache, kv[:, :, None], (0, 0, at, 0, 0))
        scores = jax.nn.softmax(jnp.einsum("bhe,bthe->bht", q, cache[:, 0]))
        return cache, jnp.einsum("bhe,hed->bd", jnp.einsum("bht,bthe->bhe", scores, cache[:, 1]), p["o"])

    return step, (params, f32(64, 2, 512, 8, 32), f32(64, 256), i32()), (1,)


def stacked():
    """Layers of one shape, stacked, in a scan."""
    params = {"w1": f32(8, 256, 1024), "w2": f32(8, 1024, 256)}

    def loss(p, x):
        def layer(h, w):
            return h + jnp.tanh(h @ w["w1"]) @ w["w2"], None

        return (jax.lax.scan(layer, x, p)[0] ** 2).sum()

    return trained(loss, params, f32(2048, 256))


def rollout():
    """An environment whose state is the program's own, stepped by a policy that is trained on it."""
    params = {"w1": f32(64, 512), "w2": f32(512, 64)}

    def step(p, env):
        def loss(p, env):
            def play(s, _):
                s = s + 0.1 * jnp.tanh(jnp.tanh(s @ p["w1"]) @ p["w2"])
                return s, (s**2).sum()

            last, costs = jax.lax.scan(play, env, None, length=8)
            return costs.sum(), last

        grads, env = jax.grad(loss, has_aux=True)(p, env)
        return jax.tree.map(lambda w, g: w - 0.1 * g, p, grads), env

    return step, (params, f32(4096, 64)), (0, 1)


def adapters():
    """Tokens of a frozen embedding, with labels of its vocabulary: only what is small is trained."""
    params = {"down": f32(256, 16), "up": f32(16, 256)}

    def loss(p, embedding, w, tokens, labels):
        h = embedding[tokens] @ w
        h = h + jnp.tanh(h @ p["down"]) @ p["up"]
        logits = jax.nn.log_softmax(h @ embedding.T)
        return -jnp.take_along_axis(logits, labels[..., None], -1).mean()

    return trained(loss, params, f32(4096, 256), f32(256, 256), i32(64, 128), i32(64, 128))


def graph_attention():
    """Scores along edges, whose work is less than that of the nodes."""
    params = {"w": f32(256, 256), "score": f32(256)}

    def loss(p, nodes, senders, receivers):
        h = nodes @ p["w"] @ p["w"]
        weights = jnp.exp(jnp.tanh((h @ p["score"])[senders] + (h @ p["score"])[receivers]))
        return (jax.ops.segment_sum(h[senders] * weights[:, None], receivers, h.shape[0]) ** 2).sum()

    return trained(loss, params, f32(4096, 256), i32(65536), i32(65536))


def convolutions():
    """Images through convolutions, one of each channel by itself, then rows through dense layers, which are large."""
    params = {"conv": f32(3, 3, 8, 8), "depthwise": f32(3, 3, 1, 8), "dense": f32(2048, 1024), "out": f32(1024, 128)}

    def loss(p, x, y):
        order = ("NHWC", "HWIO", "NHWC")
        for name, groups in (("conv", 1), ("depthwise", 8)):
            x = jax.lax.conv_general_dilated(
                x, p[name], (1, 1), "SAME", dimension_numbers=order, feature_group_count=groups
            )
            x = jax.nn.relu(x)
        x = jax.nn.relu(x.reshape(x.shape[0], -1) @ p["dense"])
        return ((x @ p["out"] - y) ** 2).sum()

    return trained(loss, params, f32(256, 16, 16, 8), f32(256, 128))


def recommender():
    """Few rows of large tables, and a small perceptron."""
    params = {"users": f32(100_000, 64), "items": f32(100_000, 64), "w1": f32(128, 256), "w2": f32(256, 1)}

    def loss(p, users, items, clicked):
        x = jnp.concatenate([p["users"][users], p["items"][items]], 1)
        return ((jax.nn.relu(x @ p["w1"]) @ p["w2"] - clicked) ** 2).sum()

    return trained(loss, params, i32(4096), i32(4096), f32(4096, 1))


PROGRAMS: dict[str, Callable] = {
    f.__name__: f
    for f in (
        perceptron, inference, two_towers, transported, critic, players, gated, routed, routed_layers, graph,
        graph_attention, cached, stacked, rollout, adapters, convolutions, recommender,
    )
}  # fmt: skip


@functools.cache
def program(name: str, donate: bool = True) -> Program:
    """A program by name, traced once; `donate` says whether its caller gives up the old state."""
    fun, args, donated = PROGRAMS[name]()
    return ap.jit(fun, MESH, [], donate_argnums=donated if donate else ()).lower(*args).traced.program


def tiled(partitioning, axis: str) -> dict[str, int]:
    """The arguments that an axis tiles, with the dim."""
    p = partitioning.program
    dims = {n: partitioning.tiled_dim(v, axis) for n, v in zip(p.argument_names, p.arguments, strict=True)}
    return {name: dim for name, dim in dims.items() if dim >= 0}


def sizes(name: str) -> dict[str, tuple[int, ...]]:
    """Shapes of a program's arguments by name."""
    p = program(name)
    return {n: p.type_of(int(v)).shape for n, v in zip(p.argument_names, np.array(p.arguments), strict=True)}
