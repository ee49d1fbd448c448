"""Do loops hold parts where they are told to: fewer bytes, the same numbers, a decision like any other?"""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from autopart.search.space import DecisionSpace
from tests.prompt import slow

MESH = ap.Mesh({"d": 4, "m": 2}, device="tpu_v3")
RNG = np.random.default_rng(0)
PARAMS = {f"w{i}": RNG.normal(size=(64, 64)).astype("f4") / 8 for i in range(3)}
STATE = {name: np.zeros_like(w) for name, w in PARAMS.items()}
X = RNG.normal(size=(32, 64)).astype("f4")

BP = ap.ManualPartition({"x": 0}, axis="d")
Z2 = ap.ManualPartition({"params": ap.REPLICATED, "state": ap.FIRST_DIVISIBLE_DIM}, axis="d")
Z3 = ap.ManualPartition({"params": ap.FIRST_DIVISIBLE_DIM, "state": ap.FIRST_DIVISIBLE_DIM}, axis="d")
LOOP, SHARDED = ap.Microbatch({"x": 0}, 4), ap.ShardedLoops()


def step(params, state, x):
    def loss(params):
        y = x
        for w in params.values():
            y = jnp.tanh(y @ w)
        return jnp.mean(y**2)

    gradients = jax.grad(loss)(params)
    state = jax.tree.map(lambda m, g: 0.9 * m + g, state, gradients)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, state), state


def lowered(*schedule: ap.Tactic, fun=step) -> ap.Lowered:
    return ap.jit(fun, MESH, [*schedule], donate_argnums=(0, 1)).lower(PARAMS, STATE, X)


def runs(low: ap.Lowered) -> dict[str, int]:
    return dict(low.program.collectives())


def offered(partitioning: Partitioning) -> bool:
    space = DecisionSpace.of(partitioning, ("d", "m"))
    return any(o.decision.kind == "shard_loops" for o in space.options(partitioning))


def test_by_default_a_loop_gathers_before_it_and_reduces_after_it():
    assert runs(lowered(BP, Z3, LOOP)) == {"all_gather": 3, "reduce_scatter": 3}


def test_sharded_it_gathers_for_each_use_and_reduces_in_every_turn():
    assert runs(lowered(BP, Z3, LOOP, SHARDED)) == {"all_gather": 4 * 5, "reduce_scatter": 4 * 3}


def test_parameters_that_are_whole_are_not_gathered_and_gradients_are_reduced_into_parts():
    assert runs(lowered(BP, Z2, LOOP, SHARDED)) == {"all_gather": 3, "reduce_scatter": 4 * 3}


def test_without_parts_or_without_loops_nothing_changes():
    for schedule in ([BP, LOOP], [BP, Z3], [BP, Z2]):
        plain, sharded = lowered(*schedule), lowered(*schedule, SHARDED)
        assert plain.as_text("hlo") == sharded.as_text("hlo")


def test_the_loop_holds_fewer_bytes_and_the_links_carry_more():
    whole, sharded = lowered(BP, Z3, LOOP).estimate, lowered(BP, Z3, LOOP, SHARDED).estimate
    assert sharded.peak_bytes < whole.peak_bytes
    assert sharded.collective_s > whole.collective_s


@pytest.mark.parametrize("stored", [slow(Z2), Z3], ids=["Z2", "Z3"])
def test_the_numbers_are_those_of_the_whole_step(stored):
    low = lowered(BP, stored, LOOP, SHARDED)
    same = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # noqa: E731
    expected = step(PARAMS, STATE, X)
    jax.tree.map(same, low.interpret(PARAMS, STATE, X), expected)
    jax.tree.map(same, low.compile()(*jax.tree.map(jnp.array, (PARAMS, STATE, X))), expected)


def test_a_compiler_can_move_no_collective_of_the_loop_out_of_it():
    """Gathers wait for what the turn computed, and what is reduced goes through a barrier before it is added."""
    text = lowered(BP, Z3, LOOP, SHARDED).as_text("stablehlo")
    assert text.count("stablehlo.all_gather") == 5
    assert text.count("stablehlo.reduce_scatter") == 3
    assert text.count("optimization_barrier") == 5 + 3
    assert "optimization_barrier" not in lowered(BP, Z3, LOOP).as_text("stablehlo")


def test_reductions_of_sums_that_share_an_accumulator_stay_in_the_loop_too():
    def tied(params, state, x):
        def loss(params):
            w = params["w0"]
            return jnp.mean((jnp.tanh(jnp.tanh(x @ w) @ w.T) @ w) ** 2)

        gradients = jax.grad(loss)(params)
        state = jax.tree.map(lambda m, g: 0.9 * m + g, state, gradients)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, state), state

    low = lowered(BP, Z3, LOOP, SHARDED, fun=tied)
    text = low.as_text("stablehlo")
    assert text.count("stablehlo.reduce_scatter") == 3
    assert len(re.findall(r"%\w+ = stablehlo.optimization_barrier %\w+ :", text)) == 3
    expected = tied(PARAMS, STATE, X)
    same = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # noqa: E731
    jax.tree.map(same, low.compile()(*jax.tree.map(jnp.array, (PARAMS, STATE, X))), expected)


def test_an_invariant_read_without_another_operand_is_held_by_the_loop_counter():
    def summed(params, state, x):
        turns = jax.lax.fori_loop(0, 3, lambda _, total: total + jnp.tanh(jnp.sum(params["w0"], axis=0)), jnp.zeros(64))
        return jax.tree.map(lambda p, m: p + m, params, state), jax.tree.map(jnp.negative, state), turns

    keep = ap.ManualPartition({"params": 1, "state": 1}, axis="d")
    low = lowered(keep, SHARDED, fun=summed)
    np.testing.assert_allclose(
        low.compile()(*jax.tree.map(jnp.array, (PARAMS, STATE, X)))[2], summed(PARAMS, STATE, X)[2], rtol=1e-5
    )


def test_it_is_part_of_the_state_and_undone_with_it():
    partitioning = Partitioning(lowered(LOOP).traced.program, MESH)
    mark, before, snapshot = partitioning.mark(), partitioning.fingerprint, partitioning.snapshot()
    partitioning.share_gathers(8)
    shared = partitioning.fingerprint
    partitioning.shard_loops()
    assert partitioning.sharded_loops
    assert partitioning.share_within == 8
    assert len({before, shared, partitioning.fingerprint}) == 3
    assert partitioning.copy().sharded_loops
    partitioning.undo(mark)
    assert (partitioning.fingerprint, partitioning.sharded_loops) == (before, False)
    partitioning.shard_loops()
    partitioning.restore(snapshot)
    assert not partitioning.sharded_loops


def test_a_search_is_offered_it_where_a_loop_holds_something_whole():
    assert offered(lowered(BP, Z3, LOOP).scheduled.partitioning)
    assert offered(lowered(BP, Z2, LOOP).scheduled.partitioning)
    assert not offered(lowered(BP, LOOP).scheduled.partitioning)
    assert not offered(lowered(BP, Z3).scheduled.partitioning)
    assert not offered(lowered(BP, Z3, LOOP, SHARDED).scheduled.partitioning)


def test_named_schedules_have_it_behind_state_in_parts():
    auto = ap.AutomaticPartition(["d", "m"], budget=ap.Budget(40), cache=False, progress=False)
    names = {row["name"] for row in lowered(LOOP, auto).metadata.tactics[-1].report["baselines"]}
    assert "FSDP(d,m)+ShardedLoops" in names


def test_the_code_of_a_schedule_and_a_plan_have_it():
    low = lowered(BP, Z3, LOOP, SHARDED)
    assert low.metadata.tactics[-1].actions == ("shard_loops",)
    assert "ap.ShardedLoops()" in low.metadata.as_schedule()
    again = ap.jit(step, MESH, low.plan, donate_argnums=(0, 1)).lower(PARAMS, STATE, X)
    assert runs(again) == runs(low)
