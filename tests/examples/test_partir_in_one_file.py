"""Is PartIR in one file what the package does: the same numbers, the same collectives, the same shardings?"""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

PATH = Path(__file__).parents[2] / "docs" / "partir_in_one_file.py"
MESHES = ({"batch": 4, "model": 2}, {"batch": 2, "model": 4}, {"batch": 8, "model": 1})


def one_file() -> ModuleType:
    spec = importlib.util.spec_from_file_location("partir_in_one_file", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ONE = one_file()


def step(w, x, t):
    """`ONE.training_step` in jax."""

    def loss(w):
        return jnp.sum((jax.nn.relu(x @ w["w1"]) @ w["w2"] - t) ** 2) / 2

    return jax.tree.map(lambda a, g: a - 0.1 * g, w, jax.grad(loss)(w))


def lowered(schedule, mesh) -> ap.Lowered:
    tactics = [
        ap.ManualPartition({v if v in "xt" else f"w/{v}": dim for v, dim, _ in tactic}, axis=tactic[0][2], name=str(i))
        for i, tactic in enumerate(schedule)
    ]
    of = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in ONE.training_step().shapes.items()}
    return ap.jit(step, ap.Mesh(mesh), tactics).lower({"w1": of["w1"], "w2": of["w2"]}, of["x"], of["t"])


@pytest.mark.parametrize("mesh", MESHES[:2], ids=str)
@pytest.mark.parametrize("name", ONE.SCHEDULES)
def test_collectives_and_shardings_are_those_of_the_package(name, mesh):
    partitioning = ONE.partition(ONE.training_step(), mesh, ONE.SCHEDULES[name])
    arguments = {v: np.zeros(partitioning.program.shapes[v]) for v in ("x", "t", "w1", "w2")}
    theirs = lowered(ONE.SCHEDULES[name], mesh)
    counts = sum((Counter(kinds) for kinds in theirs.program.collectives_by_axis().values()), Counter())
    assert ONE.run(partitioning, arguments)[1] == counts
    for value, sharding in theirs.in_shardings[0][0].items():
        held = {axis: partitioning.held(value, axis) for axis in mesh}
        assert {axis: dim for axis, dim in held.items() if dim is not None} == {
            axis: dim for dim, axis in enumerate(sharding.spec) if axis is not None
        }


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", ONE.SCHEDULES)
def test_numbers_are_those_of_one_device(name, mesh):
    program, rng = ONE.training_step(), np.random.default_rng(1)
    arguments = {v: rng.normal(size=program.shapes[v]) for v in ("x", "t", "w1", "w2")}
    alone, _ = ONE.run(ONE.Partitioning(program, {"batch": 1}), arguments)
    found, _ = ONE.run(ONE.partition(program, mesh, ONE.SCHEDULES[name]), arguments)
    for value in program.outputs:
        np.testing.assert_allclose(found[value], alone[value])


def test_it_runs_as_a_script(capsys):
    ONE.main()
    assert "WRONG" not in capsys.readouterr().out
