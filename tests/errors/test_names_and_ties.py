"""Can every value be told from the others by its name, and is each output the next value of one argument at most?"""

from __future__ import annotations

import jax
import numpy as np
import pytest

import autopart as ap

X = np.ones((8, 4), "f4")
MESH = ap.Mesh({"a": 4})
TAGS = (
    "plain",
    "é",
    'a"b',
    "a'b",
    "back\\slash",
    "new\nline",
    "tab\t",
    "日本",
    "a/b",
    "percent%",
    "[0]",
    "\x7f",
    "a b",
)


@pytest.mark.parametrize("name", TAGS)
def test_a_tag_of_any_name_can_be_decided_about(name):
    lowered = ap.jit(lambda x: ap.tag(name, x + 1) * 2, MESH, [ap.ManualPartition({name: 0}, axis="a")]).lower(X)
    assert list(lowered.traced.program.tags) == [name]
    assert lowered.metadata.out_specs["outputs"] == (("a",),)


def test_tags_that_escape_alike_are_told_apart():
    def tagged(x):
        return ap.tag("é", x + 1), ap.tag("\\C3\\A9", x + 2)

    lowered = ap.jit(tagged, MESH, [ap.ManualPartition({"é": 0, "\\C3\\A9": 1}, axis="a")]).lower(X)
    assert list(lowered.metadata.out_specs.values()) == [(("a",),), ((), ("a",))]


def module(tmp_path, first="", second=""):
    path = tmp_path / "module.mlir"
    path.write_text(
        f"""func.func @main(%a: tensor<8xf32> {first}, %b: tensor<8xf32> {second}) -> (tensor<8xf32>, tensor<8xf32>) {{
        return %a, %b : tensor<8xf32>, tensor<8xf32> }}"""
    )
    return path


def aliasing(text):
    return f"{{tf.aliasing_output = {text}}}"


def test_two_arguments_of_one_location_are_told_apart_by_number_or_by_given_names(tmp_path):
    path = module(tmp_path, 'loc("same")', 'loc("same")')
    assert list(ap.jit(ap.load(path), MESH).lower().metadata.in_specs) == ["same", "same_1"]
    program = ap.load(path, argument_names=["a", "b"])
    assert list(ap.jit(program, MESH).lower().metadata.in_specs) == ["a", "b"]


def test_arguments_whose_paths_collide_are_refused():
    with pytest.raises(ap.ProgramError, match="two arguments are called 'x/a/b'"):
        ap.jit(lambda x: x, MESH).lower({"a": {"b": X}, "a/b": X})


TIES = {
    "one output of two arguments": (aliasing("0 : i32"), aliasing("0 : i32"), "output 0 is tied twice"),
    "an output that is not there": (aliasing("2 : i32"), "", "ties name output 2"),
    "an output before the first": (aliasing("-1 : i32"), "", "ties name output -1"),
    "text": (aliasing('"zero"'), "", "tf.aliasing_output of argument 0 is"),
}


@pytest.mark.parametrize("case", TIES)
def test_ties_of_a_file_that_cannot_be_are_refused(tmp_path, case):
    first, second, says = TIES[case]
    with pytest.raises(ap.ProgramError, match=says):
        ap.load(module(tmp_path, first, second))


@pytest.mark.parametrize("ties", [{0: 0, 1: 0}, {0: 2}, {5: 0}])
def test_given_ties_that_cannot_be_are_refused(tmp_path, ties):
    with pytest.raises(ap.ProgramError, match="tie"):
        ap.load(module(tmp_path), ties=ties)


def test_ties_of_a_donated_state_are_one_to_one():
    step = ap.jit(lambda s, t: (t, s, s + t), MESH, donate_argnums=(0, 1))
    assert step.lower(X, X).traced.program.ties == {0: 0, 1: 1}
    assert jax.tree.all(jax.tree.map(np.array_equal, step(X, X * 2), (X * 2, X, X * 3)))


def left_alone(*names):
    """A function that returns each leaf of a dict by itself, so that a decision about one says nothing of others."""
    values = {name: X for name in names}
    return lambda ps: [ps[name] + n for n, name in enumerate(names)], values


@pytest.mark.parametrize("name", ["w[0]", "w?", "w*", "w[", "[!w]", "a/w[0]", "w[0]/b"])
@pytest.mark.parametrize("nested", [True, False], ids=["nested", "whole"])
def test_a_name_with_wildcards_names_itself_and_nothing_else(name, nested):
    fun, values = left_alone(name, "w0", "w", "x", "a/w0", "wb/b")
    inputs = {"ps": {name: 0}} if nested else {f"ps/{name}": 0}
    specs = ap.jit(fun, MESH, [ap.ManualPartition(inputs, axis="a")]).lower(values).metadata.in_specs
    assert [path for path, spec in specs.items() if any(spec)] == [f"ps/{name}"]
    explained = ap.jit(fun, MESH).lower(values).explain(f"ps/{name}")
    assert len(explained) == 1


def test_a_schedule_as_code_names_arguments_with_wildcards():
    fun, values = left_alone("w[0]", "w?", "w1")
    lowered = ap.jit(fun, MESH, [ap.ManualPartition({"ps/w[0]": 0, "ps/w?": 1}, axis="a")]).lower(values)
    schedule = eval(lowered.metadata.as_schedule().partition("=")[2], {"ap": ap})
    assert ap.jit(fun, MESH, schedule).lower(values).metadata.in_specs == lowered.metadata.in_specs


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("b?", {"b0", "b1"}), ("*0", {"b0", "a/b0"}), ("b[!0]", {"b1"}), ("b[01]", {"b0", "b1"}), ("a/*", {"a/b0"}),
        ("*", {"b0", "b1", "b12", "a/b0"}),
    ],
)  # fmt: skip
def test_patterns_match_as_the_page_on_schedules_says(pattern, named):
    fun, values = left_alone("b0", "b1", "b12", "a/b0")
    specs = ap.jit(fun, MESH, [ap.ManualPartition({"ps": {pattern: 0}}, axis="a")]).lower(values).metadata.in_specs
    assert {path.removeprefix("ps/") for path, spec in specs.items() if any(spec)} == named


def test_a_scope_with_wildcards_is_computed_again_by_its_name():
    def loss(w, x):
        with jax.named_scope("layer[0]"):
            h = jax.numpy.tanh(x @ w)
        with jax.named_scope("layer0"):
            return jax.numpy.tanh(h @ w).sum()

    def program(keep):
        step = ap.jit(jax.grad(loss), MESH, [ap.Recompute(keep)])
        return step.lower(np.ones((4, 4), "f4"), X).as_text("program")

    assert program(["layer[0]"]) != program(["layer0"])
