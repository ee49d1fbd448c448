"""Does the cache of a loop over tokens take the room and the seconds that the TPU compiler says?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap

BATCH, HEADS, PLACES, TURNS, LAYERS = 8, 16, 1024, 32, 2
PRODUCTS = {"bthk": ("bhk,bthk->bht", "bht,bthk->bhk"), "bhtk": ("bhk,bhtk->bht", "bht,bhtk->bhk")}


def _estimate(features: int, dims: str = "bthk", turns: int = TURNS, layers: int = LAYERS, device: str = "tpu_v5e"):
    at, width = dims.index("t"), HEADS * features
    shape = [{"b": BATCH, "h": HEADS, "t": PLACES, "k": features}[dim] for dim in dims]
    scores, mixed = PRODUCTS[dims]

    def write(cache, row, place):
        start = [place if dim == "t" else 0 for dim in dims]
        return jax.lax.dynamic_update_slice(cache, jnp.expand_dims(row, at), start)

    def turn(weights, carried):
        caches, x, place = carried
        written = []
        for (wq, wk, wv, wo), (keys, values) in zip(weights, caches, strict=True):
            q, k, v = ((x @ w).reshape(BATCH, HEADS, features) for w in (wq, wk, wv))
            keys, values = write(keys, k, place), write(values, v, place)
            written.append((keys, values))
            s = jnp.einsum(scores, q, keys, preferred_element_type=jnp.float32) * features**-0.5
            s = jax.nn.softmax(jnp.where(jnp.arange(PLACES) <= place, s, -1e9)).astype(x.dtype)
            x = x + jnp.einsum(mixed, s, values).reshape(BATCH, width) @ wo
        return written, x, place + 1

    def decode(weights, caches, x, place):
        if turns == 1:
            return turn(weights, (caches, x, place))
        return jax.lax.scan(lambda c, _: (turn(weights, c), None), (caches, x, place), length=turns)[0]

    weight = jax.ShapeDtypeStruct((width, width), jnp.bfloat16)
    cache = jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    args = (
        [(weight,) * 4] * layers, [(cache, cache)] * layers,
        jax.ShapeDtypeStruct((BATCH, width), jnp.bfloat16), jax.ShapeDtypeStruct((), jnp.int32),
    )  # fmt: skip
    return ap.jit(decode, ap.Mesh({"x": 8}, device=device), [], donate_argnums=(1,)).lower(*args).estimate


@pytest.mark.parametrize(
    ("features", "dims", "compiler_ms", "compiler_mb"),
    [(64, "bthk", 25.75, 118.8), (64, "bhtk", 25.75, 118.8), (128, "bthk", 31.33, 235.6), (128, "bhtk", 31.33, 235.6)],
)
def test_a_loop_over_tokens_takes_what_the_compiler_says(
    features: int, dims: str, compiler_ms: float, compiler_mb: float
):
    found = _estimate(features, dims)
    assert 0.8 < 1e3 * found.compute_s / compiler_ms < 1.25
    assert 0.9 < 1e-6 * found.peak_bytes / compiler_mb < 1.1


def test_a_step_outside_a_loop_neither_pads_its_cache_nor_copies_it():
    found = _estimate(64, turns=1, layers=1)
    assert 0.8 < 1e3 * found.compute_s / 0.1745 < 1.25
    assert 0.95 < 1e-6 * found.peak_bytes / 42.0 < 1.05


def test_caches_that_do_not_fit_on_the_chip_take_padded_rows_beside_the_arguments():
    plain, held = BATCH * PLACES * HEADS * 64 * 2, BATCH * PLACES * HEADS * 128 * 2
    more = _estimate(64, layers=6).peak_bytes - _estimate(64, layers=4).peak_bytes
    weights = 2 * 4 * (HEADS * 64) ** 2 * 2
    assert more == pytest.approx(weights + 4 * (plain + held), rel=0.01)


def test_a_gpu_updates_its_caches_in_place():
    more = _estimate(64, layers=6, device="h100").peak_bytes - _estimate(64, layers=4, device="h100").peak_bytes
    assert more == pytest.approx(2 * 4 * (HEADS * 64) ** 2 * 2 + 4 * BATCH * PLACES * HEADS * 64 * 2, rel=0.01)
