"""Does partition metadata of flax say where arrays lie, by name or by rules?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx

import autopart as ap

MESH = ap.Mesh({"data": 4, "model": 2})
RULES = [("batch", "data"), ("embed", None), ("mlp", "model"), ("embed", "data")]
INIT = nn.initializers.lecun_normal()
X = np.ones((8, 32), np.float32)


class Named(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(64, kernel_init=nn.with_partitioning(INIT, (None, "model")))(x)
        return nn.Dense(8, kernel_init=nn.with_partitioning(INIT, ("model", None)))(x)


class Logical(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(64, kernel_init=nn.with_logical_partitioning(INIT, ("embed", "mlp")))(x)


def step_of(model):
    def step(params, x):
        def loss(params):
            return (model.apply(nn.unbox(params), x) ** 2).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    return step


def specs(model, **options):
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), X))
    low = ap.jit(step_of(model), MESH, donate_argnums=0, **options).lower(params, X)
    return {name: dims for name, dims in low.metadata.in_specs.items() if dims}, low


def test_names_of_mesh_axes_are_given_shardings():
    found, low = specs(Named(), in_shardings="flax")
    kernels = {name: dims for name, dims in found.items() if "kernel" in name}
    assert kernels == {
        "params/params/Dense_0/kernel/value": ((), ("model",)),
        "params/params/Dense_1/kernel/value": (("model",),),
    }
    assert "flax names of params/params/Dense_0/kernel/value" in str(low.metadata.tactics[0].report["shardings"])
    params = Named().init(jax.random.key(0), X)
    step = ap.jit(step_of(Named()), MESH, in_shardings="flax")
    same = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6)  # noqa: E731
    jax.tree.map(same, step(params, X), jax.jit(step_of(Named()))(params, X))


def test_rules_read_logical_names_the_first_that_is_free():
    assert specs(Logical(), in_shardings=RULES)[0]["params/params/Dense_0/kernel/value"] == ((), ("model",))
    other = [("embed", "model"), ("mlp", "model"), ("mlp", ("data",))]
    found = specs(Logical(), in_shardings=other)[0]["params/params/Dense_0/kernel/value"]
    assert found == (("model",), ("data",))


def test_rules_of_the_context_count():
    with nn.logical_axis_rules(RULES):
        assert specs(Logical(), in_shardings="flax")[0]["params/params/Dense_0/kernel/value"] == ((), ("model",))


def test_metadata_that_nothing_reads_is_a_remark():
    _, low = specs(Named())
    assert 'in_shardings="flax" would' in str(low.metadata.remarks)
    assert "flax" not in str(specs(Named(), in_shardings="flax")[1].metadata.remarks)


class Layer(nnx.Module):
    def __init__(self, rngs):
        init = nnx.with_partitioning(nnx.initializers.lecun_normal(), ("embed", "mlp"))
        self.up = nnx.Linear(32, 64, kernel_init=init, rngs=rngs)

    def __call__(self, x):
        return jnp.tanh(self.up(x))


def train(model, opt, x):
    loss, grads = nnx.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
    opt.update(model, grads)
    return loss


@pytest.fixture
def modules():
    with nnx.use_eager_sharding(False):
        model = Layer(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)


def test_variables_of_nnx_have_it_too(modules):
    step = ap.nnx.jit(train, MESH, in_shardings=RULES, donate_argnames=("model", "opt"))
    found = step.lower(*modules, X).metadata.in_specs
    assert found["model/up/kernel"] == ((), ("model",))
    assert found["opt/opt_state/0/mu/up/kernel"] == ((), ("model",))
    plain = nnx.jit(train)(*jax.tree.map(jnp.copy, modules), X)
    np.testing.assert_allclose(step(*modules, X), plain, rtol=1e-6)


def test_of_nnx_it_is_a_remark_too(modules):
    low = ap.nnx.jit(train, MESH).lower(*modules, X)
    assert "model/up/kernel" in str(low.metadata.remarks)
    with pytest.raises(ap.ArgumentError, match="takes no in_shardings but names of flax"):
        ap.nnx.jit(train, MESH, in_shardings=jax.P("data"))
