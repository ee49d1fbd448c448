"""Does `ap.Recompute` compute again what its policy does not keep, with the numbers and names of the whole program?"""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.base.errors import ArgumentError, UnknownNameError
from autopart.core.passes import Recomputation, verify_program
from tests.prompt import slow

MESH = ap.Mesh({"d": 4}, device="tpu_v3")
BP = ap.ManualPartition({"x": 0}, axis="d")
LAYERS = 6


def block(w, x):
    with jax.named_scope("mixer"):
        h = ap.tag("mixed", jnp.tanh(x @ w["a"]))
    return x + jnp.sin(h) @ w["b"]


def chain(apply=block):
    """A training step of a few equal blocks."""

    def step(params, x):
        def loss(params):
            y = x
            for w in params:
                y = apply(w, y)
            return jnp.mean(y**2)

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    return step


def scanned(apply=block):
    """The same with one scan over stacked parameters."""

    def step(params, x):
        def loss(params):
            y, _ = lax.scan(lambda y, w: (apply(w, y), None), x, params)
            return jnp.mean(y**2)

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    return step


RNG = np.random.default_rng(0)
PARAMS = [
    {"a": RNG.normal(size=(8, 32)).astype("f4") / 4, "b": RNG.normal(size=(32, 8)).astype("f4") / 4}
    for _ in range(LAYERS)
]
STACKED = jax.tree.map(lambda *leaves: np.stack(leaves), *PARAMS)
X = RNG.normal(size=(64, 8)).astype("f4")
STEPS = {"chain": (chain, PARAMS), "scan": (scanned, STACKED)}


def lower(name, *extra, apply=block, x=X):
    make, params = STEPS[name]
    return ap.jit(make(apply), MESH, [BP, *extra], donate_argnums=0).lower(params, x)


def run(lowered, name):
    return lowered.compile()(STEPS[name][1], X)


def assert_same(found, expected, rtol=0.0, atol=0.0):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), found, expected)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("keep", ["blocks", slow("nothing")])
def test_numbers_are_bit_by_bit_those_of_the_step_that_keeps_everything(name, keep):
    assert_same(run(lower(name, ap.Recompute(keep)), name), run(lower(name), name))


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("keep", [slow("matmuls"), ["mixed", "blocks"]], ids=str)
def test_where_the_compiler_fuses_otherwise_numbers_are_the_same_but_for_rounding(name, keep):
    assert_same(run(lower(name, ap.Recompute(keep)), name), run(lower(name), name), 2e-5, 1e-6)


@pytest.mark.parametrize("name", STEPS)
def test_blocks_need_the_memory_and_flop_of_a_checkpoint_written_around_each_block(name):
    x = jax.ShapeDtypeStruct((8192, 8), "float32")
    whole, found = lower(name, x=x).estimate, lower(name, ap.Recompute("blocks"), x=x).estimate
    by_hand = lower(name, apply=jax.checkpoint(block), x=x).estimate
    assert found.peak_bytes <= 1.1 * by_hand.peak_bytes < 0.6 * whole.peak_bytes
    assert whole.flop < found.flop <= 1.03 * by_hand.flop


@pytest.mark.parametrize("name", STEPS)
def test_what_the_user_checkpoints_is_left_alone(name):
    by_hand = lower(name, apply=jax.checkpoint(block))
    again = lower(name, ap.Recompute("blocks"), apply=jax.checkpoint(block))
    assert again.traced.program.fingerprint == by_hand.traced.program.fingerprint


def kinds_of(lowered) -> list[str]:
    program = lowered.traced.program
    return [program.spec(op).kind for op in range(program.op_count)]


def test_matmuls_that_are_kept_are_not_computed_again():
    whole, kept, again = (kinds_of(lower("chain", *e)) for e in ([], [ap.Recompute("matmuls")], [ap.Recompute()]))
    assert whole.count("dot_general") == kept.count("dot_general") < again.count("dot_general")
    assert whole.count("tanh") < kept.count("tanh")


@pytest.mark.parametrize(
    "keep",
    ["mixed", "mixer", "*/mixer/*", "tanh f32[64,32]", lambda op, size, flop: op.kind == "tanh"],
    ids=["tag", "scope", "pattern", "kind and type", "function"],
)
def test_what_a_tag_a_scope_a_type_or_a_function_keeps_is_not_computed_again(keep):
    assert kinds_of(lower("chain", ap.Recompute(keep))).count("tanh") == LAYERS
    assert kinds_of(lower("chain", ap.Recompute("nothing"))).count("tanh") >= LAYERS


def test_a_function_is_given_the_op_its_bytes_and_its_flop():
    seen = {}

    def keep(op, size, flop):
        seen[op.kind] = (size, flop)
        return True

    lower("chain", ap.Recompute(keep))
    assert seen["dot_general"][1] > 0
    assert seen["tanh"][0] == 64 * 32 * 4


@pytest.mark.slow
def test_a_program_whose_scan_stacks_more_is_emitted_after_all_garbage_is_gone():
    lowered = lower("scan", ap.Recompute(["mixed", "blocks"]))
    gc.collect()
    assert lowered.as_text("stablehlo").count("dynamic_update_slice") > 0


def test_copies_of_a_tagged_value_carry_the_tag():
    tile = ap.ManualPartition({"mixed": 1}, axis="d", name="MP")
    step = ap.jit(chain(), MESH, [tile, ap.Recompute("blocks")], donate_argnums=0)
    lowered = step.lower(PARAMS, X)
    assert len(lowered.traced.program.tags["mixed"]) > 2 * LAYERS
    assert_same(lowered.compile()(PARAMS, X), jax.jit(chain())(PARAMS, X), 2e-5, 1e-6)


def test_copies_are_behind_barriers_that_wait_for_late_values():
    program = lower("chain", ap.Recompute("blocks")).traced.program
    assert len(program.barriers) == LAYERS
    for parts in program.barriers:
        made = [program.spec(int(program.value_op[program.operands_of(op)[0]])) for op in parts]
        assert len(made) > 1, "what is kept, and what the copies wait for"


@pytest.mark.parametrize("order", [0, slow(1)])
def test_with_microbatches_in_either_order(order):
    both = [ap.Microbatch({"x": 0}, 2), ap.Recompute("blocks")]
    lowered = lower("chain", *(both if order else both[::-1]))
    assert_same(run(lowered, "chain"), jax.jit(chain())(PARAMS, X), 2e-5, 1e-6)
    alone = lower("chain", both[0], x=jax.ShapeDtypeStruct((8192, 8), "float32"))
    found = lower("chain", *(both if order else both[::-1]), x=jax.ShapeDtypeStruct((8192, 8), "float32"))
    assert found.estimate.peak_bytes < 0.75 * alone.estimate.peak_bytes


def test_steps_in_a_row_are_cut_one_by_one():
    def twice(params, x):
        params, _ = chain()(params, x)
        return chain()(params, x)

    x = jax.ShapeDtypeStruct((8192, 8), "float32")
    one, two = (ap.jit(f, MESH, [BP, ap.Recompute()], donate_argnums=0).lower(PARAMS, x) for f in (chain(), twice))
    assert two.estimate.peak_bytes < 1.2 * one.estimate.peak_bytes


def test_dropout_draws_the_same_numbers_again():
    def apply(w, x):
        y = block(w, x)
        return jnp.where(jax.random.bernoulli(jax.random.key(7), 0.5, y.shape), y, 0)

    assert_same(*(run(lower("chain", *extra, apply=apply), "chain") for extra in ([], [ap.Recompute("blocks")])))


def from_the_end(apply):
    """A gradient through a scan that runs from the last row to the first."""

    def step(w, x):
        def loss(w):
            y, _ = lax.scan(lambda y, w: (apply(y, w), None), x, w, reverse=True)
            return jnp.mean(y**2)

        return jax.grad(loss)(w)

    return step


@pytest.mark.parametrize("counted", [False, True], ids=["rows alone", "the turn too"])
def test_a_scan_from_the_end_is_computed_again_as_by_a_checkpoint(counted):
    def apply(y, row):
        i, w = row
        return y + jnp.sin(jnp.tanh(y @ w) * (1 + i)) @ w.T

    def step(w, x, apply=apply):
        return from_the_end(apply)((jnp.arange(4.0) if counted else jnp.zeros(4), w), x)[1]

    w = RNG.normal(size=(4, 8, 32)).astype("f4") / 4
    run = lambda f, *extra: ap.jit(f, MESH, [BP, *extra])  # noqa: E731
    found = run(step, ap.Recompute("blocks")).lower(w, X)
    assert not found.passes[-1].remarks
    assert_same(found.compile()(w, X), run(step).lower(w, X).compile()(w, X), 2e-5, 1e-5)
    x = jax.ShapeDtypeStruct((8192, 8), "float32")
    again = run(step, ap.Recompute("blocks")).lower(w, x).estimate
    by_hand = run(lambda w, x: step(w, x, jax.checkpoint(apply))).lower(w, x).estimate
    assert again.peak_bytes <= 1.1 * by_hand.peak_bytes < 0.8 * run(step).lower(w, x).estimate.peak_bytes
    assert again.flop <= 1.03 * by_hand.flop


def test_what_a_loop_stacks_in_another_order_stays_and_the_report_says_so():
    def step(w, x):
        def loss(w):
            order = jnp.array([2, 0, 3, 1])

            def turn(i, carry):
                y, rows = carry
                y = jnp.tanh(y @ w[i])
                return y, lax.dynamic_update_index_in_dim(rows, y, order[i], 0)

            y, rows = lax.fori_loop(0, 4, turn, (x, jnp.zeros((4, *x.shape))))
            return jnp.mean(y**2) + jnp.sum(rows**2)

        return jax.value_and_grad(loss)(w)

    w = RNG.normal(size=(4, 8, 8)).astype("f4")
    lowered = ap.jit(step, MESH, [BP, ap.Recompute("blocks")]).lower(w, X)
    remarks = lowered.passes[-1].remarks
    assert remarks
    assert any("does not write its rows in order" in remark and "test_recompute.py" in remark for remark in remarks)
    assert_same(lowered.compile()(w, X), jax.jit(step)(w, X), 2e-5, 2e-5)


@pytest.mark.parametrize("keep", ["params/0/a", "x"])
def test_an_argument_cannot_be_recomputed(keep):
    with pytest.raises(ArgumentError, match="is an argument of the function"):
        lower("chain", ap.Recompute(keep))


def test_an_unknown_policy_names_the_nearest():
    with pytest.raises(UnknownNameError, match="'matmuls'"):
        lower("chain", ap.Recompute("matmul"))


def test_a_type_that_no_result_has_names_the_nearest():
    with pytest.raises(UnknownNameError, match=r"tanh f32\[64,32\]"):
        lower("chain", ap.Recompute("tanh f32[64,33]"))


def test_a_tag_that_is_not_there_names_those_that_are():
    with pytest.raises(UnknownNameError, match="'mixed'"):
        lower("chain", ap.Recompute("mixed_in"))


def test_a_schedule_has_one():
    with pytest.raises(ArgumentError, match=r"a schedule has one ap\.Recompute"):
        lower("chain", ap.Recompute(), ap.Recompute("matmuls"))


def test_it_is_a_pass_too():
    whole = lower("chain").traced.program
    made = Recomputation(("blocks",)).apply(whole)
    verify_program(made)
    assert made.op_count > whole.op_count
