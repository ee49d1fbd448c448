"""Do layers that come by name stand in the order of their numbers, and does the program compute the same?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.core.importer.locations import Source
from autopart.core.passes import LayerOrder, verify_program
from autopart.core.program import Program
from autopart.core.repeats.fewer_layers import fewer_layers

LAYERS = 20
INSIDE = range(6, 14)
MESH = ap.Mesh({"x": 2})


def parameters(name: str) -> dict:
    """Layers by name; a dictionary is a tree in the order of its keys."""
    layer = {"down": jnp.ones((16, 8)) / 16, "up": jnp.ones((8, 16)) / 8}
    return {name.format(n): jax.tree.map(lambda w, n=n: w + n / 100, layer) for n in range(LAYERS)}


def step(w: dict, x: jax.Array) -> dict:
    """Gradient descent, layer by layer; each layer has a number of its own, as dropout has."""

    def loss(w: dict) -> jax.Array:
        y = x
        for n, key in enumerate(sorted(w, key=int)):
            y = y + jnp.tanh(y @ w[key]["up"] * (n + 2) / 100) @ w[key]["down"]
        return jnp.sum(y)

    return jax.tree.map(lambda p, g: p - g / 10, w, jax.grad(loss)(w))


def traced(name: str) -> Program:
    return ap.jit(step, MESH, donate_argnums=0).lower(parameters(name), jnp.ones((4, 8))).traced.program


def kinds(program: Program) -> list[str]:
    of_op = [program.spec(op).kind for op in range(program.op_count)]
    return [kind for kind in of_op if kind not in ("argument", "constant")]


def updated_layers(program: Program) -> list[int]:
    """The layers whose matrices `up` are updated, in the order of the program."""
    outputs = sorted(zip(program.outputs, program.output_names, strict=True))
    return [int(name.removesuffix("/up").split("/")[-1]) for _, name in outputs if name.endswith("/up")]


def test_layers_inside_a_stack_stand_in_the_order_of_their_numbers():
    by_name, by_number = traced("{}"), traced("{:02}")
    assert by_name.argument_names != by_number.argument_names
    assert kinds(by_name) == kinds(by_number)
    assert isinstance(by_name.source, Source)
    verify_program(by_name)
    assert updated_layers(by_number) == list(range(LAYERS))
    assert sorted(updated_layers(by_name)) == list(range(LAYERS))
    assert [n for n in updated_layers(by_name) if n in INSIDE] == list(INSIDE)


@pytest.mark.parametrize("name", ["{}", "{:02}"])
def test_layers_are_found_however_they_are_named(name):
    fewer = fewer_layers(traced(name))
    assert fewer is not None
    assert fewer.left_out >= LAYERS // 3


def test_what_is_in_order_stays_as_it_is():
    program = traced("{:02}")
    assert LayerOrder().apply(program) is program
    again = traced("{}")
    assert np.array_equal(LayerOrder().apply(again).operands, again.operands)


def test_the_program_computes_the_same():
    w, x = parameters("{}"), jnp.ones((4, 8))
    found = ap.jit(step, MESH, [ap.ManualPartition({"x": 0}, axis="x")])(w, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, step(w, x))


def chained(w: dict, x: jax.Array) -> jax.Array:
    """Layers in the order of their names; the last one by name ends the program, or little comes after it."""
    for key in sorted(w):
        x = x + jnp.tanh(x @ w[key]["up"]) @ w[key]["down"]
    return x


AFTER = {
    "nothing": lambda x: x,
    "one op": jnp.tanh,
    "a sum": jnp.sum,
    "more than a block": lambda x: jnp.sin(jnp.cos(jnp.sin(jnp.cos(jnp.sin(jnp.cos(x * 2) + 1) * 3) - 1) / 2) + x),
}


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("count", range(6, 21, 2))
def test_a_block_that_ends_the_program_is_a_block(count, after, gradient):
    w = {key: layer for n, (key, layer) in enumerate(parameters("block_{}").items()) if n < count}

    def forward(w: dict, x: jax.Array) -> jax.Array:
        return AFTER[after](chained(w, x))

    function = jax.grad(lambda w, x: jnp.sum(forward(w, x))) if gradient else forward
    lowered = ap.jit(lambda w, x: function(w, x), MESH).lower(w, jnp.ones((4, 8)))
    assert not [report for report in lowered.passes if report.left_out]
    verify_program(lowered.traced.program)
