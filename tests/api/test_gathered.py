"""Is every gather that nobody asked for listed, with its reason, and none that somebody did?"""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

MESH = ap.Mesh({"batch": 4})
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")
X, THIN = (jax.ShapeDtypeStruct((64, columns), "float32") for columns in (16, 6))
INDEX = jax.ShapeDtypeStruct((), "int32")
KEY = jax.ShapeDtypeStruct((4,), "uint32")
THREEFRY = lax.RandomAlgorithm.RNG_THREE_FRY
WHOLE = 64 * 16 * 4 * 3 / 4
"""Bytes of x that a device lacks; of what is thin, which has no dim to be exchanged for, 6 columns in 16."""

CASES = {
    "fft": (
        lambda x: jnp.fft.fft(x, axis=0),
        (THIN,),
        "fft",
        "fft needs dim 1 of complex<f32>[6,64]",
        2 * WHOLE * 6 / 16,
    ),
    "sort": (lambda x: jnp.sort(x, axis=0), (THIN,), "sort", "sort needs dim 0 of f32[64,6] whole", WHOLE * 6 / 16),
    "argmax": (lambda x: jnp.argmax(x, axis=0), (X,), "reduce", "reduce needs dim 0 of f32[64,16] whole", WHOLE),
    "cumsum": (lambda x: jnp.cumsum(x, axis=0), (X,), "reduce_window", "reduce_window needs dim 0 of", WHOLE),
    "top_k": (
        lambda x: lax.top_k(x.T, 4),
        (THIN,),
        "chlo.top_k",
        "chlo.top_k needs dim 1 of f32[6,64]",
        WHOLE * 6 / 16,
    ),
    "uneven slice": (lambda x: x[:62], (X,), "slice", "2 is not a multiple of 4", WHOLE),
    "slice": (lambda x: x[:55], (X,), "slice", "slice needs dim 0 of f32[64,16] whole", WHOLE),
    "concatenate": (
        lambda x: jnp.concatenate([x, x[0, None]]),
        (X,),
        "concatenate",
        "concatenate needs dim 0 of",
        None,
    ),
    "axis does not divide": (lambda x: x.reshape(2, -1), (X,), "reshape", "2 is not a multiple of 4", WHOLE),
    "minor factor": (
        lambda x: x.T.reshape(2, 8, 64)[0, :3].reshape(-1),
        (X,),
        "reshape",
        "reshape slices dim 1 once dim 0 is cut 3 ways",
        3 * 64 * 4 * 3 / 4,
    ),
    "window": (
        lambda x, i: lax.dynamic_slice(x, (i, 0), (8, 16)),
        (X, INDEX),
        "dynamic_slice",
        "it moves along dim 0, which is tiled",
        8 * 16 * 4,
    ),
    "scan": (
        lambda x: lax.scan(lambda c, row: (jnp.tanh(c + row), None), x[0] * 0, x)[0],
        (X,),
        "dynamic_slice",
        "it moves along dim 0, which is tiled: every device receives the window",
        64 * 16 * 4,
    ),
    "scan that adds up": (
        lambda x: lax.scan(lambda c, row: (c + row, None), x[0] * 0, x)[0],
        (X,),
        "dynamic_slice",
        "it moves along dim 0, which is tiled: every device works on it, and the results are added",
        16 * 4,
    ),
    "random bits": (
        lambda x, k: x + lax.rng_bit_generator(k, x.shape, algorithm=THREEFRY)[1].astype("float32"),
        (X, KEY),
        "rng_bit_generator",
        "every device makes all of it: a slice of the bits cannot be drawn",
        0,
    ),
    "custom call": (
        lambda x: jnp.linalg.qr(x),
        (X,),
        "custom_call @lapack_sgeqrf_ffi",
        "no rule for custom_call @lapack_sgeqrf_ffi: ap.kernel or ap.register_custom_call gives it one",
        WHOLE,
    ),
    "conflict": (lambda x: x @ x.T, (X,), "dot_general", "several mappings fit: a conflict", None),
}


def lowered(fun, args, schedule=(BP,), mesh=MESH, **options):
    return ap.jit(fun, mesh, schedule, **options).lower(*args)


@pytest.mark.parametrize("case", CASES)
def test_gather_nobody_asked_for_is_listed_with_its_reason_line_and_bytes(case):
    fun, args, kind, reason, in_bytes = CASES[case]
    rows = lowered(fun, args).metadata.gathered
    row = next(row for row in rows if row.kind == kind)
    assert row.axis == "batch"
    assert row.reason.startswith(reason)
    assert "test_gathered.py:" in row.where
    assert row.seconds is None
    if in_bytes is not None:
        assert sum(r.bytes for r in rows if r.kind == kind) == in_bytes


@pytest.mark.parametrize("case", CASES)
def test_rows_are_priced_where_a_device_is_known_and_printed(case):
    fun, args, kind, reason, _ = CASES[case]
    low = lowered(fun, args, mesh=ap.Mesh({"batch": 4}, device="cpu_host"))
    rows = low.metadata.gathered
    assert all(row.seconds > 0 or row.bytes == 0 for row in rows)
    assert sum(row.seconds for row in rows) <= low.estimate.collective_s * (1 + 1e-9)
    printed = str(low.metadata)
    assert f'{kind} on "batch"' in printed
    assert reason in printed
    assert ap.Metadata.from_json(low.metadata.to_json()) == low.metadata


def test_a_gather_that_costs_less_than_its_pieces_is_listed():
    mesh = ap.Mesh({"batch": 4}, device="cpu_host")
    low = lowered(lambda x: x[8:16], (X,), mesh=mesh)
    assert low.program.collectives() == {"all_gather": 1}
    (row,) = low.metadata.gathered
    assert (row.kind, row.axis, row.bytes) == ("slice", "batch", WHOLE)
    assert row.reason == "slice reads so many pieces of dim 0 of f32[64,16] that the whole costs less"
    assert row.seconds > 0
    assert lowered(lambda x: x[8:16], (X,)).program.collectives() == {"all_permute": 3}


def test_equal_rows_of_one_line_are_printed_once_with_their_number():
    def fun(x):
        for _ in range(20):
            x = jnp.tanh(jnp.sort(x, axis=0)) + x
        return x

    metadata = lowered(fun, (THIN,)).metadata
    assert [row.kind for row in metadata.gathered].count("sort") == 20
    lines = [line for line in str(metadata).splitlines() if "sort needs" in line]
    assert len(lines) == 1
    assert "20 x sort" in lines[0]


def test_gather_that_several_ops_share_is_paid_by_the_first():
    def fun(x):
        y = x * 2
        return jnp.sort(y, axis=0), jnp.cumsum(y, axis=0)

    rows = lowered(fun, (THIN,)).metadata.gathered
    assert sorted(row.bytes for row in rows) == [0, WHOLE * 6 / 16]


def test_only_the_axis_that_is_lost_is_named():
    mesh = ap.Mesh({"batch": 4, "model": 2})
    schedule = [BP, ap.ManualPartition({"x": 1}, axis="model")]
    four = jax.ShapeDtypeStruct((4, 16), "float32")
    (row,) = lowered(lambda x: jnp.sort(x, axis=1), (four,), schedule, mesh).metadata.gathered
    assert row.axis == "model"


def momentum_step(params, x):
    w = params.reshape(2, 8, 16).astype("bfloat16").reshape(16, 16).astype("float32")
    return params - jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)


def test_stored_state_that_is_gathered_on_its_way_is_asked_for():
    args = jax.ShapeDtypeStruct((16, 16), "float32"), X
    schedule = [BP, ap.ManualPartition({"params": 0}, axis="batch", name="Z3")]
    stored = lowered(momentum_step, args, schedule, donate_argnums=0)
    assert "all_gather" in stored.metadata.tactics[-1].collectives_by_axis["batch"]
    assert stored.metadata.gathered == ()
    data = lowered(momentum_step, args, schedule)
    assert [row.reason for row in data.metadata.gathered][:1] == [
        "2 is not a multiple of 4: axes of 2 and 2 instead of batch would fit"
    ]


def copies(x):
    return jnp.tile(jnp.sin(x), (2, 1))


def copies_gradient(x):
    return jax.grad(lambda x: (copies(x) ** 2).sum())(x)


@pytest.mark.parametrize("fun", [copies, copies_gradient])
def test_fewer_copies_than_devices_are_gathered_and_the_reason_names_axes_that_do_without(fun):
    rows = lowered(fun, (X,)).metadata.gathered
    assert rows
    assert all(row.reason.endswith(": axes of 2 and 2 instead of batch would fit") for row in rows)
    mesh, x = ap.Mesh({"a": 2, "b": 2}), np.random.default_rng(0).normal(size=X.shape).astype("float32")
    step = ap.jit(fun, mesh, [ap.ManualPartition({"x": 0}, axis=axis) for axis in "ab"])
    low = step.lower(X)
    assert low.metadata.gathered == ()
    assert "all_gather" not in {kind for kind, count in low.program.collectives().items() if count}
    np.testing.assert_allclose(step(x), fun(x), rtol=1e-5, atol=1e-5)


def test_copies_that_are_concatenated_are_moved_in_pieces():
    low = lowered(lambda x: jnp.concatenate([jnp.sin(x)] * 3), (X,))
    assert low.metadata.gathered == ()
    assert {kind for kind, count in low.program.collectives().items() if count} == {"all_permute"}


@pytest.mark.parametrize("size", [6, 3])
def test_axes_are_named_only_where_the_first_uses_its_factor_up(size):
    (row,) = lowered(lambda x: x.reshape(size, 4), (jax.ShapeDtypeStruct((size * 4,), "float32"),)).metadata.gathered
    assert row.reason == f"{size} is not a multiple of 4"


def test_value_that_a_tactic_keeps_whole_is_asked_for():
    def fun(x):
        return jnp.sort(ap.tag("whole", x * 2), axis=0)

    keep = ap.ManualPartition({"whole": ap.REPLICATED}, axis="batch")
    assert lowered(fun, (X,), [keep, BP]).metadata.gathered == ()


@pytest.mark.parametrize(
    ("model", "schedule"),
    [
        ("decoder_unrolled", "BP+MP+Z3"),
        pytest.param("decoder_scan_flax", "BP+Z3", marks=pytest.mark.slow),
        pytest.param("encoder_decoder_nnx", "BP+Z3", marks=pytest.mark.slow),
    ],
)
def test_known_strategies_have_no_gather_that_nobody_asked_for(model, schedule):
    case = importlib.import_module(f"tests.models.{model}").case()
    mesh, donated = ap.Mesh({"batch": 4, "model": 2}), tuple(range(case.state))
    metadata = lowered(case.step, case.args, case.schedules[schedule], mesh, donate_argnums=donated).metadata
    assert "all_gather" in metadata.tactics[-1].collectives_by_axis["batch"]
    assert metadata.gathered == ()
    assert all(note.endswith("it has no dims") for note in metadata.tactics[-1].notes)
    assert metadata.flop_divided["batch"] > 0.95
