"""Steps of packages for a science each: Gaussian processes, transport, flows, equivariance, cosmology."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from experiments.strangers.perceptron import layers, mlp
from experiments.strangers.step import Step, f32, i32, released, trained


def _gaussian_process(quasiseparable: bool) -> Step:
    """The gradient of a marginal likelihood: Cholesky of a kernel, or a scan along ordered points."""
    import tinygp

    count = 4096 if quasiseparable else 1024
    ordered = {"assume_sorted": True} if quasiseparable else {}
    kernels = tinygp.kernels.quasisep if quasiseparable else tinygp.kernels

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        kernel = jnp.exp(params["size"]) * kernels.Matern32(scale=jnp.exp(params["scale"]))

        def one(x: jax.Array, y: jax.Array) -> jax.Array:
            process = tinygp.GaussianProcess(kernel, x, diag=jnp.exp(params["noise"]), **ordered)
            return -process.log_probability(y)

        return jnp.mean(jax.vmap(one)(batch["x"], batch["y"]))

    params = {name: f32() for name in ("size", "scale", "noise")}
    return trained(loss, params, {"x": f32(8, count), "y": f32(8, count)})


released("tinygp/dense", "tinygp")(lambda: _gaussian_process(False))
released("tinygp/quasiseparable", "tinygp")(lambda: _gaussian_process(True))


@released("ott/sinkhorn", "ott")
def sinkhorn() -> Step:
    """The gradient of a transport between point clouds, by implicit differentiation."""
    from ott.geometry import pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        def one(x: jax.Array, y: jax.Array) -> jax.Array:
            geometry = pointcloud.PointCloud(mlp(params, x), y, epsilon=0.1)
            return sinkhorn.Sinkhorn(max_iterations=100)(linear_problem.LinearProblem(geometry)).reg_ot_cost

        return jnp.mean(jax.vmap(one)(batch["x"], batch["y"]))

    return trained(loss, layers(16, 256, 16), {"x": f32(16, 512, 16), "y": f32(16, 512, 16)})


@released("ott/gromov-wasserstein", "ott")
def gromov_wasserstein() -> Step:
    """A transport between clouds in spaces of their own."""
    from ott.geometry import pointcloud
    from ott.problems.quadratic import quadratic_problem
    from ott.solvers.linear import sinkhorn
    from ott.solvers.quadratic import gromov_wasserstein

    def transport(x: jax.Array, y: jax.Array) -> jax.Array:
        problem = quadratic_problem.QuadraticProblem(pointcloud.PointCloud(x), pointcloud.PointCloud(y))
        solver = gromov_wasserstein.GromovWasserstein(
            linear_solver=sinkhorn.Sinkhorn(max_iterations=50), epsilon=1.0, max_iterations=10
        )
        return solver(problem).matrix

    return Step(transport, (f32(512, 16), f32(512, 8)), (), {"x": 0})


@released("flowjax/block-autoregressive", "flowjax equinox")
def block_autoregressive() -> Step:
    """A normalising flow whose inverse is found by bisection, trained by likelihood."""
    import flowjax.distributions as distributions
    from flowjax.flows import block_neural_autoregressive_flow

    def make(key: jax.Array) -> Any:
        return block_neural_autoregressive_flow(key, base_dist=distributions.Normal(jnp.zeros(16)), flow_layers=2)

    return _of_flow(make(jax.random.key(0)), 16)


@released("flowjax/coupling", "flowjax equinox")
def coupling() -> Step:
    """Couplings of rational quadratic splines, in a scan over layers."""
    import flowjax.distributions as distributions
    from flowjax.bijections import RationalQuadraticSpline
    from flowjax.flows import coupling_flow

    def make(key: jax.Array) -> Any:
        base = distributions.Normal(jnp.zeros(32))
        return coupling_flow(key, base_dist=base, transformer=RationalQuadraticSpline(knots=8, interval=4))

    return _of_flow(make(jax.random.key(0)), 32)


def _of_flow(flow: Any, size: int) -> Step:
    import equinox as eqx
    import paramax

    arrays, still = eqx.partition(flow, eqx.is_inexact_array)
    params = jax.eval_shape(lambda: arrays)

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        return -jnp.mean(paramax.unwrap(eqx.combine(params, still)).log_prob(batch["x"]))

    return trained(loss, params, {"x": f32(2048, size)})


@released("e3nn/messages", "e3nn_jax")
def equivariant() -> Step:
    """Energies and forces of atoms: spherical harmonics, tensor products, gates."""
    import e3nn_jax as e3nn

    atoms, edges, width = 1024, 16_384, 32

    def energy(params: Any, positions: jax.Array, senders: jax.Array, receivers: jax.Array) -> jax.Array:
        between = positions[receivers] - positions[senders]
        around = e3nn.spherical_harmonics("0e + 1o + 2e", e3nn.IrrepsArray("1o", between), True)
        lengths = jnp.linalg.norm(between + 1e-6, axis=-1, keepdims=True)
        radial = e3nn.bessel(lengths[:, 0], 8, 5.0)
        x = e3nn.IrrepsArray(f"{width}x0e", jnp.ones((atoms, width)) @ params["embed"])
        for layer in params["layers"]:
            messages = e3nn.tensor_product(x[senders], around).filter(["0e", "1o", "2e"])
            messages = messages * mlp(layer["radial"], radial)[:, :1]
            gathered = e3nn.scatter_sum(messages, dst=receivers, output_size=atoms)
            x = e3nn.IrrepsArray(f"{width}x0e", gathered.filter("0e").array[:, :width] @ layer["mix"])
        return jnp.sum(x.array @ params["out"])

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        graph = batch["positions"], batch["senders"], batch["receivers"]
        value, forces = jax.value_and_grad(energy, 1)(params, *graph)
        return value**2 + jnp.mean((forces - batch["forces"]) ** 2)

    layer = {"radial": layers(8, 64, 8), "mix": f32(width, width)}
    params = {"embed": f32(width, width), "layers": [layer] * 2, "out": f32(width, 1)}
    batch = {
        "positions": f32(atoms, 3),
        "forces": f32(atoms, 3),
        "senders": i32(edges),
        "receivers": i32(edges),
    }
    return trained(loss, params, batch)


@released("jax-cosmo/power-spectrum", "jax_cosmo")
def power_spectrum() -> Step:
    """The Jacobian of angular power spectra by the parameters of a cosmology."""
    import jax_cosmo as cosmology

    def spectra(parameters: jax.Array, multipoles: jax.Array) -> jax.Array:
        def one(p: jax.Array) -> jax.Array:
            universe = cosmology.Planck15(Omega_c=p[0], sigma8=p[1])
            bins = [cosmology.redshift.smail_nz(1.0, 2.0, 1.0)]
            return cosmology.angular_cl.angular_cl(universe, multipoles, [cosmology.probes.WeakLensing(bins)])

        return jax.jacfwd(one)(parameters)

    return Step(spectra, (f32(2), f32(64)), (), {"multipoles": 0})
