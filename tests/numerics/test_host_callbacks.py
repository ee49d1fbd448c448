"""Do host callbacks run in a partitioned program as they do under plain `jax.jit`, and is what cannot run refused?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.experimental.custom_partitioning import custom_partitioning

import autopart as ap
from tests.prompt import in_turn

MESH = ap.Mesh({"batch": 4, "model": 2})
BP = ap.ManualPartition({"x": 0}, axis="batch")
X = np.arange(32, dtype="f4").reshape(8, 4)
KINDS = ("bool", "int4", "int8", "uint8", "int32", "float16", "bfloat16", "float8_e4m3fn", "float32", "complex64")
HEARD: list[tuple] = []


def hear(*values) -> None:
    HEARD.append(tuple(np.asarray(v).tolist() for v in values))


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def debug_callback(x):
    jax.debug.callback(hear, x.sum())
    return x * 2


def no_results(x):
    jax.debug.callback(hear, x)


def partitioned_callback(x):
    jax.debug.callback(hear, x, partitioned=True)
    return x


def pure_callback(x):
    return jax.pure_callback(lambda v: hear(v) or np.sin(v), like(x), x) + x


def impure_callback(x):
    return io_callback(lambda v: hear(v) or np.float32(-0.0), like(x[0, 0]), x) * x


def in_scan(x):
    def body(total, row):
        jax.debug.callback(hear, row.sum())
        return total + row.sum(), jax.pure_callback(lambda v: np.asarray(v) + 1, like(row), row)

    return jax.lax.scan(body, 0.0, x.T)


def in_while(x):
    def body(carry):
        i, v = carry
        jax.debug.callback(hear, i)
        return i + 1, io_callback(lambda v: hear(v) or np.asarray(v) + 1, like(v), v)

    return jax.lax.while_loop(lambda c: c[0] < 3, body, (0, x))


def in_cond(x):
    def other(v):
        jax.debug.callback(hear, v[0, 0])
        return -v

    return jax.lax.cond(x.sum() > 0, lambda v: pure_callback(v), other, x)


def under_vmap_and_grad(x):
    def loss(row):
        jax.debug.callback(hear, row.sum())
        return (row**2).sum()

    return jax.vmap(jax.grad(jax.checkpoint(loss)))(x)


def of_every_type(x):
    found = [jax.pure_callback(lambda d=d: np.array([0, 1, 1]).astype(d), like(jnp.zeros(3, d))) for d in KINDS]
    return found, jax.pure_callback(lambda: np.zeros((0, 3), "f4"), jax.ShapeDtypeStruct((0, 3), "float32")), x


def of_keys(x):
    jax.debug.callback(lambda key, s: hear(jax.random.key_data(key), s), jax.random.key(3), x.sum())
    return x


def same_callback_twice(x):
    jax.debug.callback(hear, x)
    jax.debug.callback(hear, x)
    return x


PROGRAMS = (
    debug_callback, no_results, partitioned_callback, pure_callback, impure_callback, in_scan, in_while, in_cond,
    under_vmap_and_grad, of_every_type, of_keys, same_callback_twice,
)  # fmt: skip


def heard_by(call) -> tuple[list, list]:
    HEARD.clear()
    results = jax.block_until_ready(call())
    jax.effects_barrier()
    return [np.asarray(r) for r in jax.tree.leaves(results)], sorted(HEARD, key=str)


@pytest.mark.parametrize(
    ("program", "device"),
    in_turn(PROGRAMS, [None, "tpu_v3", "h100"]),
    ids=lambda value: getattr(value, "__name__", None),
)
def test_callbacks_hear_whole_values_once_and_results_are_those_of_plain_jit(program, device):
    step = ap.jit(program, ap.Mesh(MESH.shape, device=device), [BP])
    expected, said = heard_by(lambda: jax.jit(program)(X))
    for call in (lambda: step(X), lambda: step.lower(X).compile()(X)):
        found, heard = heard_by(call)
        assert heard == said
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(np.signbit(one.astype("c8").real), np.signbit(other.astype("c8").real))


def test_callbacks_of_a_donated_argument_hear_its_value():
    step = ap.jit(debug_callback, MESH, [BP], donate_argnums=0)
    x = step(X)
    jax.effects_barrier()
    assert heard_by(lambda: step(x))[1] == [(float(2 * X.sum()),)]


def test_print_shows_a_line_once(capfd):
    def loss(x):
        jax.debug.print("loss {s}", s=x.sum())
        return x

    ap.jit(loss, MESH, [BP])(X).block_until_ready()
    jax.effects_barrier()
    assert capfd.readouterr().out == "loss 496.0\n"


ORDERED = {
    "print": lambda x: (jax.debug.print("{x}", x=x, ordered=True), x)[1],
    "callback": lambda x: (jax.debug.callback(hear, x, ordered=True), x)[1],
    "io": lambda x: io_callback(lambda v: v, like(x), x, ordered=True),
}


@pytest.mark.parametrize("kind", ORDERED)
def test_ordered_callback_is_refused_with_its_line(kind):
    with pytest.raises(ap.ProgramError, match=r"an ordered host callback[\s\S]*test_host_callbacks.py:\d+[\s\S]*try"):
        ap.jit(ORDERED[kind], MESH, [BP]).lower(X)


@pytest.mark.parametrize("program", [debug_callback, pure_callback, in_scan], ids=lambda f: f.__name__)
def test_callback_in_a_file_is_refused_when_it_is_loaded(tmp_path, program):
    path = tmp_path / "callback.mlir"
    path.write_text(jax.jit(program).lower(X).as_text())
    with pytest.raises(ap.ProgramError, match="lives in the process that wrote the module"):
        ap.load(path)


@pytest.mark.parametrize(
    "target",
    ["autopart_host_callback", "autopart_kernel", "xla_python_gpu_callback", "xla_ffi_partitioned_python_cpu_callback"],
)
def test_call_of_another_process_is_refused_whatever_writes_it(tmp_path, target):
    path = tmp_path / "callback.mlir"
    path.write_text(
        f"""func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
        %0 = stablehlo.custom_call @{target}(%a) {{mhlo.backend_config = {{index = 0 : ui64}}, api_version = 4 : i32}}
             : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32> }}"""
    )
    with pytest.raises(ap.ProgramError, match=f"a call of @{target}"):
        ap.load(path)


def test_custom_partitioning_runs_its_unpartitioned_function():
    double = custom_partitioning(lambda x: x * 2)
    double.def_partition(
        partition=lambda mesh, args, result: (mesh, lambda x: x * 2, result, args),
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
        sharding_rule="i j -> i j",
    )
    np.testing.assert_array_equal(ap.jit(lambda x: double(x), MESH, [BP])(X), X * 2)
