"""Are the kernels of released packages divided by a search, with nothing moved, and equal to plain jax?

A package that is not installed is skipped. Seen with maxtext 0.2.5, tokamax 0.0.12 and recurrentgemma 1.0.1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from tests.kernels.programs import arrays, close, kernels, plain_attention

MESH = ap.Mesh({"d": 4, "m": 2}, device="tpu_v5e")
QKV = [(4, 4, 256, 128), (4, 2, 256, 128), (4, 2, 256, 128)]


def package(name):
    return pytest.importorskip(name, exc_type=Exception)


def splash(module):
    kernels = package(f"{module}.splash_attention_kernel")
    mask = package(f"{module}.splash_attention_mask").CausalMask((256, 256))
    return jax.vmap(kernels.make_splash_mha(mask, config=kernels.SplashConfig.get_default(), q_seq_shards=1))


def maxtext():
    """Its copy of jax's kernel, with the masks of jax."""
    masks = package("jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask")
    made = package("maxtext.kernels.attention.splash_attention_kernel").make_splash_mha
    mask = masks.MultiHeadMask([masks.CausalMask((256, 256))] * 4)
    return jax.vmap(made(mask, head_shards=1, q_seq_shards=1))


def recurrence(x, a):
    def turn(h, now):
        h = now[1] * h + now[0]
        return h, h

    by_time = (jnp.swapaxes(x, 0, 1), jnp.swapaxes(a, 0, 1))
    return jnp.swapaxes(jax.lax.scan(turn, jnp.zeros_like(x[:, 0]), by_time)[1], 0, 1)


def recurrentgemma():
    scan = package("recurrentgemma.jax.pallas").lru_pallas_scan
    return lambda x, a: scan(x, a)[0]


ROWS = {
    "maxtext, jax's splash": (maxtext, plain_attention, QKV),
    "maxtext, tokamax's splash": (lambda: splash("maxtext.kernels.tokamax_splash_attention"), plain_attention, QKV),
    "tokamax": (lambda: splash("tokamax._src.ops.experimental.tpu.splash_attention"), plain_attention, QKV),
    "recurrentgemma": (recurrentgemma, recurrence, [(16, 64, 256)] * 2),
}
"""What makes the kernel, what it is in plain jax, and shapes of its operands."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ROWS)
def test_a_search_divides_it_forward_and_backward_and_moves_nothing(name):
    make, twin, shapes = ROWS[name]
    kernel, operands = make(), arrays(*shapes)

    def gradient(function):
        return jax.grad(lambda *x: (function(*x) ** 2).sum(), argnums=tuple(range(len(shapes))))

    search = ap.AutomaticPartition(["d", "m"], budget=ap.Budget(60))
    step = ap.jit(gradient(kernel), MESH, [search])
    low = step.lower(*operands)
    assert kernels(low)
    assert min(low.metadata.flop_divided.values()) > 0.99
    assert not low.program.collectives()
    close(step(*operands), gradient(twin)(*operands), tolerance=1e-4)


@pytest.mark.parametrize(
    ("tile", "collectives"), [({"w": 2}, {}), ({"w": 1}, {"all_reduce": 1}), ({"w": 0}, {"all_reduce": 1})]
)
def test_maxtexts_copy_of_grouped_products_is_known_by_name(tile, collectives):
    backend = package("maxtext.kernels.megablox.backend")
    sizes = jnp.array([140, 388, 0, 496], jnp.int32)
    group = jnp.searchsorted(jnp.cumsum(sizes), jnp.arange(1024), side="right")
    x, w = arrays((1024, 256), (4, 256, 512))
    schedule = [ap.ManualPartition({"x": 0}, axis="d"), ap.ManualPartition(tile, axis="m")]
    step = ap.jit(lambda x, w: backend.gmm(x, w, sizes, jnp.float32, (128, 128, 128)), MESH, schedule)
    low = step.lower(x, w)
    assert low.program.collectives() == collectives
    assert min(low.metadata.flop_divided.values()) > 0.99
    close(step(x, w), jnp.einsum("mk,mkn->mn", x, w[group]), tolerance=1e-5)
