"""Does the walk visit every op and redistribution once, where it stands, whatever the control flow around it?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.emission.walk import Walk
from tests.property.random_programs import RandomProgram
from tests.property.random_schedules import MESHES, RandomActionsAnywhere

X = np.arange(64, dtype="f4").reshape(8, 8)


class Recorder:
    """A visitor for which a pair stands for a value: its number, and what last made it."""

    def __init__(self, local: DeviceLocal):
        self.local, self.events, self.ops, self.moves, self.settled = local, [], [], [], []
        arguments = {v: (v, "argument") for v in local.program.arguments}
        self.walk = Walk(local, self, arguments)
        self.outputs = self.walk.program()

    def _reads(self, uses) -> None:
        for use in uses:
            assert self.walk.read(use)[0] == self.walk.operand(use)

    def op(self, op, kind):
        self.ops.append(op)
        self.events.append(kind)
        self._reads(self.walk.uses(op))
        assert self.walk.operands(op) == [self.walk.read(use) for use in self.walk.uses(op)]
        for value in self.walk.results(op):
            self.walk.define(value, (value, "op"))

    def redistribute(self, number, value, plan):
        self.moves.append(number)
        self.events += [step.kind for step in plan.steps[:1]]  # none where the layouts differ in axes of size one
        assert value in self.walk.values
        return value, "moved"

    def settle(self, value, left, plan):
        self.settled.append(value)
        self.events += [step.kind for step in plan.steps[:1]]  # none where the layouts differ in axes of size one
        return value, "settled"

    def loop(self, loop):
        self.ops += [loop.op, *(carry.op for carry in loop.carries)]
        self._reads(carry.initial for carry in loop.carries)
        for region in (loop.condition, loop.body):
            self._region(region, [(carry.inside, "inside") for carry in loop.carries])
        for carry in loop.carries:
            self.walk.define(carry.after, (carry.after, "after"))

    def branches(self, case):
        self.ops += [case.op, *case.joins]
        self._reads([case.predicate])
        for branch in case.branches:
            self._region(branch, [])
        for join in case.joins:
            (value,) = self.walk.results(join)
            self.walk.define(value, (value, "joined"))

    def _region(self, region, given):
        self.events.append(f"{region.scope.kind} {{")
        for value, what in given:
            self.walk.define(value, (value, what))
        returned = self.walk.region(region)
        assert [value for value, _ in returned] == [self.walk.operand(use) for use in region.returns]
        self.events.append("}")


def recorded(fun, schedule, *args, mesh) -> Recorder:
    return Recorder(ap.jit(fun, mesh, schedule).lower(*args).program)


def test_a_loop_around_a_branch_comes_in_program_order():
    def fun(x, w):
        def body(i, v):
            return lax.cond(i > 1, lambda u: u @ w, lambda u: jnp.sin(u), v)

        return lax.fori_loop(0, 3, body, x).sum()

    schedule = [ap.ManualPartition({"x": 0}, axis="a"), ap.ManualPartition({"w": 0}, axis="a")]
    events = recorded(fun, schedule, X, X, mesh=ap.Mesh({"a": 4})).events
    assert [e for e in events if e not in ("constant", "convert", "add")] == [
        "all_gather",
        "condition {", "compare", "condition", "}",
        "body {", "compare", "branch {", "sine", "}", "branch {", "dot_general", "}", "}",
        "reduce", "all_reduce",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_every_op_and_redistribution_of_a_random_program_is_visited_once(seed):
    program = RandomProgram(seed, 20)
    seen = recorded(
        program, [RandomActionsAnywhere(seed, 16)], program.inputs(), mesh=ap.Mesh(MESHES[seed % len(MESHES)])
    )
    local = seen.local
    arguments = len(local.program.arguments)
    assert sorted(seen.ops) == list(range(arguments, local.program.op_count))
    assert sorted(seen.moves) == list(range(len(local.placement.value)))
    assert sorted(seen.settled) == [v for v in local.at_def.tolist() if v not in local.program.arguments]
    ties = local.program.ties
    assert [v for v, _ in seen.outputs] == [v for i, v in enumerate(local.program.outputs) if i not in ties]


def test_the_output_that_updates_an_argument_is_read_where_the_argument_waits():
    def fun(state, x):
        return state + x.sum(0)

    schedule = [ap.ManualPartition({"state": 0}, axis="a"), ap.ManualPartition({"x": 0}, axis="b")]
    step = ap.jit(fun, ap.Mesh({"a": 2, "b": 2}), schedule, donate_argnums=0)
    local = step.lower(jax.ShapeDtypeStruct((8,), "float32"), X).program
    ((value, _),) = Recorder(local).outputs
    assert value == local.program.outputs[0]
