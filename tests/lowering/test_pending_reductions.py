"""Is each reduction done where it moves the fewest bytes, once, and is the result the same on 8 devices?"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.spmd.verify_local import verify
from tests.prompt import only, slow

MESH = ap.Mesh({"batch": 4, "model": 2})
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")
RNG = np.random.default_rng(0)
STEPS = 5


def array(*shape, dtype="f4"):
    return (RNG.normal(size=shape) / np.sqrt(shape[-1])).astype(dtype)


X, W = array(8, 16), array(16, 16)


def reductions(fun, *args, schedule=(BP,), rtol=1e-4, options=None):
    """(kind, shape on a device before it, how often) of every collective, in order; the numbers are checked as well."""
    return [(kind, shape, runs) for kind, shape, runs, _ in collectives(fun, *args, schedule, rtol, options)]


def types(fun, *args, schedule=(BP,), rtol=2e-2):
    """(element type, shape on a device before it, how often) of every all_reduce; the numbers are checked as well."""
    found = collectives(fun, *args, schedule, rtol, None)
    assert {kind for kind, *_ in found} <= {"all_reduce"}
    return sorted((dtype, shape, runs) for _, shape, runs, dtype in found)


def collectives(fun, *args):
    *args, schedule, rtol, options = args
    step = ap.jit(fun, MESH, list(schedule), **({"options": options} if options else {}))
    low = step.lower(*args)
    verify(low.program)
    low.exported.operation.verify()
    whole, parts = jax.jit(fun)(*args), step(*jax.tree.map(jnp.array, args))
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(np.asarray(a, "f4"), np.asarray(b, "f4"), rtol=rtol, atol=rtol / 10)
    program = low.program.program
    return [
        (s.kind, s.source.local_shape, int(program.scope_trips[scope]), program.type_of(value).dtype)
        for plan, value, scope in low.program.redistributions()
        for s in plan.steps
        if s.kind != "all_slice"
    ]


def gram(x):
    """A matrix whose sum over the batch is pending."""
    return x.T @ x


ONCE = [("all_reduce", (16, 16), 1)]


# ---- one op on the way


@pytest.mark.parametrize(
    ("op", "reduced"),
    [
        pytest.param(lambda g: g[:4], (4, 16), id="slice"),
        pytest.param(lambda g: g.T[:4], (4, 16), id="slice of a transpose"),
        pytest.param(lambda g: -g.reshape(4, 64)[:2], (2, 64), id="slice of a reshape, negated"),
        pytest.param(lambda g: g[::-1, :8] * 3.0, (16, 8), id="half of it, reversed and scaled"),
        pytest.param(lambda g: (g / W)[0], (16,), id="a row of what is divided by a whole array"),
        pytest.param(lambda g: (W * g)[0], (16,), id="a row of a product with a whole array"),
        pytest.param(lambda g: jnp.where(W > 0, g, 0.0)[3], (16,), id="a row of what a mask leaves"),
        pytest.param(lambda g: jnp.where(W > 0, g, g.T)[3], (16, 16), id="a mask between two readings: reduced before"),
        pytest.param(lambda g: g.sum(axis=0), (16,), id="a sum over another dim"),
        pytest.param(lambda g: g.sum(axis=0, keepdims=True) * 2.0, (1, 16), id="a sum that keeps the dim"),
        pytest.param(lambda g: g.max(axis=0), (16, 16), id="a maximum of a sum: reduced before"),
        pytest.param(lambda g: jnp.tile(g, (3, 1)), (1, 16, 1, 16), id="copies: reduced before"),
        pytest.param(lambda g: jnp.pad(g, 4), (16, 16), id="padded with zeros: reduced before"),
        pytest.param(lambda g: jnp.pad(g, 4)[:8], (8, 24), id="some rows of what is padded with zeros"),
        pytest.param(lambda g: jnp.pad(g, 4, constant_values=1)[:2], (16, 16), id="padded with ones: reduced before"),
        pytest.param(lambda g: g @ W[:, :2], (16, 2), id="a product with a thin matrix"),
        pytest.param(lambda g: g @ jnp.tile(W, (1, 2)), (16, 16), id="a product with a wide matrix: reduced before"),
        pytest.param(lambda g: jax.lax.dynamic_slice(g, (2, 3), (4, 4)), (4, 4), id="a window"),
        pytest.param(lambda g: g[jnp.array([1, 5])], (2, 16), id="rows by their numbers"),
        pytest.param(lambda g: (g + 1)[:2], (16, 16), id="a number added to a sum: reduced before"),
        pytest.param(lambda g: jnp.fft.rfft(g)[0].real, (9,), id="a Fourier transform, of which one row is read"),
    ],
)
def test_a_sum_is_reduced_where_it_is_smallest(op, reduced):
    assert reductions(lambda x: jnp.tanh(op(gram(x))), X) == [("all_reduce", reduced, 1)]


@pytest.mark.parametrize(
    ("op", "reduced"),
    [
        pytest.param(lambda m: m.reshape(4, 4).T[:2], (2, 4), id="moved"),
        pytest.param(lambda m: jnp.maximum(m, 0.5)[:4], (4,), id="a maximum with a number"),
        pytest.param(lambda m: jnp.concatenate([m, W[0]])[12:20], (8,), id="joined with a whole array"),
        pytest.param(lambda m: m.max(), (), id="a maximum over another dim"),
        pytest.param(lambda m: jnp.minimum(m, 0.5)[:4], (16,), id="a minimum: reduced before"),
        pytest.param(lambda m: (m + 1.0)[:4], (16,), id="a sum: reduced before"),
    ],
)
def test_a_maximum_is_reduced_where_it_is_smallest(op, reduced):
    assert reductions(lambda x: jnp.tanh(op(x.max(axis=0))), X) == [("all_reduce", reduced, 1)]


def test_the_reduction_comes_after_a_transpose_though_it_moves_as_many_bytes():
    low = ap.jit(lambda x: jnp.tanh(gram(x).T), MESH, [BP]).lower(X)
    kinds = [line.split(" = ")[1].split()[0].split("(")[0] for line in low.as_text("hlo").splitlines() if " = " in line]
    assert kinds == ["transpose", "dot_general", "transpose", "all_reduce", "tanh"]


def test_the_sums_of_means_are_reduced_before_they_are_divided():
    def reduced(fun):
        low = ap.jit(fun, MESH, [BP]).lower(X)
        return [low.program.program.spec(low.program.program.value_op[v]).kind for v in low.program.at_def]

    assert reduced(lambda x: jnp.sin(x.sum(0) / 8)) == ["reduce"]
    assert reduced(lambda x: jnp.sin(0.125 * x.sum(0)).T[:4] + 1) == ["reduce"]
    assert reduced(lambda x: jnp.sin((x.sum(0) / 8)[:4])) == ["slice"]
    assert reductions(lambda x: jnp.sin(x.sum(0) / 8), X) == [("all_reduce", (16,), 1)]


def test_a_row_of_integers_divided_is_reduced_before():
    x = RNG.integers(0, 9, (8, 16)).astype("i4")
    assert reductions(lambda x: (gram(x) // 3)[0], x) == [("all_reduce", (16, 16), 1)]


def test_a_tag_that_is_kept_whole_is_where_the_reduction_is_done():
    keep = ap.ManualPartition({"g": ap.REPLICATED}, axis="batch")
    assert reductions(lambda x: jnp.tanh(ap.tag("g", gram(x))[:4]), X, schedule=[keep, BP]) == ONCE
    assert reductions(lambda x: jnp.tanh(ap.tag("g", gram(x))[:4]), X) == [("all_reduce", (4, 16), 1)]


def test_a_value_that_is_read_twice_is_reduced_once_and_for_both():
    assert reductions(lambda x: (lambda g: (jnp.tanh(g[:4]), jnp.sin(g[4:])))(gram(x)), X) == ONCE


# ---- several sums


def test_sums_meet_behind_a_transpose_a_scale_and_a_mask():
    def fun(x, y):
        return jnp.where(W > 0, 0.5 * gram(x).T - (x.T @ y).reshape(4, 64).reshape(16, 16), 0.0) + (y.T @ x)

    y_too = ap.ManualPartition({"x": 0, "y": 0}, axis="batch")
    assert reductions(fun, X, array(8, 16), schedule=[y_too]) == ONCE


def test_parts_of_a_matrix_are_joined_before_they_are_reduced():
    assert (
        reductions(lambda x: jnp.concatenate([gram(x), x.T @ (x * x), jnp.zeros((4, 16))]), X)
        == [("all_reduce", (16, 16), 1)] * 2
    )
    assert reductions(lambda x: jnp.concatenate([gram(x), x.T @ (x * x)]), X) == [("all_reduce", (32, 16), 1)]


def test_what_follows_in_tiles_makes_it_a_reduce_scatter_behind_the_sum():
    out = ap.ManualPartition({"outputs": 0}, axis="batch")
    assert reductions(lambda x: 2.0 * gram(x).T + x.T @ (x * x), X, schedule=[BP, out]) == [
        ("reduce_scatter", (16, 16), 1)
    ]


def test_sums_over_two_axes_go_the_same_way():
    both = [BP, ap.ManualPartition({"x": 1}, axis="model")]
    assert reductions(
        lambda x: jnp.tanh(((x * x).sum(axis=(0, 1), keepdims=True) * 2.0).reshape(1)), X, schedule=both
    ) == [("all_reduce", (1,), 1)]


# ---- loops


def over_steps(body, initial):
    """A scan over STEPS copies of the batch."""
    return lambda x: jax.lax.scan(body, initial(x), jnp.stack([x * k for k in range(STEPS)]))


def test_what_a_loop_adds_up_from_zeros_is_reduced_after_it():
    loop = over_steps(lambda g, x: (g + jnp.tanh(x).T @ x, None), lambda x: jnp.zeros((16, 16)))
    assert reductions(lambda x: jnp.tanh(loop(x)[0]), X) == ONCE


def test_what_a_loop_adds_up_from_an_argument_is_reduced_inside():
    def fun(x, g):
        return over_steps(lambda g, x: (g + jnp.tanh(x).T @ x, None), lambda x: g)(x)[0]

    assert reductions(fun, X, W) == [("all_reduce", (16, 16), STEPS)]


def test_what_a_loop_reads_of_what_it_adds_up_is_reduced_inside():
    loop = over_steps(lambda g, x: (g + (jnp.tanh(x + g[:1]).T @ x), None), lambda x: jnp.zeros((16, 16)))
    assert [row[2] for row in reductions(lambda x: loop(x)[0], X)] == [STEPS]


def test_what_a_loop_scales_as_it_adds_is_reduced_after_it():
    loop = over_steps(lambda g, x: (0.9 * g + 0.1 * (x.T @ x), None), lambda x: jnp.zeros((16, 16)))
    assert reductions(lambda x: loop(x)[0], X) == ONCE


def test_a_maximum_over_steps_may_start_anywhere():
    loop = over_steps(lambda m, x: (jnp.maximum(m, x.max(axis=0)), None), lambda x: jnp.full((16,), -1.0))
    assert reductions(lambda x: loop(x)[0], X) == [("all_reduce", (16,), 1)]


def test_rows_written_one_by_one_are_reduced_one_by_one():
    loop = over_steps(lambda c, x: (c, x.T @ x), lambda x: 0)
    assert reductions(lambda x: jnp.tanh(loop(x)[1]), X) == [("all_reduce", (1, 16, 16), STEPS)]


def test_loops_in_loops_are_left_before_anything_is_reduced():
    def inner(x):
        return over_steps(lambda g, x: (g + jnp.tanh(x).T @ x, None), lambda x: jnp.zeros((16, 16)))(x)[0]

    loop = over_steps(lambda g, x: (g + inner(x), None), lambda x: jnp.zeros((16, 16)))
    through = over_steps(
        lambda g, x: (over_steps(lambda g, x: (g + jnp.tanh(x).T @ x, None), lambda x: g)(x)[0], None),
        lambda x: jnp.zeros((16, 16)),
    )
    assert reductions(lambda x: loop(x)[0], X) == ONCE
    assert reductions(lambda x: through(x)[0], X) == ONCE


def test_a_loop_of_unknown_length_is_left_before_anything_is_reduced():
    def fun(x, n):
        def body(state):
            k, g = state
            return k + 1, g + jnp.tanh(x * k).T @ x

        return jax.lax.while_loop(lambda state: state[0] < n, body, (0, jnp.zeros((16, 16))))[1]

    assert reductions(fun, X, np.int32(3)) == ONCE


def test_the_last_of_several_sums_is_reduced_after_the_loop():
    loop = over_steps(lambda g, x: (jnp.tanh(x).T @ x, None), lambda x: jnp.zeros((16, 16)))
    assert reductions(lambda x: loop(x)[0], X) == ONCE


def test_both_branches_of_a_case_leave_a_sum_that_is_reduced_after_it():
    def fun(x, p):
        return jnp.tanh(jax.lax.cond(p, lambda: x.T @ x, lambda: jnp.sin(x).T @ x))

    assert reductions(fun, X, np.bool_(True)) == ONCE


def test_a_sum_of_one_branch_alone_is_reduced_in_that_branch():
    def fun(x, p):
        return jnp.tanh(jax.lax.cond(p, lambda: x.T @ x, lambda: jnp.zeros((16, 16))))

    low = ap.jit(fun, MESH, [BP]).lower(X, np.bool_(True))
    text = low.as_text("hlo").splitlines()
    assert next(k for k, line in enumerate(text) if "all_reduce" in line) < next(
        k for k, line in enumerate(text) if "join" in line
    )
    assert reductions(fun, X, np.bool_(True)) == ONCE


def loss(params, x):
    return jnp.mean(jnp.tanh(x @ params["w"]) @ params["v"])


def accumulated(params, x):
    """A step of SGD on gradients that are added up over STEPS parts of the batch, which is tiled inside each."""

    def body(grads, part):
        return jax.tree.map(jnp.add, grads, jax.grad(loss)(params, part)), None

    parts = x.reshape(8, STEPS, 16).swapaxes(0, 1)
    grads, _ = jax.lax.scan(body, jax.tree.map(jnp.zeros_like, params), parts)
    return jax.tree.map(lambda p, g: p - 0.1 * g / STEPS, params, grads)


PARAMS = {"w": W, "v": array(16, 16)}


def test_accumulated_gradients_are_reduced_once_each():
    assert reductions(accumulated, PARAMS, array(40, 16)) == ONCE * 2


def test_accumulated_gradients_of_tiled_parameters_are_scattered_once_each():
    z2 = ap.ManualPartition({"outputs": 0}, axis="batch")
    rows = reductions(accumulated, PARAMS, array(40, 16), schedule=[BP, z2])
    assert [row for row in rows if row[0] != "all_gather"] == [("reduce_scatter", (16, 16), 1)] * 2


def test_a_recurrent_network_reduces_each_weight_gradient_once():
    def cell(params, state, x):
        hidden, memory = state
        gates = jnp.split(x @ params["w"] + hidden @ params["u"] + params["b"], 4, axis=-1)
        memory = jax.nn.sigmoid(gates[0]) * memory + jax.nn.sigmoid(gates[1]) * jnp.tanh(gates[2])
        hidden = jax.nn.sigmoid(gates[3]) * jnp.tanh(memory)
        return hidden, memory

    def fun(params, x):
        def loss(params):
            zeros = jnp.zeros((x.shape[0], 8))
            steps = x.swapaxes(0, 1)
            (hidden, _), _ = jax.lax.scan(lambda s, x: (cell(params, s, x), None), (zeros, zeros), steps)
            return jnp.sum(hidden**2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    params = {"w": array(16, 32), "u": array(8, 32), "b": array(32)}
    rows = reductions(fun, params, array(8, STEPS, 16))
    assert sorted(rows) == sorted(("all_reduce", params[k].shape, 1) for k in params)


# ---- tied embeddings


TIED = {
    "a transpose": lambda h, table: h @ table.T,
    "einsum": lambda h, table: jnp.einsum("bsd,vd->bsv", h, table),
    "flax": lambda h, table: nn.Embed(32, 16).apply({"params": {"embedding": table}}, h, method="attend"),
}


@pytest.mark.parametrize("logits", TIED.values(), ids=TIED)
def test_a_tied_embedding_is_reduced_once_however_it_is_written(logits):
    def fun(params, x):
        def loss(params):
            h = jnp.tanh(params["table"][x] @ params["w"])
            return -jax.nn.log_softmax(logits(h, params["table"]))[..., 0].sum()

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    rows = reductions(fun, {"table": array(32, 16), "w": W}, RNG.integers(0, 32, (8, 4)).astype("i4"))
    assert sorted(shape for kind, shape, _ in rows if kind == "all_reduce") == [(16, 16), (32, 16)]
    assert len(rows) == 2


# ---- converts


def test_sums_pass_a_convert_to_a_narrower_type_only_if_the_options_say_so():
    def fun(x):
        return (x.T @ x).astype(jnp.bfloat16)[:4]

    allowed = ap.LoweringOptions(sums_through_converts=True)
    assert reductions(fun, X, rtol=2e-2) == ONCE
    assert reductions(fun, X, rtol=2e-2, options=allowed) == [("all_reduce", (4, 16), 1)]


HALVES = {"bf16": jnp.bfloat16, "f16": jnp.float16}


def narrow_gram(x, dtype=jnp.bfloat16):
    x = x.astype(dtype)
    return (x.T @ x).astype("f4")


@pytest.mark.parametrize("dtype", HALVES)
def test_a_sum_is_reduced_before_it_is_made_wider(dtype):
    assert types(lambda x: jnp.tanh(narrow_gram(x, HALVES[dtype])), X) == [(dtype, (16, 16), 1)]


def test_half_of_what_is_made_wider_is_as_many_bytes_and_reduced_later():
    assert types(lambda x: jnp.tanh(narrow_gram(x)[:8]), X) == [("f32", (8, 16), 1)]


@pytest.mark.parametrize("dtype", HALVES)
def test_sums_meet_behind_converts(dtype):
    half = HALVES[dtype]
    assert types(lambda x: narrow_gram(x, half) + 0.5 * narrow_gram(jnp.sin(x), half), X) == [("f32", (16, 16), 1)]
    assert types(lambda x: narrow_gram(x, half) + gram(x), X) == [("f32", (16, 16), 1)]


def test_a_sum_of_integers_wraps_around_in_its_own_type():
    x = RNG.integers(-99, 99, (8, 16)).astype("i1")
    loop = over_steps(lambda g, x: (g + (x.T @ x).astype("i4"), None), lambda x: jnp.zeros((16, 16), "i4"))
    assert types(lambda x: loop(x)[0], x) == [("i8", (16, 16), STEPS)]


def in_halves(params, x):
    """The loss with parameters in f32 and products in bf16."""
    narrow = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
    return loss(narrow, x.astype(jnp.bfloat16)).astype("f4")


def accumulated_in_halves(params, x, unroll=1):
    """A step of SGD on gradients in bf16 that are added up in f32."""

    def body(grads, part):
        return jax.tree.map(jnp.add, grads, jax.grad(in_halves)(params, part)), None

    parts = x.reshape(8, STEPS, 16).swapaxes(0, 1)
    grads, _ = jax.lax.scan(body, jax.tree.map(jnp.zeros_like, params), parts, unroll=unroll)
    return jax.tree.map(lambda p, g: p - 0.1 * g / STEPS, params, grads)


@pytest.mark.parametrize("unroll", [1, 2, STEPS])
def test_gradients_in_bf16_that_a_loop_adds_up_are_reduced_once_each(unroll):
    found = types(lambda params, x: accumulated_in_halves(params, x, unroll), PARAMS, array(40, 16))
    assert found == [("f32", (16, 16), 1)] * 2


def test_gradients_in_bf16_that_nobody_adds_up_are_reduced_in_bf16():
    def step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(in_halves)(params, x))

    microbatch = ap.Microbatch({"x": 0}, steps=STEPS)
    once = [("bf16", (16, 16), 1)] * 2
    assert types(step, PARAMS, array(40, 16)) == once
    assert types(step, PARAMS, array(40, 16), schedule=[microbatch, BP]) == once, "each loop adds up in its own type"


def test_a_tied_embedding_in_bf16_is_reduced_once():
    embed = nn.Embed(32, 16, dtype=jnp.bfloat16)

    def fun(params, x):
        def loss(params):
            tied = {"params": {"embedding": params["table"]}}
            h = jnp.tanh(embed.apply(tied, x) @ params["w"].astype(jnp.bfloat16))
            logits = embed.apply(tied, h, method="attend").astype("f4")
            return -jax.nn.log_softmax(logits)[..., 0].mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    found = types(fun, {"table": array(32, 16), "w": W}, RNG.integers(0, 32, (8, 4)).astype("i4"))
    assert found == [("bf16", (16, 16), 1), ("f32", (32, 16), 1)]


CELLS = {"gru": nn.GRUCell, "lstm": nn.LSTMCell, "lstm of joined gates": nn.OptimizedLSTMCell}


@pytest.mark.parametrize("dtype", [jnp.bfloat16, slow(jnp.float32)])
@pytest.mark.parametrize("cell", only(["lstm"], CELLS))
def test_a_recurrent_network_of_flax_reduces_each_gradient_once(cell, dtype):
    model = nn.RNN(CELLS[cell](16, dtype=dtype))
    x = array(8, STEPS, 16)
    params = model.init(jax.random.key(0), x)

    def fun(params, x):
        grads = jax.grad(lambda params: jnp.mean(model.apply(params, x).astype("f4") ** 2))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    found = types(fun, params, x)
    assert found == sorted(("f32", p.shape, 1) for p in jax.tree.leaves(params))


# ---- forks: several readers in a loop


def cut_and_added(rest, initial):
    """A loop that adds up the first rows of a sum over the batch, and does `rest` with the others."""

    def body(state, x):
        g = jnp.tanh(x).T @ x
        return (state[0] + g[:4], rest(state[1], g[4:])), None

    return over_steps(body, initial)


ROOM = jnp.zeros((4, 16)), jnp.zeros((12, 16))


def test_slices_that_a_loop_adds_up_are_each_reduced_after_it():
    loop = cut_and_added(lambda rest, g: rest - 2.0 * g, lambda x: ROOM)
    assert reductions(lambda x: loop(x)[0], X) == [("all_reduce", (4, 16), 1), ("all_reduce", (12, 16), 1)]


@pytest.mark.parametrize(
    "rest",
    [lambda rest, g: rest + jnp.tanh(g), lambda rest, g: jnp.tanh(rest + g)],
    ids=["not linear", "added to what is read"],
)
def test_a_sum_of_which_some_is_needed_in_the_loop_is_reduced_there_once(rest):
    loop = cut_and_added(rest, lambda x: ROOM)
    assert reductions(lambda x: loop(x)[0], X) == [("all_reduce", (16, 16), STEPS)]


def test_a_sum_of_which_some_is_added_to_an_argument_is_reduced_in_the_loop_once():
    def fun(x, w):
        return cut_and_added(lambda rest, g: rest + g, lambda x: (ROOM[0], w[4:]))(x)[0]

    assert reductions(fun, X, W) == [("all_reduce", (16, 16), STEPS)]


def test_two_ways_of_one_sum_that_meet_again_are_one_reduction():
    def body(g, x):
        s = jnp.tanh(x).T @ x
        return g + (s - 0.5 * s.T), None

    loop = over_steps(body, lambda x: jnp.zeros((16, 16)))
    assert reductions(lambda x: loop(x)[0], X) == ONCE


def test_a_fork_in_an_inner_loop_is_reduced_behind_both():
    inner = cut_and_added(lambda rest, g: rest + g, lambda x: ROOM)
    loop = over_steps(lambda g, x: (jax.tree.map(jnp.add, g, inner(x)[0]), None), lambda x: ROOM)
    assert reductions(lambda x: loop(x)[0], X) == [("all_reduce", (4, 16), 1), ("all_reduce", (12, 16), 1)]
