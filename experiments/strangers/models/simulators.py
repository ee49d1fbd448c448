"""Steps of simulators: brax and MuJoCo's MJX, molecules of jax-md, fluids of jax-cfd, games of gymnax and pgx."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.strangers.step import KEY, Step, f32, i32, released

WORLDS = 256


def _brax(environment: str, backend: str) -> Step:
    """A step of many worlds, from states that a reset makes."""
    from brax import envs

    world = envs.get_environment(environment, backend=backend)
    state = jax.eval_shape(jax.vmap(world.reset), jax.ShapeDtypeStruct((WORLDS, 2), jnp.uint32))

    def step(state: Any, action: jax.Array) -> Any:
        return jax.vmap(world.step)(state, action)

    return Step(step, (state, f32(WORLDS, world.action_size)), (0,), {"state": 0, "action": 0})


for _environment, _backend in (("ant", "spring"), ("halfcheetah", "generalized"), ("humanoid", "positional")):
    released(f"brax/{_environment}-{_backend}", "brax mujoco")(functools.partial(_brax, _environment, _backend))

ARM = """<mujoco><option timestep="0.002"/><worldbody><geom type="plane" size="5 5 .1"/>
<body pos="0 0 1"><freejoint/><geom type="sphere" size=".2"/>
<body pos="0 0 -.3"><joint name="a" type="hinge" axis="0 1 0"/><geom type="capsule" size=".05" fromto="0 0 0 0 0 -.4"/>
<body pos="0 0 -.4"><joint name="b" type="hinge" axis="1 0 0"/><geom type="capsule" size=".05" fromto="0 0 0 0 0 -.4"/>
</body></body></body></worldbody><actuator><motor joint="a"/><motor joint="b"/></actuator></mujoco>"""


def _mjx(solver: str) -> Step:
    """MuJoCo's step, with contacts, in many worlds."""
    import mujoco
    from mujoco import mjx

    compiled = mujoco.MjModel.from_xml_string(ARM)
    compiled.opt.solver = getattr(mujoco.mjtSolver, f"mjSOL_{solver}")
    model = mjx.put_model(compiled)
    one = jax.eval_shape(lambda: mjx.make_data(compiled))
    state = jax.tree.map(lambda x: jax.ShapeDtypeStruct((WORLDS, *x.shape), x.dtype), one)

    def step(state: Any, control: jax.Array) -> Any:
        return jax.vmap(lambda d, u: mjx.step(model, d.replace(ctrl=u)))(state, control)

    return Step(step, (state, f32(WORLDS, compiled.nu)), (0,), {"state": 0, "control": 0})


for _solver in ("NEWTON", "CG"):
    released(f"mjx/{_solver.lower()}", "mujoco mujoco.mjx")(functools.partial(_mjx, _solver))


def _molecules(ensemble: str) -> Step:
    """Lennard-Jones particles in a periodic box, each pair by pair."""
    from jax_md import energy, simulate, space

    count = 2048
    displacement, shift = space.periodic(16.0)
    potential = energy.lennard_jones_pair(displacement)
    made = {
        "nve": lambda: simulate.nve(potential, shift, 1e-3),
        "nvt": lambda: simulate.nvt_nose_hoover(potential, shift, 1e-3, 1.0),
        "langevin": lambda: simulate.nvt_langevin(potential, shift, 1e-3, 1.0),
    }
    init, apply = made[ensemble]()
    state = jax.eval_shape(
        lambda key, r: init(key, r, **({"kT": 1.0} if ensemble == "nve" else {})), KEY, f32(count, 3)
    )
    particles = dict.fromkeys(("state/position", "state/momentum", "state/force"), 0)
    return Step(lambda state: apply(state), (state,), (0,), particles if ensemble == "nve" else {})


for _ensemble in ("nve", "nvt", "langevin"):
    released(f"jax-md/{_ensemble}", "jax_md")(functools.partial(_molecules, _ensemble))


@released("jax-md/minimise-neighbours", "jax_md")
def neighbours() -> Step:
    """The forces of a soft sphere packing, by lists of neighbours."""
    from jax_md import energy, space

    side, count = 40.0, 4096
    displacement, _ = space.periodic(side)
    lists, potential = energy.soft_sphere_neighbor_list(displacement, side)
    positions = np.random.default_rng(0).uniform(0, side, (count, 3)).astype(np.float32)
    found = lists.allocate(positions)

    def forces(positions: jax.Array, found: Any) -> Any:
        found = found.update(positions)
        return jax.grad(potential)(positions, neighbor=found), found

    return Step(forces, (f32(count, 3), jax.eval_shape(lambda: found)))


@released("jax-cfd/turbulence", "jax_cfd")
def turbulence() -> Step:
    """Navier and Stokes on a staggered grid; pressure by a fast diagonalisation."""
    import jax_cfd.base as cfd

    grid = cfd.grids.Grid((256, 256), domain=((0, 2 * np.pi), (0, 2 * np.pi)))
    step = cfd.equations.semi_implicit_navier_stokes(
        density=1.0,
        viscosity=1e-3,
        dt=1e-3,
        grid=grid,
        forcing=cfd.forcings.kolmogorov_forcing(grid, k=4),
    )
    field = jax.eval_shape(lambda key: cfd.initial_conditions.filtered_velocity_field(key, grid, 3.0, 4.0), KEY)
    return Step(lambda velocity: cfd.funcutils.repeated(step, 4)(velocity), (field,), (0,), {"velocity": 0})


@released("jax-cfd/spectral", "jax_cfd")
def spectral() -> Step:
    """Vorticity in Fourier space, by Crank-Nicolson and Runge-Kutta."""
    import jax_cfd.base as cfd
    import jax_cfd.spectral as spectral

    grid = cfd.grids.Grid((256, 256), domain=((0, 2 * np.pi), (0, 2 * np.pi)))
    equation = spectral.equations.ForcedNavierStokes2D(1e-3, grid, smooth=True)
    step = spectral.time_stepping.crank_nicolson_rk4(equation, 1e-3)
    vorticity = jax.ShapeDtypeStruct((256, 129), jnp.complex64)
    return Step(lambda vorticity: step(vorticity), (vorticity,), (0,), {"vorticity": 0})


def _gym(name: str) -> Step:
    """Steps of many worlds with random actions, in a loop."""
    import gymnax

    world, settings = gymnax.make(name)
    keys = jax.ShapeDtypeStruct((WORLDS, 2), jnp.uint32)
    _, state = jax.eval_shape(jax.vmap(lambda key: world.reset(key, settings)), keys)

    def rollout(state: Any, keys: jax.Array) -> Any:
        def one(state: Any, key: jax.Array) -> Any:
            def step(state: Any, key: jax.Array) -> Any:
                chosen, moved = jax.random.split(key)
                action = world.action_space(settings).sample(chosen)
                seen, state, reward, *_ = world.step(moved, state, action, settings)
                return state, (seen, reward)

            return jax.lax.scan(step, state, jax.random.split(key, 16))

        return jax.vmap(one)(state, keys)

    return Step(rollout, (state, keys), (0,), {"state": 0, "keys": 0})


for _name in ("CartPole-v1", "Breakout-MinAtar", "Pendulum-v1"):
    released(f"gymnax/{_name}", "gymnax")(functools.partial(_gym, _name))


def _game(name: str) -> Step:
    """A move in each of many games."""
    import pgx

    game = pgx.make(name)
    keys = jax.ShapeDtypeStruct((WORLDS, 2), jnp.uint32)
    state = jax.eval_shape(jax.vmap(game.init), keys)

    def move(state: Any, moves: jax.Array, keys: jax.Array) -> Any:
        return jax.vmap(game.step)(state, moves, keys)

    return Step(move, (state, i32(WORLDS), keys), (0,), {"state": 0, "moves": 0, "keys": 0})


for _name in ("go_9x9", "chess", "backgammon"):
    released(f"pgx/{_name}", "pgx")(functools.partial(_game, _name))
