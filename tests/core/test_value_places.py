"""Is a value that has no path named by scope, op and line, and found again by that name?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

LAYERS = 3
ARGS = ([jax.ShapeDtypeStruct((64, 64), "float32")] * LAYERS, jax.ShapeDtypeStruct((8, 64), "float32"))
MESH = ap.Mesh({"data": 4, "model": 2})


def layer(w, x):
    return jnp.tanh(x @ w)


def scoped(params, x):
    for n, w in enumerate(params):
        with jax.named_scope(f"layer_{n}/dense"):
            x = layer(w, x)
    return x.sum()


def plain(params, x):
    for w in params:
        x = layer(w, x)
    return x.sum()


def program_of(fun):
    return ap.jit(jax.grad(fun), MESH).lower(*ARGS).traced.program


def products(program):
    return [v for v in range(program.value_count) if program.spec(int(program.value_op[v])).kind == "dot_general"]


@pytest.mark.parametrize("fun", [scoped, plain])
def test_every_name_names_its_value(fun):
    program = program_of(fun)
    places = program.value_places
    names = {v: places.name_of(v) for v in range(program.value_count)}
    assert all(places.values_of(name) == [(name, v)] for v, name in names.items() if name)
    assert len({name for name in names.values() if name}) == sum(map(bool, names.values()))


def test_a_name_is_scope_op_and_line():
    first = program_of(scoped).value_places.name_of(products(program_of(scoped))[0])
    assert first.startswith("layer_0/dense/dot_general@test_value_places.py:")


def test_without_scopes_the_parameter_stands_for_one():
    program = program_of(plain)
    assert program.value_places.name_of(products(program)[1]).startswith("params/1/dot_general@test_value_places.py:")


def test_the_backward_pass_has_names_of_its_own():
    program = program_of(scoped)
    names = [program.value_places.name_of(v) for v in products(program)]
    assert [name.startswith("transpose/") for name in names] == [False] * LAYERS + [True] * (len(names) - LAYERS)


def test_tactics_take_trailing_parts_and_patterns():
    lowered = ap.jit(jax.grad(scoped), MESH, [ap.ManualPartition({"layer_*/dense/dot_general@*": 0}, "data")]).lower(
        *ARGS
    )
    tiled = [row for row in lowered.metadata.tactics[0].decisions if row[0] == "tile"]
    assert [row[1].partition("@")[0] for row in tiled] == [f"layer_{n}/dense/dot_general" for n in range(LAYERS)]


def test_what_is_not_one_value_is_refused_with_the_candidates():
    program = program_of(plain)
    place = program.value_places.name_of(products(program)[0]).rpartition("@")[2]
    with pytest.raises(ap.UnknownNameError, match=r"is the name of 3 values") as raised:
        ap.jit(jax.grad(plain), MESH, [ap.ManualPartition({f"dot_general@{place}": 0}, "data")]).lower(*ARGS)
    assert "params/2/dot_general@" in str(raised.value)
    with pytest.raises(ap.UnknownNameError, match="no value of the program"):
        ap.jit(jax.grad(plain), MESH, [ap.ManualPartition({"conv@lm.py:1": 0}, "data")]).lower(*ARGS)


def test_after_an_edit_the_new_line_is_offered():
    tactic = ap.ManualPartition({"layer_0/dense/dot_general@test_value_places.py:9999": 0}, "data")
    with pytest.raises(ap.UnknownNameError, match=r"try  'layer_0/dense/dot_general@test_value_places\.py:\d+'"):
        ap.jit(jax.grad(scoped), MESH, [tactic]).lower(*ARGS)


def test_a_pattern_without_an_op_that_matches_several_is_refused():
    with pytest.raises(ap.UnknownNameError, match="one of these"):
        ap.jit(jax.grad(scoped), MESH, [ap.ManualPartition({"layer_*/dense@*": 0}, "data")]).lower(*ARGS)


def test_explanations_take_and_give_such_names():
    lowered = ap.jit(jax.grad(scoped), MESH, [ap.ManualPartition({"layer_1/dense/dot_general@*": 0}, "data")]).lower(
        *ARGS
    )
    text = str(lowered.explain("x"))
    assert "tile<layer_1/dense/dot_general@test_value_places.py:" in text
    assert "%" not in text.replace(" %)", "")
    assert lowered.explain("layer_1/dense/tanh@*").values[0].spec == (("data",),)


def test_an_argument_called_like_that_comes_first():
    named = ap.jit(lambda x: jnp.tanh(x["a@b"]), MESH, [ap.ManualPartition({"x/a@b": 0}, "data")])
    assert named.lower({"a@b": np.ones((8, 8))}).metadata.in_specs == {"x/a@b": (("data",),)}
