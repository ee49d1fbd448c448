"""Which kernels that jax ships are divided as their twins are, and by what: their grid alone, or their name?"""

from __future__ import annotations

import functools
import importlib

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.pallas.ops.tpu.matmul import matmul
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

import autopart as ap
from autopart.api.kernels import named_pallas
from autopart.api.kernels.named_pallas import NAMED
from tests.kernels.programs import MESH, arrays, close, kernels, plain_attention

ragged = importlib.import_module("jax.experimental.pallas.ops.tpu.ragged_paged_attention.kernel")
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


def plain_paged(q, k_pages, v_pages, lengths, pages):
    k, v = (jnp.moveaxis(x[:, pages], 0, 1).reshape(len(pages), len(x), -1, x.shape[-1]) for x in (k_pages, v_pages))
    by_group = q.reshape(*k.shape[:2], -1, q.shape[-1])
    scores = jnp.einsum("bgjd,bgtd->bgjt", by_group, k)
    scores = jnp.where(jnp.arange(k.shape[2]) < lengths[:, None, None, None], scores, -1e30)
    return jnp.einsum("bgjt,bgtd->bgjd", jax.nn.softmax(scores, -1), v).reshape(q.shape)


def with_pages(attend):
    lengths, pages = jnp.arange(8, dtype=jnp.int32) * 30 + 8, jnp.arange(128, dtype=jnp.int32).reshape(8, 16) % 64
    return lambda q, k, v: attend(q, k, v, lengths, pages)


def with_ragged(attend):
    """Four sequences of 1 to 16 queries each, and place for two more."""
    lengths, starts = jnp.array([100, 40, 64, 30, 0, 0]), jnp.array([0, 1, 9, 12, 28, 28, 28])
    pages, count = jnp.arange(96).reshape(6, 16) % 64, jnp.array([4])
    return lambda q, kv: attend(q, kv, lengths, pages, starts, count, sm_scale=0.3, sliding_window=50)[:28]


PAGED = ap.kernel(functools.partial(paged_attention, pages_per_compute_block=4))
RAGGED = ap.kernel(functools.partial(ragged.ragged_paged_attention, num_kv_pages_per_block=4, num_queries_per_block=8))
GRID, NAME, FUNCTION = "its grid", "its name", "the name of its function"

ROWS = {
    "matmul": (functools.partial(matmul, block_shape=(64, 64), block_k=64), jnp.matmul, [(256, 64), (64, 256)], GRID),
    "softmax": (gpu["softmax"].softmax, jax.nn.softmax, [(8, 16, 64)], GRID),
    "layer_norm": (*pair("layer_norm"), [(8, 16, 128), (128,), (128,)], NAME),
    "rms_norm": (*pair("rms_norm"), [(8, 16, 128), (128,), (128,)], NAME),
    "gqa": (functools.partial(gqa, sm_scale=1.0, k_splits=4), plain_decode, heads(8, 4, 32), GRID),
    "gmm": (lambda x, w: megablox.gmm(x, w, SIZES, jnp.float32, TILES), plain_gmm, [(256, 128), (4, 128, 256)], NAME),
    "tgmm": (lambda x, y: megablox.tgmm(x, y, SIZES, jnp.float32, TILES), plain_tgmm, [(128, 256), (256, 128)], NAME),
    "step": (step(lambda *x: gmm(*x, SIZES, jnp.float32, TILES)), step(plain_gmm), [(256, 128), (4, 128, 256)], NAME),
    "paged": (with_pages(PAGED), with_pages(plain_paged), [(8, 16, 128), *[(4, 64, 16, 128)] * 2], FUNCTION),
    "ragged": (
        with_ragged(RAGGED), with_ragged(ragged.ref_ragged_paged_attention), [(32, 8, 128), (64, 16, 8, 128)], FUNCTION,
    ),
}  # fmt: skip
"""The kernel, its twin, shapes of operands, and what says how it is divided."""

TILES_OF = [
    ("matmul", {"args/0": 0}, {"args/1": 1}, {}),
    ("softmax", {"args/0": 0}, {"args/0": 1}, {}),
    ("layer_norm", {"args/0": 0}, {"args/0": 0}, {"all_reduce": 2}),
    ("rms_norm", {"args/0": 0}, {"args/0": 0}, {"all_reduce": 2}),
    ("gqa", {"args/0": 0}, {"args/0": 1}, {}),
    ("paged", {"args/0": 0}, {"args/0": 1}, {}),
    ("ragged", {}, {"args/0": 1}, {}),
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
    tiles = {axis: tile for axis, tile in (("d", first), ("m", second)) if tile}
    schedule = [ap.ManualPartition(tile, axis=axis) for axis, tile in tiles.items()]
    call = ap.jit(lambda *args: kernel(*args), ap.Mesh(MESH, device=device), schedule)
    low = call.lower(*operands)
    assert dict(low.program.collectives()) == collectives
    assert all(low.metadata.flop_divided[axis] > 0.99 for axis in tiles)
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
    assert (rules[0] == rules[1]) == (by != NAME)


def test_paged_attention_of_a_slice_lowers_for_the_device():
    shapes = ROWS["paged"][2]
    operands = [jax.ShapeDtypeStruct(shape, "bfloat16") for shape in shapes]
    low = ap.jit(lambda *args: with_pages(PAGED)(*args), ap.Mesh(MESH, device="tpu_v5e")).lower(*operands)
    (body,) = low.traced.program.source.bodies
    slices = body.local_avals([(4, 8, 128), *[(2, 64, 16, 128)] * 2, (4,), (4, 16)])
    text = jax.jit(body.kernel(slices)).trace(*slices).lower(lowering_platforms=("tpu",)).as_text()
    assert "tpu_custom_call" in text


@pytest.mark.parametrize("schedule", [{"x": 1}, {"w": 1}, {"x": 2}])
def test_a_product_with_scales_divides_like_a_product(schedule):
    x, w = (a.astype("float8_e4m3fn") for a in arrays((2, 128, 128), (2, 32, 128)))
    scales = [jnp.full((2, rows, 4), 2.0, "float8_e8m0fnu") for rows in (128, 32)]
    step = ap.jit(lambda x, w, a, b: jax.nn.scaled_matmul(x, w, a, b), ap.Mesh({"d": 4}, device="h100"), [
        ap.ManualPartition(schedule, axis="d")
    ])  # fmt: skip
    low = step.lower(x, w, *scales)
    assert min(low.metadata.flop_divided.values()) > 0.99
    assert low.program.collectives() == ({"all_reduce": 1} if schedule == {"x": 2} else {})
    close(step(x, w, *scales), 4 * jnp.einsum("bmk,bnk->bmn", x.astype("float32"), w.astype("float32")), 1e-5)
