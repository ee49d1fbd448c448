"""Is what is easily given wrong answered in words: a schedule that is no list, a dict as mesh, a number as budget?"""

from __future__ import annotations

import functools
import gc
import re
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import autopart as ap
from autopart.costmodel.hardware.devices import device

MESH = ap.Mesh({"batch": 4})
BP = ap.ManualPartition({"x": 0}, axis="batch")
X = jax.ShapeDtypeStruct((8, 4, 4), "float32")
PAGE = Path(__file__).parents[2] / "docs" / "training-loop.md"


def tiled_as(decision, *axes):
    """Where the argument of a function lies, decided over some axes."""
    mesh = ap.Mesh(dict.fromkeys(axes or MESH.axis_names, 2))
    return ap.jit(lambda x: x + 1, mesh, [ap.ManualPartition({"x": decision}, axes or "batch")]).lower(X)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: ap.jit(jnp.tanh, MESH, BP), "schedule is .*list of tactics"),
        (lambda: ap.jit(jnp.tanh, MESH, "BP"), "schedule is 'BP'.*list of tactics"),
        (lambda: ap.jit(jnp.tanh, MESH, [ap.jit(jnp.tanh, MESH, [BP]).lower(X).plan, BP]), r"ap\.Replay\(plan\)"),
        (lambda: ap.jit(jnp.tanh, {"batch": 4}, [BP]), r"mesh is \{'batch': 4\}.*ap\.Mesh\(\{\.\.\.\}\)"),
        (lambda: ap.AutomaticPartition(["batch"], budget=100), r"budget is 100.*ap\.Budget"),
        (lambda: ap.Mesh({"batch": 4}, device=type(device("tpu_v3"))), "device is the class Device"),
        (lambda: ap.Mesh([4, 2]), r"axes is \[4, 2\]"),
        (lambda: ap.ManualPartition({"x": 0}, axis=("a", "b", "a")), 'the axis "a" is there twice.*are a, b, a'),
        (lambda: ap.AutomaticPartition(["a", "a"]), 'the axis "a" is there twice'),
        (lambda: ap.sweep(jnp.tanh, (X,), devices=4, axes=["a", "a"], device="tpu_v3"), 'the axis "a" is there twice'),
        (
            lambda: ap.jit(jnp.tanh, MESH, [ap.ManualPartition({"x": lambda path: 0}, axis="batch")]).lower(X),
            r"is not a decision.*\(path, shape\) -> ",
        ),
        (lambda: ap.Mesh({"batch": 4}, device="H100"), "no device is called \"H100\".*try 'h100'"),
        (
            lambda: ap.jit(jnp.tanh, MESH, [ap.Parallelism("FDSP(batch)")]).lower(X),
            "no named schedule is called \"FDSP\".*try 'FSDP'",
        ),
        (lambda: tiled_as(P(None, "model")), r'names "model".*over \'batch\'.*axis=\(\'batch\', \'model\'\)'),
        (lambda: tiled_as(P(None, None, None, "batch")), "is for 4 dims.*the array has 3"),
        (lambda: tiled_as(P(P.UNCONSTRAINED)), r"leaves a dim open.*ap\.UNKNOWN"),
        (lambda: tiled_as(P(("b", "a")), "a", "b"), r"has b, a on one dim.*axis=\(\'b\', \'a\'\)"),
    ],
    ids=[
        "a tactic as schedule",
        "a name as schedule",
        "a plan among tactics",
        "a dict as mesh",
        "a number as budget",
        "a class as device",
        "a list",
        "an axis twice",
        "a search axis twice",
        "a sweep axis twice",
        "a function of one argument",
        "a device in capitals",
        "letters exchanged",
        "a spec of other axes",
        "a spec of too many dims",
        "a spec that leaves a dim open",
        "a spec in another order",
    ],
)
def test_what_is_easily_given_wrong_says_what_is_right(wrong, says):
    with pytest.raises(ap.PartitionError) as error:
        wrong()
    assert re.search(says, " ".join(str(error.value).split())), str(error.value)


def test_a_partition_spec_is_a_decision_for_each_axis():
    assert tiled_as(P(None, "batch")).metadata.in_specs == {"x": ((), ("batch",))}
    assert tiled_as(P("b", "a"), "a", "b").metadata.in_specs == {"x": (("b",), ("a",))}
    assert tiled_as(P(("a", "b")), "a", "b").metadata.in_specs == {"x": (("a", "b"),)}
    whole = tiled_as({"*": P()}).metadata
    assert whole.in_specs == {"x": ()}
    assert whole.tactics[0].actions[0] == "atomic<x, batch>"


def test_a_search_without_axes_is_over_all_axes_of_the_mesh():
    mesh = ap.Mesh({"a": 2, "b": 2}, device="tpu_v3")
    reports = []
    for axes in ({}, {"axes": ["a", "b"]}):
        search = ap.AutomaticPartition(**axes, budget=ap.Budget(20), cache=False, progress=False)
        lowered = ap.jit(lambda x, w: jnp.tanh(x @ w), mesh, [search]).lower(
            jnp.ones((4096, 512)), jnp.ones((512, 512))
        )
        reports.append(lowered.metadata.tactics[0])
    assert reports[0].decisions == reports[1].decisions
    assert reports[0].flop_divided == {"a": 1.0, "b": 1.0}


def test_recompute_that_changes_nothing_says_so():
    def forward(w, x):
        return jnp.tanh(jnp.tanh(x @ w) @ w).sum()

    w, x = jnp.ones((8, 8)), jnp.ones((16, 8))
    for policy in ("blocks", "matmuls", "nothing"):
        metadata = ap.jit(forward, MESH, [ap.Recompute(policy), BP]).lower(w, x).metadata
        assert "nothing is computed twice" in str(metadata)
        assert type(metadata).from_json(metadata.to_json()) == metadata
    trained = ap.jit(jax.grad(forward), MESH, [ap.Recompute("matmuls"), BP]).lower(w, x)
    assert "nothing is computed twice" not in str(trained.metadata)


def test_warnings_point_at_the_line_that_calls():
    step = ap.jit(changing, MESH, [BP])
    with pytest.warns(ap.MutationWarning) as found:
        step.lower({"w": X}, X)
    assert found[0].filename == __file__
    assert "step.lower" in Path(__file__).read_text().splitlines()[found[0].lineno - 1]


def changing(state, x):
    state["w"] = x + 1
    return x


def scaled(x, by):
    return x * by if x.sum() > 0 else x


class Scaling:
    def scaled(self, x):
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("fun", "line"),
    [
        (lambda x: x if x.sum() > 0 else -x, "(lambda x: x if"),
        (functools.partial(scaled, by=2), "def scaled(x, by):"),
        (Scaling().scaled, "    def scaled(self, x):"),
        (jax.jit(functools.partial(scaled, by=2)), "def scaled(x, by):"),
    ],
    ids=["a lambda", "a partial function", "a method", "a jitted function"],
)
@pytest.mark.parametrize("jit", [ap.jit, ap.filter_jit], ids=["jit", "filter_jit"])
def test_errors_of_tracing_name_the_line_of_the_function(jit, fun, line):
    lines = Path(__file__).read_text().splitlines()
    place = next(n for n, text in enumerate(lines, 1) if line in text)
    with pytest.raises(jax.errors.TracerBoolConversionError, match=f"test_small_traps.py:{place} for jit"):
        jit(fun, MESH).lower(X)


def test_errors_of_tracing_an_nnx_function_name_its_line():
    pytest.importorskip("flax.nnx")
    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"scaled at .*test_small_traps.py:\d+ for jit"):
        ap.nnx.jit(scaled, MESH)(np.ones((8, 4), "f4"), 2.0)


def test_a_function_that_was_lowered_goes_when_nobody_holds_it():
    def own(x):
        return x + 1

    ap.jit(own, MESH).lower(X)
    kept = weakref.ref(own)
    del own
    jax.clear_caches()
    gc.collect()
    assert kept() is None


def test_a_function_that_cannot_be_referred_to_weakly_does_not_end_the_process():
    for _ in range(2):
        with pytest.raises(jax.errors.TracerArrayConversionError):
            ap.jit(np.sin, MESH)(np.ones((8, 4), "f4"))


EXPORTED = jax.export.export(jax.jit(jnp.sin), platforms=["cpu"])(X)


@pytest.mark.parametrize("fun", [jnp.linalg.eigvals, EXPORTED.call], ids=["eig", "jax.export"])
def test_what_jax_has_for_other_platforms_only_is_an_error_that_names_the_platform(fun):
    step = ap.jit(lambda x: fun(x), ap.Mesh({"batch": 4}, device="tpu_v3"), [BP])
    for call in (lambda: step.lower(X), lambda: step(np.ones(X.shape, "f4"))):
        with pytest.raises(ap.ProgramError, match="jax cannot lower <lambda> for tpu") as error:
            call()
        assert error.value.why
        assert "pure_callback" in error.value.hint


def test_the_page_on_training_loops_warns_of_loops_that_never_wait():
    page = " ".join(PAGE.read_text().split())
    assert "On simulated host devices a loop that never waits piles up work" in page
    assert "jax.block_until_ready" in page
