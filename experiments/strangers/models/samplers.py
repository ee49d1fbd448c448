"""Steps of numpyro, blackjax and evosax: chains, variational inference, populations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.strangers.step import KEY, Step, f32, released

CHAINS, ROWS, FEATURES = 64, 8192, 64


def shapes(tree: Any) -> Any:
    """Arrays as their shapes, typed keys too."""
    return jax.eval_shape(lambda: tree)


def _regression(x: jax.Array, y: jax.Array) -> None:
    import numpyro
    import numpyro.distributions as dist

    scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(x.shape[1]), scale))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def _schools(x: jax.Array, y: jax.Array) -> None:
    import numpyro
    import numpyro.distributions as dist

    mean, spread = numpyro.sample("mean", dist.Normal(0, 5)), numpyro.sample("spread", dist.HalfCauchy(5))
    with numpyro.plate("schools", x.shape[1]):
        effects = numpyro.sample("effects", dist.Normal(mean, spread))
    numpyro.sample("y", dist.Normal(x @ effects, 1.0).to_event(1), obs=y)


def _chain(model: Callable[..., None], sampler: str) -> Step:
    import numpyro.infer as infer

    data = np.ones((ROWS, FEATURES), np.float32), np.zeros(ROWS, np.float32)
    kernel = getattr(infer, sampler)(model)
    state = kernel.init(jax.random.PRNGKey(0), 100, None, data, {})

    def sample(state: Any, x: jax.Array, y: jax.Array) -> Any:
        return kernel.sample(state, (x, y), {})

    return Step(sample, (shapes(state), f32(ROWS, FEATURES), f32(ROWS)), (0,), {"x": 0, "y": 0})


for _sampler in ("NUTS", "HMC", "BarkerMH"):
    released(f"numpyro/{_sampler}-regression", "numpyro")(functools.partial(_chain, _regression, _sampler))
released("numpyro/NUTS-schools", "numpyro")(functools.partial(_chain, _schools, "NUTS"))


@released("numpyro/vae", "numpyro flax")
def vae() -> Step:
    """Variational inference with networks of flax and subsampled rows."""
    import flax.linen as nn
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.module import flax_module
    from numpyro.infer import SVI, Trace_ELBO

    class Encoder(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            x = nn.softplus(nn.Dense(400)(x))
            return nn.Dense(50)(x), jnp.exp(nn.Dense(50)(x))

    class Decoder(nn.Module):
        @nn.compact
        def __call__(self, z: jax.Array) -> jax.Array:
            return nn.Dense(784)(nn.softplus(nn.Dense(400)(z)))

    def model(images: jax.Array) -> None:
        decode = flax_module("decoder", Decoder(), input_shape=(50,))
        with numpyro.plate("images", images.shape[0]):
            z = numpyro.sample("z", dist.Normal(jnp.zeros(50), 1).to_event(1))
            numpyro.sample("seen", dist.Bernoulli(logits=decode(z)).to_event(1), obs=images)

    def guide(images: jax.Array) -> None:
        mean, spread = flax_module("encoder", Encoder(), input_shape=(784,))(images)
        with numpyro.plate("images", images.shape[0]):
            numpyro.sample("z", dist.Normal(mean, spread).to_event(1))

    svi = SVI(model, guide, numpyro.optim.Adam(1e-3), Trace_ELBO())
    state = svi.init(jax.random.PRNGKey(0), jnp.zeros((4, 784)))
    return Step(lambda state, images: svi.update(state, images), (shapes(state), f32(1024, 784)), (0,), {"images": 0})


@released("numpyro/autoguide", "numpyro")
def autoguide() -> Step:
    """Variational inference with a full covariance."""
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoMultivariateNormal

    svi = SVI(_regression, AutoMultivariateNormal(_regression), numpyro.optim.Adam(1e-3), Trace_ELBO(num_particles=8))
    state = svi.init(jax.random.PRNGKey(0), jnp.ones((4, FEATURES)), jnp.zeros(4))
    args = (shapes(state), f32(ROWS, FEATURES), f32(ROWS))
    return Step(lambda state, x, y: svi.update(state, x, y), args, (0,), {"x": 0, "y": 0})


def _log_density(x: jax.Array, y: jax.Array) -> Callable[[Any], jax.Array]:
    def density(position: dict[str, jax.Array]) -> jax.Array:
        logits = x @ position["weights"] + position["bias"]
        return jnp.sum(y * logits - jnp.logaddexp(0.0, logits)) - 0.5 * jnp.sum(position["weights"] ** 2)

    return density


def _chains(sampler: str, **options: Any) -> Step:
    """A step of each of many chains."""
    import blackjax

    build = getattr(blackjax, sampler)
    position = {"weights": f32(CHAINS, FEATURES), "bias": f32(CHAINS)}
    if options.pop("mass", False):
        options["inverse_mass_matrix"] = np.ones(FEATURES + 1, np.float32)

    def kernel(x: jax.Array, y: jax.Array) -> Any:
        return build(_log_density(x, y), **options)

    def init(position: Any, x: jax.Array, y: jax.Array) -> Any:
        return jax.vmap(kernel(x, y).init)(position)

    def step(state: Any, x: jax.Array, y: jax.Array, key: jax.Array) -> Any:
        return jax.vmap(kernel(x, y).step)(jax.random.split(key, CHAINS), state)

    data = f32(ROWS, FEATURES), f32(ROWS)
    state = jax.eval_shape(init, position, *data)
    return Step(step, (state, *data, KEY), (0,), {"state": 0})


released("blackjax/nuts", "blackjax")(functools.partial(_chains, "nuts", step_size=0.01, mass=True))
released("blackjax/hmc", "blackjax")(
    functools.partial(_chains, "hmc", step_size=0.01, num_integration_steps=10, mass=True)
)
released("blackjax/mala", "blackjax")(functools.partial(_chains, "mala", step_size=0.01))
released("blackjax/barker", "blackjax")(functools.partial(_chains, "barker_proposal", step_size=0.01))


@released("blackjax/tempered-smc", "blackjax")
def tempered() -> Step:
    """Particles that are weighed, resampled, and moved by Hamiltonian steps."""
    import blackjax
    from blackjax.smc import resampling

    mass = np.ones((FEATURES,), np.float32)

    def prior(position: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum(position**2)

    def smc(x: jax.Array, y: jax.Array) -> Any:
        def likelihood(weights: jax.Array) -> jax.Array:
            return _log_density(x, y)({"weights": weights, "bias": jnp.zeros(())})

        parameters = {"step_size": 0.01, "inverse_mass_matrix": mass, "num_integration_steps": 5}
        parameters = {name: jnp.asarray(value)[None] for name, value in parameters.items()}
        return blackjax.adaptive_tempered_smc(
            prior, likelihood, blackjax.hmc.build_kernel(), blackjax.hmc.init, parameters,
            resampling.systematic, 0.5, num_mcmc_steps=3,
        )  # fmt: skip

    data = f32(ROWS, FEATURES), f32(ROWS)
    state = jax.eval_shape(lambda p, x, y: smc(x, y).init(p), f32(1024, FEATURES), *data)

    def step(state: Any, x: jax.Array, y: jax.Array, key: jax.Array) -> Any:
        return smc(x, y).step(key, state)

    return Step(step, (state, *data, KEY), (0,), {"x": 0, "y": 0})


def _population(strategy: str) -> Step:
    """A generation: candidates are asked for, weighed, and told."""
    from evosax import algorithms

    size = 512
    found = getattr(algorithms, strategy)(population_size=size, solution=jnp.zeros(256))
    params = found.default_params
    state = jax.eval_shape(found.init, KEY, f32(256), params)

    def generation(state: Any, targets: jax.Array, key: jax.Array) -> Any:
        asked, told = jax.random.split(key)
        candidates, state = found.ask(asked, state, params)
        fitness = jnp.mean((candidates @ targets) ** 2, -1)
        return found.tell(told, candidates, fitness, state, params)

    return Step(generation, (state, f32(256, 128), KEY), (0,))


for _strategy in ("CMA_ES", "Open_ES", "PGPE", "SNES"):
    released(f"evosax/{_strategy}", "evosax")(functools.partial(_population, _strategy))
