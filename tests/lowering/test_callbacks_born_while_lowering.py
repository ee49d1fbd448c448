"""Is a host callback found that no equation shows, since a primitive's lowering rule brings it?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir

import autopart as ap

X = np.linspace(-1, 1, 64, dtype="f4").reshape(8, 8)
BP = ap.ManualPartition({"x": 0}, axis="batch")
SEEN = []


def on_host(x):
    """x on the host, by a callback."""
    return jax.pure_callback(
        lambda x: SEEN.append(x.shape) or np.asarray(x) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x
    )


hidden_p = Primitive("hidden_callback")
hidden_p.def_abstract_eval(lambda x: x)
mlir.register_lowering(hidden_p, mlir.lower_fun(on_host, multiple_results=False))

WAYS = {
    "alone": hidden_p.bind,
    "in a scan": lambda x: jax.lax.scan(lambda c, _: (hidden_p.bind(c), None), x, None, 2)[0] / 2,
    "in a branch": lambda x: jax.lax.cond(x[0, 0] < 0, hidden_p.bind, lambda x: x, x),
    "beside one that shows": lambda x: (jax.debug.callback(lambda _: None, x[0, 0]), hidden_p.bind(x))[1],
}


@pytest.mark.parametrize("device", ["tpu_v3", "h100", None])
@pytest.mark.parametrize("way", WAYS)
def test_a_callback_that_a_lowering_rule_brings_is_seen(way, device):
    mesh = ap.Mesh({"batch": 8}, device=device)
    low = ap.jit(lambda x: WAYS[way](jnp.tanh(x)), mesh, [BP]).lower(X)
    assert len(low.traced.program.source.bodies) == 1 + (way == "beside one that shows")


@pytest.mark.parametrize("way", WAYS)
def test_a_callback_that_a_lowering_rule_brings_runs_once_for_all_devices(way):
    SEEN.clear()
    found = ap.jit(lambda x: WAYS[way](jnp.tanh(x)), ap.Mesh({"batch": 8}), [BP])(X)
    np.testing.assert_allclose(found, np.tanh(X) * 2, rtol=1e-5)
    assert (SEEN, len(SEEN)) == ([(8, 8)] * len(SEEN), 2 if way == "in a scan" else 1)


def test_what_jax_refuses_for_another_reason_says_so():
    with pytest.raises(ap.ProgramError, match="jax cannot lower"):
        ap.jit(lambda x: jnp.linalg.eig(x), ap.Mesh({"batch": 8}, device="tpu_v3")).lower(X)
