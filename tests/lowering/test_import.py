"""Is the flat program what the module says?"""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.core.doors.jax_internals import parse_module
from autopart.core.importer import import_module

X = jax.ShapeDtypeStruct((8, 4), "float32")


def program(fun, *args):
    return import_module(jax.jit(fun).lower(*args).compiler_ir("stablehlo"))


def kinds(p):
    return [p.spec(o).kind for o in range(p.op_count)]


def bodies(p):
    return [(s.trips, s.trips_known) for s in p.scopes if s.kind == "body"]


def test_arguments_are_named_by_their_pytree_path():
    low = ap.jit(lambda p, x: p["a"][0] @ x, ap.Mesh({"m": 2})).lower(
        {"a": [jax.ShapeDtypeStruct((2, 8), "float32")]}, X
    )
    assert low.traced.program.argument_names == ["p/a/0", "x"]


def test_constants_are_cloned_for_each_use():
    p = program(lambda x: (x + 1.0) * jnp.where(x > 1.0, 1.0, x), X)
    constants = [o for o in range(p.op_count) if p.spec(o).kind == "constant"]
    assert len(constants) >= 3
    pointer, _ = p.users
    assert all(pointer[v + 1] - pointer[v] == 1 for o in constants for v in p.results_of(o))


def test_calls_are_inlined_and_each_call_may_partition_differently():
    @jax.jit
    def inner(x):
        return jnp.tanh(x)

    assert kinds(program(lambda x: inner(x) + inner(x * 2), X)).count("tanh") == 2


def test_scan_has_its_trip_count_and_carries_only_what_changes():
    def fun(x, w):
        return jax.lax.scan(lambda c, row: (c + row @ w, None), x[0], x)[0]

    p = program(fun, X, jax.ShapeDtypeStruct((4, 4), "float32"))
    assert bodies(p) == [(8, True)]
    carries = [o for o in range(p.op_count) if p.spec(o).kind == "carry"]
    assert len(carries) == 2  # the counter and c; x and w are read from outside


@pytest.mark.parametrize(("start", "stop", "step", "trips"), [(0, 10, 3, 4), (2, 9, 1, 7), (5, 5, 1, 0), (7, 2, 1, 0)])
def test_counting_loops(start, stop, step, trips):
    def fun(x):
        state = jax.lax.while_loop(lambda s: s[0] < stop, lambda s: (s[0] + step, s[1] * 2), (start, x))
        return state[1]

    assert bodies(program(fun, X)) == [(trips, True)]


def test_loop_of_unknown_length_says_so():
    p = program(lambda x: jax.lax.while_loop(lambda c: jnp.sum(c) < 10, lambda c: c * 2, x), X)
    assert bodies(p) == [(1, False)]


def test_nested_scopes_multiply_their_trips():
    def fun(x):
        return jax.lax.fori_loop(0, 3, lambda _, c: jax.lax.fori_loop(0, 5, lambda _, d: d * 2, c), x)

    p = program(fun, X)
    assert sorted(p.scope_trips[i] for i, s in enumerate(p.scopes) if s.kind == "body") == [3, 15]


def test_case_joins_its_branches():
    p = program(lambda i, x: jax.lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), 0, X)
    join = kinds(p).index("join")
    assert [p.spec(int(p.value_op[v])).kind for v in p.operands_of(join)] == ["sine", "cosine", "tanh"]


def test_donated_argument_reads_its_next_value():
    low = ap.jit(lambda s, x: (s + x, x * 2), ap.Mesh({"m": 2}), donate_argnums=0).lower(X, X)
    p = low.traced.program
    assert p.ties == {0: 0}
    assert list(p.operands_of(0)) == [p.outputs[0]]


def test_ties_follow_the_tree_not_the_order_of_the_outputs():
    def fun(params, mu):
        return mu, params

    low = ap.jit(fun, ap.Mesh({"m": 2}), donate_argnums=(0, 1)).lower({"w": X}, {"u": X})
    assert low.traced.program.ties == {1: 0, 0: 1}


def test_source_lines_and_scopes_are_kept():
    def fun(x):
        with jax.named_scope("attention"):
            return jnp.tanh(x)

    p = program(fun, X)
    where = p.where(kinds(p).index("tanh"))
    assert "test_import.py:" in where
    assert "attention" in where


def test_op_of_a_library_function_names_the_line_that_called_it():
    p = program(lambda x: jnp.sort(x), X)
    assert "test_import.py:" in p.where(kinds(p).index("sort"))


def test_reducers_are_summarised():
    def fun(x):
        own = jax.lax.reduce(x, np.float32(1), lambda a, b: a + b + a * b, (0,))
        return jnp.max(x), jnp.argmax(x), x.at[0].add(1.0), own

    p = program(fun, X)
    regions = {p.spec(o).kind + ":" + p.spec(o).region for o in range(p.op_count) if p.spec(o).region}
    assert {"reduce:max", "reduce:argmax", "reduce:opaque", "scatter:add"} <= regions


def test_sharding_marks_and_one_device_shard_map_are_read_through():
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:1])
    spec = jax.sharding.PartitionSpec("d")

    def fun(x):
        x = jax.lax.with_sharding_constraint(x, jax.sharding.NamedSharding(mesh, spec))
        return jax.shard_map(
            lambda y: jax.lax.psum(y, "d") * 2, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
        )(x)

    p = program(fun, X)
    assert set(kinds(p)) <= {"argument", "constant", "broadcast_in_dim", "multiply", "convert"}


@pytest.mark.parametrize("form", ["text", "gzip", "bytecode"])
def test_file_forms(tmp_path, form):
    import gzip
    import io

    module = jax.jit(lambda x: x + 1).lower(X).compiler_ir("stablehlo")
    path = tmp_path / "m.mlir"
    if form == "bytecode":
        out = io.BytesIO()
        module.operation.write_bytecode(out)
        path.write_bytes(out.getvalue())
    else:
        text = str(module).encode()
        path.write_bytes(gzip.compress(text) if form == "gzip" else text)
    assert kinds(ap.load(path).traced.program)[0] == "argument"


def test_program_survives_pickling_without_its_module():
    p = program(lambda x: jnp.tanh(x) @ x.T, X)
    q = pickle.loads(pickle.dumps(p))
    assert q.fingerprint == p.fingerprint
    assert q.source is None
    np.testing.assert_array_equal(p.operands, q.operands)


def test_equal_modules_have_equal_fingerprints_and_others_do_not():
    text = jax.jit(lambda x: jnp.tanh(x)).lower(X).as_text()
    prints = [import_module(parse_module(t)).fingerprint for t in (text, text, text.replace("tanh", "sine"))]
    assert prints[0] == prints[1] != prints[2]
