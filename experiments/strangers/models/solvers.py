"""Solvers of lineax, optimistix, diffrax and jaxopt: a step of what they are used for."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from experiments.strangers.perceptron import layers, mlp
from experiments.strangers.step import Step, f32, released, trained


def _solved(solver: str, **options: Any) -> Step:
    import lineax as lx

    def solve(matrices: jax.Array, vectors: jax.Array) -> jax.Array:
        def one(matrix: jax.Array, vector: jax.Array) -> jax.Array:
            positive = matrix @ matrix.T + jnp.eye(matrix.shape[0])
            operator = lx.MatrixLinearOperator(positive, lx.positive_semidefinite_tag)
            return lx.linear_solve(operator, vector, getattr(lx, solver)(**options)).value

        return jax.vmap(one)(matrices, vectors)

    return Step(solve, (f32(64, 128, 128), f32(64, 128)), (), {"matrices": 0, "vectors": 0})


for _solver in ("LU", "QR", "SVD", "Cholesky"):
    released(f"lineax/{_solver}", "lineax")(functools.partial(_solved, _solver))
for _solver in ("CG", "GMRES", "BiCGStab"):
    released(f"lineax/{_solver}", "lineax")(functools.partial(_solved, _solver, rtol=1e-5, atol=1e-5))


def _residuals(x: jax.Array, data: tuple[jax.Array, jax.Array]) -> jax.Array:
    times, seen = data
    return x[0] * jnp.exp(-x[1] * times) * jnp.cos(x[2] * times + x[3]) - seen


def _fitted(kind: str, solver: str) -> Step:
    import optimistix as optx

    def fit(starts: jax.Array, times: jax.Array, seen: jax.Array) -> jax.Array:
        solve = getattr(optx, solver)(rtol=1e-6, atol=1e-6)

        def one(start: jax.Array, times: jax.Array, seen: jax.Array) -> jax.Array:
            if kind == "least_squares":
                return optx.least_squares(_residuals, solve, start, (times, seen), max_steps=64, throw=False).value
            loss = lambda x, data: jnp.sum(_residuals(x, data) ** 2)  # noqa: E731
            return optx.minimise(loss, solve, start, (times, seen), max_steps=64, throw=False).value

        return jax.vmap(one)(starts, times, seen)

    return Step(fit, (f32(256, 4), f32(256, 128), f32(256, 128)), (), {"starts": 0, "times": 0, "seen": 0})


for _kind, _solver in (
    ("least_squares", "LevenbergMarquardt"),
    ("least_squares", "Dogleg"),
    ("minimise", "BFGS"),
    ("minimise", "NelderMead"),
):
    released(f"optimistix/{_solver}", "optimistix")(functools.partial(_fitted, _kind, _solver))


_tanh = functools.partial(mlp, activation=jnp.tanh)


@released("diffrax/neural-ode", "diffrax")
def neural_ode() -> Step:
    """Trajectories by an adaptive solver, and gradients by recursive checkpoints."""
    import diffrax as dfx

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        def trajectory(times: jax.Array, start: jax.Array) -> jax.Array:
            return dfx.diffeqsolve(
                dfx.ODETerm(lambda t, y, args: _tanh(params, y)),
                dfx.Tsit5(),
                t0=times[0],
                t1=times[-1],
                dt0=0.01,
                y0=start,
                stepsize_controller=dfx.PIDController(rtol=1e-3, atol=1e-6),
                saveat=dfx.SaveAt(ts=times),
                max_steps=256,
                throw=False,
            ).ys

        seen = batch["seen"]
        return jnp.mean((jax.vmap(trajectory)(batch["times"], seen[:, 0]) - seen) ** 2)

    return trained(loss, layers(64, 256, 256, 64), {"times": f32(128, 32), "seen": f32(128, 32, 64)})


@released("diffrax/sde", "diffrax")
def sde() -> Step:
    """Paths of a neural SDE, along a Brownian path that is drawn as a tree."""
    import diffrax as dfx

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        def path(key: jax.Array, start: jax.Array) -> jax.Array:
            noise = dfx.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(64,), key=key)
            drift = dfx.ODETerm(lambda t, y, args: _tanh(params["drift"], y))
            spread = dfx.ControlTerm(lambda t, y, args: jnp.diag(jnp.tanh(_tanh(params["spread"], y))), noise)
            terms = dfx.MultiTerm(drift, spread)
            return dfx.diffeqsolve(terms, dfx.Heun(), 0.0, 1.0, 0.05, start, throw=False).ys[-1]

        start = batch["starts"]
        return jnp.mean(jax.vmap(path)(jax.random.split(key, start.shape[0]), start) ** 2)

    params = {"drift": layers(64, 256, 64), "spread": layers(64, 256, 64)}
    return trained(loss, params, {"starts": f32(128, 64)})


@released("diffrax/stiff", "diffrax")
def stiff() -> Step:
    """An implicit solver: Newton's method in each step, LU in each of those."""
    import diffrax as dfx

    def reactions(rates: jax.Array, starts: jax.Array) -> jax.Array:
        def field(t: jax.Array, y: jax.Array, rates: jax.Array) -> jax.Array:
            a, b, c = y
            return jnp.stack(
                [
                    -rates[0] * a + rates[1] * b * c,
                    rates[0] * a - rates[1] * b * c - rates[2] * b**2,
                    rates[2] * b**2,
                ]
            )

        def one(rates: jax.Array, start: jax.Array) -> jax.Array:
            control = dfx.PIDController(rtol=1e-6, atol=1e-8)
            return dfx.diffeqsolve(
                dfx.ODETerm(field), dfx.Kvaerno5(), 0.0, 100.0, 1e-3, start, rates,
                stepsize_controller=control, max_steps=512, throw=False,
            ).ys  # fmt: skip

        return jax.vmap(one)(rates, starts)

    return Step(reactions, (f32(64, 3), f32(64, 3)), (), {"rates": 0, "starts": 0})


def _minimised(solver: str, **options: Any) -> Step:
    import jaxopt

    def loss(params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        picked = jnp.take_along_axis(jax.nn.log_softmax(_tanh(params, images)), labels[:, None], 1)
        return -jnp.mean(picked)

    made = getattr(jaxopt, solver)(loss, **options)
    params, images, labels = layers(784, 512, 10), f32(1024, 784), jax.ShapeDtypeStruct((1024,), jnp.int32)
    state = jax.eval_shape(made.init_state, params, images, labels)

    def update(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        return tuple(made.update(params, state, images, labels))

    return Step(update, (params, state, images, labels), (0, 1), {"images": 0, "labels": 0})


for _solver in ("LBFGS", "NonlinearCG", "GradientDescent"):
    released(f"jaxopt/{_solver}", "jaxopt")(functools.partial(_minimised, _solver))


@released("jaxopt/implicit-svm", "jaxopt")
def implicit() -> Step:
    """The gradient of a ridge penalty through the solution that it leads to."""
    import jaxopt

    def gradient(penalty: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        def held_out(penalty: jax.Array) -> jax.Array:
            half = x.shape[0] // 2
            objective = lambda w, penalty: jnp.mean((x[:half] @ w - y[:half]) ** 2) + penalty * jnp.sum(w**2)  # noqa: E731
            solver = jaxopt.LBFGS(objective, maxiter=50, implicit_diff=True)
            w = solver.run(jnp.zeros(x.shape[1]), penalty).params
            return jnp.mean((x[half:] @ w - y[half:]) ** 2)

        return jax.grad(held_out)(penalty)

    return Step(gradient, (f32(), f32(4096, 256), f32(4096)), (), {"x": 0, "y": 0})
