"""Does a program of four times the ops take about four times the work? Lines of autopart that run, and elements of
arrays that NumPy goes over, are counted; seconds are for `experiments/growth`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.core.doors.jax_internals import parse_module
from autopart.core.importer import read_module
from autopart.core.passes import IMPORT_PASSES, LayerOrder, Recomputation, run_passes
from autopart.core.passes.layer_order import MOST_ALIKE
from autopart.core.passes.rewriting import Rewriting
from autopart.core.program import Program
from autopart.core.repeats import repeated_layers
from autopart.core.repeats.repeated_layers import _Alike
from autopart.costmodel.compiled.simulator import Simulator
from experiments.growth.families import FAMILIES, SQUARE, WIDTH, X, array

MESH = ap.Mesh({"data": 4, "model": 2}, device="tpu_v3")
TIMES, MOST = 4, 5.0
"""How many times as many ops the larger program has, and how many times the work it may take."""

OF_ARRAYS = ("flatnonzero", "isin", "zeros", "full", "unique", "cumsum", "bincount", "argsort", "concatenate", "arange")
"""What is counted of NumPy."""


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts "lines", "calls" of C functions, and "elements", those of arrays whose methods are called among them."""
    work: Counter[str] = Counter()

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event != "c_call" or "/autopart/" not in frame.f_code.co_filename:
            return
        work["calls"] += 1
        array = getattr(arg, "__self__", None)
        if isinstance(array, np.ndarray):
            work["elements"] += array.size

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if "/autopart/" not in frame.f_code.co_filename:
            return None
        work["lines"] += 1
        return trace

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            work["elements"] += max(np.size(x) for x in (*args[:1], result) if isinstance(x, np.ndarray))
            return result

        return call

    with monkeypatch.context() as patch:
        for name in OF_ARRAYS:
            patch.setattr(np, name, counting(getattr(np, name)))
        before = sys.gettrace(), sys.getprofile()
        sys.settrace(trace)
        sys.setprofile(profile)
        try:
            yield work
        finally:
            sys.settrace(before[0])
            sys.setprofile(before[1])


def lowered(family: str, ops: int, schedule: Any = None) -> ap.Lowered:
    case = FAMILIES[family](ops)
    tactics = [ap.ManualPartition(dict(case.tiled), "data")] if schedule is None else schedule
    return ap.jit(case.fun, MESH, tactics, donate_argnums=case.donated).lower(*case.args)


def module(family: str, ops: int) -> Any:
    case = FAMILIES[family](ops)
    return jax.jit(case.fun, donate_argnums=case.donated).trace(*case.args).lower().compiler_ir("stablehlo")


def imported(family: str, ops: int) -> Program:
    return run_passes(read_module(module(family, ops)), IMPORT_PASSES)[0]


def of_import(family: str, ops: int) -> Callable[[], Any]:
    made = module(family, ops)
    return lambda: run_passes(read_module(made), IMPORT_PASSES)


def of_recomputation(family: str, ops: int) -> Callable[[], Any]:
    program = imported(family, ops)
    return lambda: run_passes(program, [Recomputation()])


def of_lowering(family: str, ops: int) -> Callable[[], Any]:
    case = FAMILIES[family](ops)
    function = ap.jit(case.fun, MESH, [ap.ManualPartition({"x": 0}, "data")], donate_argnums=case.donated)
    return lambda: function.lower(*case.args)


def of_export(family: str, ops: int) -> Callable[[], Any]:
    result = lowered(family, ops)
    return lambda: result.exported


def of_estimate(family: str, ops: int) -> Callable[[], Any]:
    result = lowered(family, ops)
    return lambda: Simulator.of(result.traced.program, MESH).run(result.program)


def of_plan(family: str, ops: int) -> Callable[[], Any]:
    result = lowered(family, ops, [ap.ManualPartition({"params": 0}, "model")])
    return lambda: result.plan


def of_keys(family: str, ops: int) -> Callable[[], Any]:
    case = FAMILIES[family](ops)
    keys = {f"params/{i}": 0 for i in range(len(case.args[0]))}
    function = ap.jit(case.fun, MESH, [ap.ManualPartition(keys, "model")])
    return lambda: function.lower(*case.args)


def of_metadata(family: str, ops: int) -> Callable[[], Any]:
    result = lowered(family, ops)
    return lambda: result.metadata


def of_report(family: str, ops: int) -> Callable[[], Any]:
    from autopart.api.report.where_time_goes import by_class, by_line
    from autopart.costmodel.breakdown import top_rows

    estimate = lowered(family, ops).estimate
    return lambda: (by_class(estimate.simulation), by_line(estimate.simulation), top_rows(estimate.simulation, 50))


@pytest.mark.parametrize(
    ("stage", "family", "small"),
    [
        (of_import, "calls", 480),
        (of_import, "complex_constants", 400),
        (of_import, "slices", 400),
        (of_recomputation, "scans", 400),
        (of_recomputation, "branches", 1200),  # as many cuts as there may be
        (of_recomputation, "training", 800),
        (of_recomputation, "wide", 400),
        (of_lowering, "tied", 400),
        (of_lowering, "training", 400),
        (of_estimate, "indexed_stack", 800),
        (of_export, "branches", 400),
        (of_export, "slices", 400),
        (of_export, "training", 800),
        (of_metadata, "tied", 400),
        (of_plan, "arguments", 400),
        (of_keys, "arguments", 400),
        (of_report, "training", 1600),  # as many rows as a report has
    ],
)
def test_four_times_the_program_is_about_four_times_the_work(stage, family, small, monkeypatch):
    stage(family, small)()
    took: list[Counter[str]] = []
    for ops in (small, TIMES * small):
        run = stage(family, ops)
        with counted(monkeypatch) as work:
            run()
        took.append(work)
    grown = {what: took[1][what] / took[0][what] for what in took[0]}
    assert max(grown.values()) < MOST, grown


def test_scopes_of_a_rewritten_program_are_found_in_one_walk(monkeypatch):
    def elements(ops: int) -> int:
        program = imported("calls", ops)
        rewriting = Rewriting(program)
        rewriting.again(program.op_count - 1, program.operands_of(program.op_count - 1).tolist(), 0, program.op_count)
        with counted(monkeypatch) as work:
            rewriting.program()
        return work["elements"]

    assert elements(4 * 480) < MOST * elements(480)


def test_equal_complex_constants_share_a_spec():
    def fun(z: jax.Array) -> jax.Array:
        for _ in range(20):
            z = z * (1.5 + 2j)
        return z

    shape = array(64, dtype=jnp.complex64)
    program = read_module(jax.jit(fun).lower(shape).compiler_ir("stablehlo"))
    assert sum(spec.kind == "constant" for spec in program.specs) == 1


def test_what_behind_which_ops_read_one_another_is_looked_at_once(monkeypatch):
    def lines(reads: int) -> int:
        def fun(x: jax.Array, at: jax.Array) -> jax.Array:
            for _ in range(reads):
                x = jnp.tanh(x)
            return sum(jax.lax.dynamic_slice(x, (at + i, 0), (1, WIDTH)) for i in range(reads))

        result = ap.jit(fun, MESH, [ap.ManualPartition({"x": 0}, "data")]).lower(X, array(dtype=jnp.int32))
        with counted(monkeypatch) as work:
            _ = result.exported
        return work["lines"]

    assert lines(120) < MOST * lines(30)


def test_a_chain_longer_than_pythons_stack_is_computed_again():
    result = lowered("chain", 3 * sys.getrecursionlimit(), [ap.Recompute()])
    assert result.traced.program.op_count >= 2 * sys.getrecursionlimit()


def test_as_many_donated_arrays_as_arguments_are_tied_in_one_walk(monkeypatch):
    def lines(count: int) -> int:
        def fun(*state: jax.Array) -> list[jax.Array]:
            return [s + 1.0 for s in state]

        function = ap.jit(fun, MESH, [], donate_argnums=tuple(range(count)))
        with counted(monkeypatch) as work:
            traced = function.traced([X] * count, {})
        assert len(traced.program.ties) == count
        return work["lines"]

    assert lines(160) < MOST * lines(40)


def test_chains_beyond_lines_are_found_in_one_walk(monkeypatch):
    layers = 8

    def elements(colours: int) -> int:
        def fun(*of_layers: jax.Array) -> list[jax.Array]:
            read = [jnp.sin(x) for x in of_layers]
            return [jnp.tanh(read[i ^ 1]) for _ in range(colours) for i in range(layers)]

        program = read_module(jax.jit(fun).trace(*[X] * layers).lower().compiler_ir("stablehlo"))
        colour = (np.arange(program.op_count) // layers).astype(np.uint64)
        layer = np.arange(program.op_count, dtype=np.int32) % layers
        chain = np.where(colour == 1, 0, -1).astype(np.int32)
        alike = _Alike.of(program, colour)
        with counted(monkeypatch) as work:
            found, of = alike.beyond_lines(program, chain, np.where(chain >= 0, layer, 0).astype(np.int32))
        assert found[2 * layers :].tolist() == [2 + n // layers for n in range(colours * layers)]
        assert (of[2 * layers :] == layer[2 * layers :] ^ 1).all()
        return work["elements"]

    assert elements(40) < MOST * elements(10)


def test_a_call_like_one_before_is_copied(monkeypatch):
    def imported(calls: int) -> tuple[int, Program]:
        @jax.jit
        def called(x: jax.Array, scale: float) -> jax.Array:
            for _ in range(20):
                x = jnp.tanh(x * scale) + 0.5
            return jax.lax.cond(x[0, 0] > 0, lambda x: x + 1.0, lambda x: x, x)

        def fun(x: jax.Array) -> jax.Array:
            for _ in range(calls):
                x = called(x, 2.0)
            return x

        made = jax.jit(fun).trace(X).lower().compiler_ir("stablehlo")
        with counted(monkeypatch) as work:
            program = read_module(made)
        return work["lines"], program

    few, first = imported(2)
    many, program = imported(12)
    one = (first.op_count - 1) // 2
    assert program.op_count == 1 + 12 * one
    assert program.op_spec[1 + one :].tolist() == program.op_spec[1:-one].tolist()
    assert many - few < 0.2 * 10 * few / 2
    assert len(program.scopes) == 1 + 12 * 2


def test_copied_calls_read_constants_that_became_arguments_whatever_they_are_given():
    table, steps = np.arange(1 << 14, dtype=np.float32), 30
    kind, constant = "tensor<16384xf32>", f'stablehlo.constant dense<"0x{table.tobytes().hex()}">'
    names = ["%x", *(f"%{step}" for step in range(steps))]
    body = "\n".join(f"{b} = stablehlo.add {a}, %c : {kind}" for a, b in pairwise(names))
    module = parse_module(
        f"""module {{
        func.func @main(%x: {kind}) -> ({kind}, {kind}, {kind}, {kind}) {{
          %c = {constant} : {kind}
          %a = call @f(%x) : ({kind}) -> {kind}
          %b = call @f(%a) : ({kind}) -> {kind}
          %d = call @f(%c) : ({kind}) -> {kind}
          %e = call @f(%c) : ({kind}) -> {kind}
          return %a, %b, %d, %e : {kind}, {kind}, {kind}, {kind} }}
        func.func private @f(%x: {kind}) -> {kind} {{
          %c = {constant} : {kind}
          {body}
          return {names[-1]} : {kind} }} }}""".encode(),
        "constants.mlir",
    )
    program = read_module(module, lift=True)
    table_read, given = program.operands[1::2], program.operands[::2].reshape(4, steps)
    assert program.argument_names == ["closed_over/0", "arg0"]
    assert (table_read == 0).all()
    assert given[:, 0].tolist() == [1, program.outputs[0], 0, 0]
    assert (given[:, 1:] == np.arange(2, 2 + 4 * steps).reshape(4, steps)[:, :-1]).all()
    assert program.outputs == [1 + steps * call for call in range(1, 5)]


def test_what_is_alike_more_often_than_layers_have_names_is_no_layer_and_not_looked_at(monkeypatch):
    def fun(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        for name in sorted(params):
            for _ in range(2 * MOST_ALIKE):
                x = jnp.tanh(x)
            x = x @ params[name]
        return x

    def lines_between(*args: Any) -> None:
        raise AssertionError("nobody needs the lines between what is alike")

    params = {str(layer): SQUARE for layer in range(11)}
    made = read_module(jax.jit(fun).trace(params, X).lower().compiler_ir("stablehlo"))
    monkeypatch.setattr(repeated_layers, "lines_between", lines_between)
    assert LayerOrder().apply(made) is made


def test_readers_of_what_many_compare_are_looked_at_once(monkeypatch):
    def elements(compared: int) -> int:
        def fun(at: jax.Array, x: jax.Array) -> jax.Array:
            return sum(jnp.where(at < i, x[i % 8], at + 1.5) for i in range(compared))

        program = ap.jit(fun, MESH, []).lower(array(), X).traced.program
        with counted(monkeypatch) as work:
            Simulator.of(program, MESH)
        return work["elements"]

    assert elements(400) < MOST * elements(100)
