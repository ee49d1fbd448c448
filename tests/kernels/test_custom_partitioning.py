"""Are functions that carry a sharding rule sliced by it, without a word of ours?"""

from __future__ import annotations

import functools

import jax.numpy as jnp
import pytest
from jax.experimental.custom_partitioning import SdyShardingRule, custom_partitioning

import autopart as ap
from tests.kernels.programs import MESH, arrays, close, kernels


def product(rule, **how):
    """tanh(x @ w) * scale; on a device `partition` gives it."""

    @functools.partial(custom_partitioning, static_argnums=(2,))
    def scaled(x, w, scale):
        return jnp.tanh(x @ w) * scale

    def partition(scale, mesh, operands, result):
        return mesh, lambda x, w: jnp.tanh(x @ w) * scale, result.sharding, tuple(o.sharding for o in operands)

    scaled.def_partition(partition, sharding_rule=rule, **how)
    return lambda x, w: scaled(x, w, 3.0)


AS_OBJECT = SdyShardingRule((("b", "s", "i"), ("i", "k")), (("b", "s", "k"),))


@pytest.mark.parametrize(
    ("rule", "how"),
    [
        ("... i j, j k -> ... i k", {}),
        (AS_OBJECT, {}),
        (lambda scale, mesh, operands, results: "b s i, i k -> b s k", {}),
        ("b s i, i k -> b s k", {"need_replication_factors": ("s",)}),
    ],
)
def test_its_own_rule_says_how_it_is_sliced(rule, how):
    function = product(rule, **how)
    x, w = arrays((4, 8, 16), (16, 32))
    schedule = [ap.ManualPartition({"x": 0}, axis="d"), ap.ManualPartition({"w": 1}, axis="m")]
    step = ap.jit(lambda x, w: function(x, w) + 1, ap.Mesh(MESH), schedule)
    low = step.lower(x, w)
    assert not low.program.collectives()
    (found,) = kernels(low).values()
    assert found["matrix_flop"] == 2 * 4 * 8 * 16 * 32
    assert ("s=8" in found["rule"] or "i=8" in found["rule"] or "_1=" in found["rule"]) != bool(how)
    close(step(x, w), jnp.tanh(x @ w) * 3 + 1)


def test_without_a_rule_it_is_whole_and_the_report_says_why():
    @custom_partitioning
    def opaque(x):
        return jnp.cumsum(x, axis=0)

    opaque.def_partition(lambda mesh, operands, result: (mesh, None, None, None), sharding_rule=None)
    low = ap.jit(lambda x: opaque(x), ap.Mesh(MESH), [ap.ManualPartition({"x": 0}, axis="d")]).lower(*arrays((8, 4)))
    (row,) = low.metadata.gathered
    assert "its custom_partitioning has no sharding_rule" in row.reason
