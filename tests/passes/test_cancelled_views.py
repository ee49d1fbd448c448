"""Is an op that takes back what the one before it did left out, and no other?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from autopart.core.importer import read_module
from autopart.core.passes.cancelled_views import CancelledViews

X = np.arange(24, dtype="f4").reshape(4, 6)


def kinds(function):
    program = read_module(jax.jit(function).lower(X).compiler_ir("stablehlo"))
    made = CancelledViews().apply(program)
    return [made.spec(op).kind for op in range(made.op_count) if made.spec(op).kind not in ("argument", "constant")]


def turned(x):
    return lax.broadcast_in_dim(x[:, :4], (1, 4, 4), (2, 1)).reshape(4, 4)


CASES = {
    "there and back": (lambda x: jnp.sin(x.reshape(2, 2, 6).reshape(4, 6)), ["sine"]),
    "elsewhere": (lambda x: jnp.sin(x.reshape(2, 2, 6).reshape(2, 12)), ["reshape", "reshape", "sine"]),
    "another dim": (lambda x: jnp.sin(x[None].reshape(4, 6)), ["sine"]),
    "turned": (turned, ["slice", "broadcast_in_dim", "reshape"]),
    "a part": (lambda x: lax.concatenate([jnp.sin(x), jnp.cos(x)], 0)[4:], ["cosine"]),
    "some of a part": (
        lambda x: lax.concatenate([jnp.sin(x), jnp.cos(x)], 0)[5:],
        ["sine", "cosine", "concatenate", "slice"],
    ),
    "of two parts": (
        lambda x: lax.concatenate([jnp.sin(x), jnp.cos(x)], 0)[2:6],
        ["sine", "cosine", "concatenate", "slice"],
    ),
    "one alone": (lambda x: jnp.sin(lax.concatenate([x], 0)), ["sine"]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_taken_back_is_left_out(name):
    function, left = CASES[name]
    assert kinds(function) == left
