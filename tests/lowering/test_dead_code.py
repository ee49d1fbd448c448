"""Is a program what its outputs and effects need, no more and no less?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.core.doors.jax_internals import parse_module
from autopart.core.importer import import_module
from autopart.core.ops.rule import has_effect

X = jax.ShapeDtypeStruct((8, 4), "float32")
MESH = ap.Mesh({"batch": 4})
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")


def program(fun, *args):
    return import_module(jax.jit(fun).lower(*args).compiler_ir("stablehlo"))


def listing(p):
    """All that a program computes, op by op."""
    ops = [(p.spec(o).kind, str(p.spec(o)), tuple(p.operands_of(o)), int(p.op_scope[o])) for o in range(p.op_count)]
    return ops, p.scopes, p.outputs, p.owners, p.tags


def kinds(p):
    return [p.spec(o).kind for o in range(p.op_count)]


def unused(_):
    """Leaves a value to nobody."""


@jax.jit
def two(x):
    return jnp.tanh(x), lax.while_loop(lambda y: jnp.sum(y) < 9, lambda y: y + jnp.sin(x), x)


def loop(x, keeps_count):
    def body(state):
        i, y, count = state
        return i + 1, y * 2, count + jnp.sum(x) if keeps_count else count

    return lax.while_loop(lambda s: s[0] < 3, body, (0, x, 0.0))[1]


def nested(x, keeps_count):
    return lax.fori_loop(0, 5, lambda _, y: loop(y, keeps_count) + 1, x)


def branch(x, more):
    def pair(f):
        return lambda y: (f(y), jnp.cumsum(jnp.exp(y), axis=1)) if more else (f(y),)

    return lax.cond(x[0, 0] > 1, pair(jnp.sin), pair(jnp.cos), x)[0]


def scan(x, stacks):
    return lax.scan(lambda c, r: (c + r, jnp.exp(r) if stacks else None), x[0], x)[0]


DEAD = {
    "op": lambda x, dead: unused(jnp.exp(x) @ x.T) or jnp.tanh(x) if dead else jnp.tanh(x),
    "result of a call": lambda x, dead: two(x)[0] if dead else jax.jit(jnp.tanh)(x),
    "whole loop": lambda x, dead: unused(loop(x, True)) or x + 1 if dead else x + 1,
    "sum that feeds itself": loop,
    "sum that feeds itself, in a loop": nested,
    "result of a branch": branch,
    "whole branch": lambda x, dead: unused(branch(x, True)) or x * 2 if dead else x * 2,
    "stacked outputs of a scan": scan,
    "tag": lambda x, dead: unused(ap.tag("t", jnp.exp(x))) or x + 1 if dead else x + 1,
}


@pytest.mark.parametrize("case", DEAD)
def test_program_with_dead_code_is_the_program_without_it(case):
    dirty, clean = (program(lambda x, dead=dead: DEAD[case](x, dead), X) for dead in (True, False))
    assert listing(dirty)[:4] == listing(clean)[:4]


@pytest.mark.parametrize("case", DEAD)
def test_program_with_dead_code_computes_the_same_on_devices(case):
    x = np.linspace(0, 2, 32, dtype="float32").reshape(8, 4)
    partitioned = ap.jit(lambda x: DEAD[case](x, True), MESH, [BP])(x)
    np.testing.assert_allclose(partitioned, DEAD[case](x, False), rtol=1e-5, atol=1e-6)


def test_unused_loss_of_accumulated_gradients_costs_no_collective():
    def step(w, xs):
        def micro(total, m):
            return total + jax.grad(lambda w: (jnp.tanh(m @ w) ** 2).mean())(w), None

        return w - lax.scan(micro, jnp.zeros_like(w), xs)[0]

    args = jax.ShapeDtypeStruct((16, 16), "float32"), jax.ShapeDtypeStruct((3, 64, 16), "float32")
    low = ap.jit(step, MESH, [ap.ManualPartition({"xs": 1}, axis="batch")]).lower(*args)
    p = low.traced.program
    assert kinds(p).count("reduce") == 0  # the mean of the loss
    sums = [s for plan, v, _ in low.program.redistributions() for s in plan.steps if not p.type_of(v).shape]
    assert sums == []


def test_arguments_names_ties_and_donation_stay():
    def fun(state, unread, x):
        return {"new": state + x, "y": x[:2] * 2}

    low = ap.jit(fun, MESH, [BP], donate_argnums=(0, 1)).lower(X, X, X)
    p = low.traced.program
    assert p.argument_names == ["state", "unread", "x"]
    assert [p.spec(o).kind for o in range(3)] == ["argument"] * 3
    assert (p.ties, p.donated) == ({0: 0}, frozenset({0, 1}))
    assert list(p.operands_of(0)) == [p.outputs[0]]


def test_source_lines_follow_their_ops():
    def fun(x):
        unused(jnp.exp(x))
        with jax.named_scope("kept"):
            return jnp.tanh(x)

    p = program(fun, X)
    assert "kept" in p.where(kinds(p).index("tanh"))


def test_barrier_stays_whole_where_one_of_its_results_is_used():
    p = program(lambda x: lax.optimization_barrier((x + 1, jnp.exp(x)))[0], X)
    assert kinds(p).count("optimization_barrier") == 2
    assert "exponential" in kinds(p)


def test_barrier_that_nobody_reads_goes():
    p = program(lambda x: unused(lax.optimization_barrier((x + 1, jnp.exp(x)))) or x * 2, X)
    assert "optimization_barrier" not in kinds(p)


EFFECT = """
func.func @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %i = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%a = %i, %b = %x) : tensor<i32>, tensor<8x4xf32>
    cond { %three = stablehlo.constant dense<3> : tensor<i32>
           %c = stablehlo.compare LT, %a, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
           stablehlo.return %c : tensor<i1> }
    do { %one = stablehlo.constant dense<1> : tensor<i32>
         %n = stablehlo.add %a, %one : tensor<i32>
         %e = stablehlo.exponential %b : tensor<8x4xf32>
         %p = stablehlo.compare EQ, %a, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
         %k = "stablehlo.if"(%p) ({
           %h = stablehlo.custom_call @tell(%a) {has_side_effect = EFFECT} : (tensor<i32>) -> tensor<i32>
           stablehlo.return %h : tensor<i32>
         }, { stablehlo.return %a : tensor<i32> }) : (tensor<i1>) -> tensor<i32>
         stablehlo.return %n, %e : tensor<i32>, tensor<8x4xf32> }
  %y = stablehlo.tanh %x : tensor<8x4xf32>
  return %y : tensor<8x4xf32>
}
"""


def test_effect_keeps_the_loop_and_the_branch_around_it_but_not_what_else_they_compute():
    p = import_module(parse_module(EFFECT.replace("EFFECT", "true").encode(), "m"))
    assert [s.kind for s in p.scopes] == ["program", "condition", "body", "branch", "branch"]
    assert kinds(p).count("carry") == 1  # the counter; the exponential feeds nothing
    assert "exponential" not in kinds(p)
    assert "join" not in kinds(p)
    assert kinds(p).count("custom_call") == 1
    assert p.scope_trips[p.op_scope[kinds(p).index("custom_call")]] == 3


def test_effect_is_in_the_exported_module(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(EFFECT.replace("EFFECT", "true"))
    text = ap.jit(ap.load(path, argument_names=["x"]), MESH, [BP]).lower().as_text("stablehlo")
    assert text.count("stablehlo.custom_call @tell") == 1
    assert "stablehlo.while" in text
    assert "exponential" not in text


def test_call_without_an_effect_goes_with_its_loop():
    p = import_module(parse_module(EFFECT.replace("EFFECT", "false").encode(), "m"))
    assert kinds(p) == ["argument", "tanh"]


def test_host_callback_with_an_effect_is_kept_and_one_without_is_not():
    def told(x):
        jax.debug.callback(unused, jnp.sum(x))
        return x * 2

    def asked(x):
        unused(jax.pure_callback(np.sin, X, x))
        return x * 2

    kept, dropped = (ap.jit(f, MESH).lower(X).traced.program for f in (told, asked))
    assert sum(has_effect(kept.spec(o)) for o in range(kept.op_count)) == 1
    assert "reduce" in kinds(kept)
    assert "custom_call" not in kinds(dropped)


def test_random_bits_that_nobody_reads_go():
    key = jax.ShapeDtypeStruct((4,), "uint32")
    p = program(lambda x, k: unused(lax.rng_bit_generator(k, (8, 4))) or x + 1, X, key)
    assert "rng_bit_generator" not in kinds(p)


def test_tag_of_a_dead_value_may_be_named_and_is_reported():
    def fun(x):
        unused(ap.tag("scores", jnp.exp(x)))
        return ap.tag("out", x * 2)

    schedule = [ap.ManualPartition({"sco*": 0}, axis="batch"), ap.ManualPartition({"scores": 0, "x": 0}, axis="batch")]
    metadata = ap.jit(fun, MESH, schedule).lower(X).metadata
    assert [len(tactic.actions) for tactic in metadata.tactics] == [1, 2]
    assert 'tag "scores": nothing uses the values that carry it' in str(metadata)
    assert 'tag "out"' not in str(metadata)
    with pytest.raises(ap.UnknownNameError):
        ap.jit(fun, MESH, [ap.ManualPartition({"score": 0}, axis="batch")]).lower(X)
