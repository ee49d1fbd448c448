"""Is a model with a kernel divided as with its twin, forward and backward, and equal to the whole?"""

from __future__ import annotations

import importlib
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import autopart as ap
from tests.kernels.programs import arrays, close, kernels, plain_attention
from tests.kernels.test_pallas_calls import splash

gmm = importlib.import_module("jax.experimental.pallas.ops.tpu.megablox.ops").gmm
MESH = {"d": 4, "m": 2}


def decoder(attend):
    """One block, of its parameters and tokens."""

    def loss(params, tokens):
        x = params["embedding"][tokens]
        q, k, v = (jnp.einsum("bsm,mhd->bhsd", x, params[name]) for name in "qkv")
        x = x + jnp.einsum("bhsd,hdm->bsm", attend(q, k, v), params["o"])
        x = x + jax.nn.silu(x @ params["up"]) @ params["down"]
        return -jax.nn.log_softmax(x @ params["embedding"].T)[..., 0].mean()

    return loss


SIZES = {"embedding": (256, 64), "q": (64, 4, 128), "k": (64, 2, 128), "v": (64, 2, 128), "o": (4, 128, 64)}
SIZES |= {"up": (64, 256), "down": (256, 64)}
DECODER = dict(zip(SIZES, arrays(*SIZES.values()), strict=True))
TOKENS = jnp.arange(8 * 128).reshape(8, 128) % 251
HEADS = ap.ManualPartition({"params": {"q": 1, "up": 1, "embedding": 0}}, axis="m")


def cudnn(implementation):
    def attend(q, k, v):
        of_bf16 = (jnp.swapaxes(x, 1, 2).astype(jnp.bfloat16) for x in (q, k, v))
        made = jax.nn.dot_product_attention(*of_bf16, scale=1.0, is_causal=True, implementation=implementation)
        return jnp.swapaxes(made, 1, 2).astype(jnp.float32)

    return decoder(attend)


def mixture(product):
    """Each token goes through the expert that its router likes best; tokens are sorted by expert."""

    def loss(params, x):
        expert = jnp.argmax(x @ params["router"], axis=-1)
        order = jnp.argsort(expert)
        sizes = jnp.bincount(expert, length=params["up"].shape[0])
        rows = ap.tag("rows", x[order])
        h = jax.nn.silu(product(rows, params["up"], sizes))
        return ((product(h, params["down"], sizes) + rows) ** 2).mean()

    return loss


SHAPES = {"router": (128, 4), "up": (4, 128, 1024), "down": (4, 1024, 128)}
EXPERTS = dict(zip(SHAPES, arrays(*SHAPES.values()), strict=True))
ROWS = arrays((1024, 128))[0]


class Model(nnx.Module):
    def __init__(self, norm, rngs):
        self.norm, self.scale, self.offset = norm, nnx.Param(jnp.ones(128)), nnx.Param(jnp.zeros(128))
        self.up, self.down = nnx.Linear(128, 256, rngs=rngs), nnx.Linear(256, 128, rngs=rngs)

    def __call__(self, x):
        return x + self.down(jax.nn.silu(self.up(self.norm(x, self.scale[...], self.offset[...]))))


def with_norm(norm):
    graph = nnx.split(Model(norm, nnx.Rngs(0)))[0]
    return lambda params, x: (nnx.merge(graph, params)(x) ** 2).mean()


def gpu_norm(name):
    return getattr(importlib.import_module("jax.experimental.pallas.ops.gpu.rms_norm"), name)


MODELS = {
    "splash": (lambda: decoder(splash(4, 128)), lambda: decoder(plain_attention), DECODER, TOKENS, "tpu_v5e", HEADS),
    "cudnn": (lambda: cudnn("cudnn"), lambda: cudnn("xla"), DECODER, TOKENS, "h100", HEADS),
    "experts": (
        lambda: mixture(lambda *x: gmm(*x, jnp.float32, (32, 128, 128))), lambda: mixture(jax.lax.ragged_dot),
        EXPERTS, ROWS, "tpu_v5e", ap.ManualPartition({"params": {"up": 2, "down": 1}}, axis="m"),
    ),
    "each some experts": (
        lambda: mixture(lambda *x: gmm(*x, jnp.float32, (32, 128, 128))), lambda: mixture(jax.lax.ragged_dot),
        EXPERTS, ROWS, "tpu_v5e", ap.ManualPartition({"params": {"up": 0, "down": 0}}, axis="m"),
    ),
    "nnx": (
        lambda: with_norm(gpu_norm("rms_norm")), lambda: with_norm(gpu_norm("rms_norm_reference")),
        nnx.split(Model(None, nnx.Rngs(0)))[1], arrays((8, 32, 128))[0], "h100",
        ap.ManualPartition({"params": {"up": {"kernel": 1}}}, axis="m"),
    ),
}  # fmt: skip
"""A loss with a kernel, with its twin, parameters, data, the device, and what an expert divides besides data."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_divided_as_with_the_twin_and_equal_to_the_whole(name):
    with_kernel, with_twin, params, data, device, divided = MODELS[name]
    batch = {"data": 0, "rows": 0} if data is ROWS else {"data": 0}
    schedule = [ap.ManualPartition(batch, axis="d"), divided]

    def step(loss):
        def of(params, data):
            value, gradient = jax.value_and_grad(loss)(params, data)
            return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)

        return of

    call = ap.jit(step(with_kernel()), ap.Mesh(MESH, device=device), schedule)
    low = call.lower(params, data)
    twin = ap.jit(step(with_twin()), ap.Mesh(MESH, device=device), schedule).lower(params, data)
    assert kernels(low)
    of_twin = twin.metadata.flop_divided  # where each device has some experts, all go through what is added up
    assert all(share > min(0.99, of_twin[axis] - 1e-3) for axis, share in low.metadata.flop_divided.items())
    assert Counter(low.program.collectives()) <= Counter(twin.program.collectives())
    close(call(params, data), jax.jit(step(with_twin()))(params, data), tolerance=2e-2 if name == "cudnn" else 1e-4)
