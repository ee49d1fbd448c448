"""Does the text of a partitioned module parse again, on a mesh of any size?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.core.doors.jax_internals import parse_module

SIZES = (2, 8, 16, 17, 32, 128, 512)


def collectives(x, u, v, w):
    """Under the tactic below: an all_gather of x, an all_reduce and a reduce_scatter of sums."""
    return ap.tag("gathered", x), u @ v, ap.tag("scattered", u @ w)


def tactic(axis):
    inputs = {"x": 0, "gathered": ap.REPLICATED, "v": 0, "w": 0, "scattered": 0}
    return ap.ManualPartition(inputs, axis=axis)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("axes", [("a",), ("a", "b"), ("b", "a")])
def test_text_parses_again(size, axes):
    mesh = ap.Mesh({name: size if name == "a" else 2 for name in axes})
    arrays = [jax.ShapeDtypeStruct((4 * size, 4 * size), "float32")] * 4
    lowered = ap.jit(collectives, mesh, [tactic("a")]).lower(*arrays)
    assert {"all_gather", "all_reduce", "reduce_scatter"} <= set(lowered.program.collectives())
    text = lowered.as_text("stablehlo")
    assert "replica_groups" in text
    parse_module(text).operation.verify()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64"])
def test_large_constants_are_left_out_and_small_ones_and_splats_are_not(dtype):
    large, small, same = (np.arange(64) % 3).astype(dtype), np.arange(16).astype(dtype), np.ones(1000, dtype)

    def constants(x):
        return x, jnp.asarray(large), jnp.asarray(small), jnp.asarray(same)

    module = ap.jit(constants, ap.Mesh({"a": 64})).lower(jax.ShapeDtypeStruct((64,), "float32"))
    text = module.as_text("stablehlo")
    parse_module(text).operation.verify()
    assert text.count("__elided__") == 1
    assert module.exported.operation.get_asm().count("__elided__") == 0
