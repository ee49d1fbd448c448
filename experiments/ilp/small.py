"""Programs small enough to enumerate: a few ops of every family, at sizes where partitioning pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import autopart as ap
from autopart.core.table.partitioning import Partitioning

MESHES = {
    "{a:4}": ap.Mesh({"a": 4}, device="tpu_v3"),
    "{a:4,b:2}": ap.Mesh({"a": 4, "b": 2}, device="tpu_v3"),
}


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


@dataclass(frozen=True)
class Small:
    """A function and its abstract arguments; `donated` ones are updated."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    donated: tuple[int, ...] = ()


def perceptron(params: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
    def loss(p: dict[str, jax.Array]) -> jax.Array:
        return jnp.sum(jnp.tanh(x @ p["up"]) @ p["down"])

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(jnp.einsum("bshd,bthd->bhst", q, k)), v)


def convolution(image: jax.Array, kernel: jax.Array) -> jax.Array:
    padded = jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.nn.relu(padded).mean(axis=(1, 2))


def messages(nodes: jax.Array, senders: jax.Array, receivers: jax.Array, weight: jax.Array) -> jax.Array:
    return jnp.zeros_like(nodes).at[receivers].add(jnp.tanh(nodes[senders] @ weight))


def loop(x: jax.Array, weight: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 8, lambda i, y: jnp.tanh(y @ weight), x)


SMALL = {
    "product": Small(lambda x, w: x @ w, (f32(4096, 4096), f32(4096, 4096))),
    "chain": Small(lambda x, v, w: x @ v @ w, (f32(4096, 1024), f32(1024, 4096), f32(4096, 1024))),
    "square": Small(lambda x: x @ x.T, (f32(4096, 4096),)),
    "branches": Small(lambda x, v, w: x @ v + (x @ w) ** 2, (f32(2048, 2048), f32(2048, 4096), f32(2048, 4096))),
    "perceptron": Small(
        perceptron, ({"up": f32(1024, 4096), "down": f32(4096, 1024)}, f32(8192, 1024)), donated=(0,)
    ),
    "attention": Small(attention, (f32(8, 512, 8, 64),) * 3),
    "convolution": Small(convolution, (f32(32, 32, 32, 128), f32(3, 3, 128, 256))),
    "messages": Small(
        messages,
        (f32(16384, 512), *(jax.ShapeDtypeStruct((65536,), jnp.int32),) * 2, f32(512, 512)),
    ),
    "loop": Small(loop, (f32(4096, 1024), f32(1024, 1024))),
    "embedding": Small(
        lambda table, ids: table[ids] @ table.T, (f32(8192, 1024), jax.ShapeDtypeStruct((4096,), jnp.int32))
    ),
    "normalise": Small(
        lambda x, w: (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) @ w, (f32(8192, 1024), f32(1024, 4096))
    ),
    "transposed": Small(lambda x, w: jnp.transpose(x @ w, (1, 0)) @ x, (f32(4096, 2048), f32(2048, 2048))),
}  # fmt: skip


def partitioning(name: str, mesh: ap.Mesh) -> Partitioning:
    """A program of `SMALL` that nothing has been decided about."""
    small = SMALL[name]
    lowered = ap.jit(small.fun, mesh, [], donate_argnums=small.donated).lower(*small.args)
    return Partitioning(lowered.traced.program, mesh)
