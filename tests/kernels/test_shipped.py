"""Which kernels that jax ships are divided as their twins are, and by what: their grid alone, or their name?"""

from __future__ import annotations

import functools
import importlib

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.pallas.ops.tpu.matmul import matmul

import autopart as ap
from autopart.api.kernels import named_pallas
from autopart.api.kernels.named_pallas import NAMED
from tests.kernels.programs import MESH, arrays, close, kernels, plain_attention

megablox = importlib.import_module("jax.experimental.pallas.ops.tpu.megablox.gmm")
gmm = importlib.import_module("jax.experimental.pallas.ops.tpu.megablox.ops").gmm
gpu = {
    n: importlib.import_module(f"jax.experimental.pallas.ops.gpu.{n}")
    for n in ("softmax", "layer_norm", "rms_norm", "decode_attention")
}
gqa = gpu["decode_attention"].gqa
SIZES = jnp.array([40, 88, 0, 128], jnp.int32)
TILES = (32, 64, 64)


def of_groups(x):
    return jnp.searchsorted(jnp.cumsum(SIZES), jnp.arange(x), side="right")


def plain_gmm(x, w):
    return jnp.einsum("mk,mkn->mn", x, w[of_groups(x.shape[0])])


def plain_tgmm(x, y):
    return jnp.einsum("mk,mn,mg->gkn", x.T, y, jax.nn.one_hot(of_groups(y.shape[0]), 4))


def gradient(function, count):
    return jax.grad(lambda *x: (function(*x) ** 2).sum(), argnums=tuple(range(count)))


def step(function):
    """What a step of descent leaves of x and w."""
    return lambda x, w: tuple(a - 0.1 * g for a, g in zip((x, w), gradient(function, 2)(x, w), strict=True))


def pair(name):
    """A norm of GPUs and its reference, forward and backward."""
    return gradient(getattr(gpu[name], name), 3), gradient(getattr(gpu[name], f"{name}_reference"), 3)


def heads(*shape):
    return [shape, *[(shape[0], 64, shape[1] // 2, shape[2])] * 2]


def plain_decode(q, k, v):
    return plain_attention(q[:, :, None], jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2), causal=False)[:, :, 0]


GRID, NAME = "its grid", "its name"

ROWS = {
    "matmul": (functools.partial(matmul, block_shape=(64, 64), block_k=64), jnp.matmul, [(256, 64), (64, 256)], GRID),
    "softmax": (gpu["softmax"].softmax, jax.nn.softmax, [(8, 16, 64)], GRID),
    "layer_norm": (*pair("layer_norm"), [(8, 16, 128), (128,), (128,)], NAME),
    "rms_norm": (*pair("rms_norm"), [(8, 16, 128), (128,), (128,)], NAME),
    "gqa": (functools.partial(gqa, sm_scale=1.0, k_splits=4), plain_decode, heads(8, 4, 32), GRID),
    "gmm": (lambda x, w: megablox.gmm(x, w, SIZES, jnp.float32, TILES), plain_gmm, [(256, 128), (4, 128, 256)], NAME),
    "tgmm": (lambda x, y: megablox.tgmm(x, y, SIZES, jnp.float32, TILES), plain_tgmm, [(128, 256), (256, 128)], NAME),
    "step": (step(lambda *x: gmm(*x, SIZES, jnp.float32, TILES)), step(plain_gmm), [(256, 128), (4, 128, 256)], NAME),
}  # fmt: skip
"""The kernel, its twin, shapes of operands, and what says how it is divided."""

TILES_OF = [
    ("matmul", {"args/0": 0}, {"args/1": 1}, {}),
    ("softmax", {"args/0": 0}, {"args/0": 1}, {}),
    ("layer_norm", {"args/0": 0}, {"args/0": 0}, {"all_reduce": 2}),
    ("rms_norm", {"args/0": 0}, {"args/0": 0}, {"all_reduce": 2}),
    ("gqa", {"args/0": 0}, {"args/0": 1}, {}),
    ("gmm", {"args/0": 0}, {"args/1": 2}, {}),
    ("gmm", {"args/0": 0}, {"args/1": 1}, {"all_reduce": 1}),
    ("gmm", {"args/0": 0}, {"args/1": 0}, {"all_reduce": 1}),
    ("tgmm", {"args/0": 1}, {"args/1": 1}, {"all_reduce": 1}),
    ("step", {"args/0": 0}, {"args/1": 2}, {"all_reduce": 2}),
    ("step", {"args/0": 0}, {"args/1": 0}, {"all_reduce": 3}),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("name", "first", "second", "collectives"), TILES_OF)
def test_a_kernel_is_divided_along_both_axes_and_equal_to_its_twin(name, first, second, collectives):
    kernel, twin, shapes, _ = ROWS[name]
    operands = arrays(*shapes)
    device = "h100" if name in gpu or name == "gqa" else "tpu_v5e"
    schedule = [ap.ManualPartition(first, axis="d"), ap.ManualPartition(second, axis="m")]
    call = ap.jit(lambda *args: kernel(*args), ap.Mesh(MESH, device=device), schedule)
    low = call.lower(*operands)
    assert dict(low.program.collectives()) == collectives
    assert min(low.metadata.flop_divided.values()) > 0.99
    close(call(*operands), twin(*operands), tolerance=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ROWS)
def test_what_the_grid_alone_says_needs_no_name(name, monkeypatch):
    """A rule by name that says no more than the grid would be one too many."""
    kernel, _, shapes, by = ROWS[name]
    mesh = ap.Mesh(MESH, device="h100" if name in gpu or name == "gqa" else "tpu_v5e")
    rules = []
    for named in (NAMED, {}):
        monkeypatch.setattr(named_pallas, "NAMED", named)
        found = kernels(ap.jit(lambda *args: kernel(*args), mesh).lower(*arrays(*shapes)))
        rules.append(sorted(each["rule"].partition("; ")[2] for each in found.values()))
    assert (rules[0] == rules[1]) == (by == GRID)
