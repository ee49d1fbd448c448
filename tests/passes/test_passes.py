"""Does every pass leave a valid program that computes the same, and is what breaks one caught?"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.base.registry import RegistryError
from autopart.core.importer import read_module
from autopart.core.passes import (
    IMPORT_PASSES,
    PASSES,
    InvalidProgramError,
    Pass,
    PassWarning,
    register_pass,
    run_optional_passes,
    run_passes,
    verify_program,
)
from autopart.core.passes.dead_code import DeadCode
from autopart.core.program import Program
from tests.property.random_programs import RandomProgram

X = jax.ShapeDtypeStruct((8, 4), "float32")
MESH = ap.Mesh({"batch": 4})


def unused(_):
    """Leaves a value to nobody."""


def everything(state, x):
    """A tie, a loop with a dead sum, a branch, a barrier, tags and dead code."""

    def body(i, carried):
        y, lost = carried
        return ap.tag("inside", jnp.tanh(y)) + i, lost + y.sum()

    y, _ = lax.fori_loop(0, 3, body, (x, 0.0))
    y = lax.cond(y[0, 0] > 0, lambda y: y + 1, lambda y: y * 2, y)
    a, b = lax.optimization_barrier((y, x * 3))
    unused(ap.tag("lost", jnp.exp(x)) @ x.T)
    return state + a, {"b": b.sum(0)}


@functools.cache
def read() -> Program:
    """The program before any pass."""
    lowered = jax.jit(everything, donate_argnums=0, keep_unused=True).lower(X, X)
    return read_module(
        lowered.compiler_ir("stablehlo"), argument_names=["state", "x"], output_names=["0", "1/b"], ties={0: 0}
    )


@functools.cache
def program() -> Program:
    return run_passes(read(), ["dead_code"])[0]


def first(kind: str) -> int:
    p = program()
    return next(op for op in range(p.op_count) if p.spec(op).kind == kind)


def with_entry(name: str, index, entry) -> Program:
    array = getattr(program(), name).copy()
    array[index] = entry
    return replace(program(), **{name: array})


def with_kind(kind: str, other: str) -> Program:
    return replace(program(), specs=[replace(s, kind=other) if s.kind == kind else s for s in program().specs])


def with_operand(op: int, position: int, value: int) -> Program:
    return with_entry("operands", program().operand_ptr[op] + position, value)


def with_scope(number: int, **changes) -> Program:
    scopes = list(program().scopes)
    scopes[number] = replace(scopes[number], **changes)
    return replace(program(), scopes=scopes)


def with_owner(kind: str, owner: int | None) -> Program:
    owners = {op: o for op, o in program().owners.items() if owner is not None or op != first(kind)}
    return replace(program(), owners=owners if owner is None else {**owners, first(kind): owner})


def result_of(op: int, position: int = 0) -> int:
    return program().results_of(op)[position]


def scope_of(kind: str) -> int:
    return next(n for n, s in enumerate(program().scopes) if s.kind == kind)


def reader_of(value: int) -> int:
    """An op, and no carry, that reads the value."""
    p = program()
    return next(o for o in range(p.op_count) if value in p.operands_of(o) and p.spec(o).kind != "carry")


def in_scope(kind: str) -> int:
    """The first op of a scope whose result has the type of `x`."""
    p, scope = program(), program().scopes[scope_of(kind)]
    x = p.type_of(p.arguments[1])
    return next(o for o in range(scope.start, scope.end) if p.spec(o).results[:1] == (x,))


def reader_after(kind: str) -> tuple[int, int]:
    """An op after a scope of this kind, outside of it, and the position of an operand of it with the type of `x`."""
    p = program()
    x = p.type_of(p.arguments[1])
    for op in range(p.scopes[scope_of(kind)].end, p.op_count):
        if p.op_scope[op] == 0 and p.spec(op).kind not in ("join", "carry") and x in p.spec(op).operands:
            return op, p.spec(op).operands.index(x)
    raise AssertionError("nothing reads an x there")


def carry_of_x() -> int:
    p = program()
    x = p.type_of(p.arguments[1])
    return next(o for o in range(p.op_count) if p.spec(o).kind == "carry" and p.spec(o).operands[0] == x)


BROKEN = {
    "op_scope is short": (lambda: replace(program(), op_scope=program().op_scope[:-1]), "op_scope has"),
    "operand_ptr is short": (lambda: replace(program(), operand_ptr=program().operand_ptr[:-1]), "operand_ptr has"),
    "operand_ptr falls": (lambda: with_entry("operand_ptr", 5, 0), "operand_ptr does not rise"),
    "operand_ptr starts late": (lambda: with_entry("operand_ptr", 0, 1), "operand_ptr does not rise"),
    "result_ptr falls": (lambda: with_entry("result_ptr", 3, 99999), "result_ptr does not rise"),
    "operands are left over": (lambda: replace(program(), operands=program().operands[:-1]), "operand_ptr ends at"),
    "no such spec": (lambda: with_entry("op_spec", 4, 9999), "op_spec.4. is 9999"),
    "no such value": (lambda: with_entry("operands", 2, 9999), "operands.2. is 9999"),
    "negative value": (lambda: with_entry("operands", 2, -1), "operands.2. is -1"),
    "no such scope": (lambda: with_entry("op_scope", 4, 99), "op_scope.4. is 99"),
    "another spec": (lambda: with_entry("op_spec", first("while"), 0), "unlike its spec"),
    "source of another program": (lambda: replace(program(), source=read().source), "its source is of"),
    "operand of another type": (lambda: with_operand(first("tanh"), 0, program().outputs[1]), "as another type"),
    "root ends early": (lambda: with_scope(0, end=3), "not the whole program"),
    "no root": (lambda: replace(program(), scopes=[]), "op_scope.0. is 0, of 0"),
    "scope in itself": (lambda: with_scope(1, parent=1), "not within a scope before it"),
    "scope beyond its parent": (lambda: with_scope(1, end=10**6), "not within a scope before it"),
    "scopes overlap": (lambda: with_scope(2, start=program().scopes[1].start), "or in the scope before it"),
    "scope before its op": (lambda: with_scope(2, op=program().op_count - 1), "begins before its op"),
    "runs a negative number of times": (lambda: with_scope(2, trips=-1), "runs -1 times"),
    "op in another scope": (lambda: with_entry("op_scope", first("tanh"), 0), "stands in scope"),
    "scope of no loop": (lambda: with_scope(1, op=1), r"op \d+ \(argument\) owns condition"),
    "loop with two bodies": (lambda: with_scope(1, kind="body"), "owns body, body"),
    "loop without a condition op": (
        lambda: with_kind("condition", "custom_call"),
        "does not end in a condition op",
    ),
    "carry without an owner": (lambda: with_owner("carry", None), "owners are given for"),
    "join of a loop": (lambda: with_owner("join", first("while")), "as its case"),
    "carry of itself": (lambda: with_owner("carry", first("carry")), "as its while"),
    "owner that is no op": (lambda: with_owner("carry", -5), "as its while"),
    "barrier left out": (lambda: replace(program(), barriers=[]), "barriers are not"),
    "barrier of another op": (lambda: replace(program(), barriers=[range(2, 4)]), "barriers are not"),
    "arguments in another order": (lambda: replace(program(), arguments=[1, 0]), "not its first ops"),
    "an argument is missing": (lambda: replace(program(), arguments=[0]), "not its first ops"),
    "a name is missing": (lambda: replace(program(), argument_names=["state"]), "1 argument names for 2"),
    "an output has no name": (lambda: replace(program(), output_names=["0"]), "1 output names for 2"),
    "two arguments of one name": (lambda: replace(program(), argument_names=["x", "x"]), "have one name"),
    "no such output": (lambda: replace(program(), outputs=[0, 9999]), "outputs.1. is 9999"),
    "no such donated argument": (lambda: replace(program(), donated=frozenset({7})), "donated.0. is 7"),
    "tie to another output": (lambda: with_operand(0, 0, 1), "output that it is tied to"),
    "tie that is not read": (lambda: replace(program(), ties={}), "output that it is tied to"),
    "argument tied twice": (lambda: replace(program(), ties={0: 0, 1: 0}), "tied twice"),
    "tag of no value": (lambda: replace(program(), tags={"inside": [9999]}), "is 9999"),
    "tag of another op": (lambda: replace(program(), tags={"inside": [0]}), "carries none"),
    "read before it is defined": (
        lambda: with_operand(first("tanh"), 0, result_of(first("tag"))),
        "which is not defined there",
    ),
    "read outside of its loop": (
        lambda: with_operand(*reader_after("body"), result_of(in_scope("body"))),
        "which is not defined there",
    ),
    "read outside of its branch": (
        lambda: with_operand(*reader_after("branch"), result_of(in_scope("branch"))),
        "which is not defined there",
    ),
    "carried value read after its loop": (
        lambda: with_operand(*reader_after("body"), result_of(carry_of_x())),
        "which is not defined there",
    ),
    "result of a loop read inside it": (
        lambda: with_operand(first("tanh"), 0, result_of(carry_of_x(), 1)),
        "which is not defined there",
    ),
    "output of a loop's body": (
        lambda: replace(program(), outputs=[program().outputs[0], result_of(in_scope("body"))]),
        "an output reads",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_program_is_refused_with_what_is_wrong(case):
    broken, says = BROKEN[case]
    with pytest.raises(InvalidProgramError, match=says):
        verify_program(broken())


@pytest.mark.parametrize("seed", range(12))
def test_imported_programs_are_valid(seed):
    random = RandomProgram(seed)
    low = ap.jit(random, MESH).lower(random.inputs())
    verify_program(low.traced.program)


# ---- every pass that is registered


@pytest.mark.parametrize("name", PASSES)
def test_pass_keeps_names_ties_tags_and_source_lines(name):
    before = read()
    after, (report,) = run_passes(before, [name])
    verify_program(after)
    assert (after.argument_names, after.output_names) == (["state", "x"], ["0", "1/b"])
    assert (after.ties, after.donated) == ({0: 0}, before.donated)
    assert set(after.tags) == {"inside", "lost"}
    assert [after.spec(int(after.value_op[v])).kind for v in after.tags["inside"]] == ["tag"]
    (tanh,) = (op for op in range(after.op_count) if after.spec(op).kind == "tanh")
    assert "test_passes.py" in after.where(tanh)
    assert (report.name, report.ops_before, report.ops_after) == (repr(PASSES[name]()), before.op_count, after.op_count)
    assert report.seconds >= 0


@pytest.mark.parametrize("name", PASSES)
def test_pass_leaves_its_input_as_it_is(name):
    before = read()
    fingerprint = before.fingerprint
    PASSES[name]().apply(before)
    verify_program(before)
    assert dataclasses.replace(before).fingerprint == fingerprint


@pytest.mark.parametrize("name", PASSES)
def test_program_after_a_pass_computes_the_same_on_devices(name):
    state, x = (np.linspace(low, 1, 32, dtype="float32").reshape(8, 4) for low in (0, -1))
    wanted = everything(state, x)
    tactic = ap.ManualPartition({"x": 0, "inside": 0}, axis="batch")
    found = ap.jit(everything, MESH, [tactic], passes=[name, name])(state, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, wanted)


@pytest.mark.parametrize("name", PASSES)
def test_instances_of_a_pass_keep_a_program_valid(name):
    for instance in type(PASSES[name]()).instances(program()):
        run_passes(program(), [instance])


# ---- the runner


@dataclass(frozen=True)
class Renaming(Pass):
    """Breaks what a caller sees."""

    def apply(self, program):
        return replace(program, argument_names=["state", "y"])


@dataclass(frozen=True)
class Breaking(Pass):
    """Leaves a program that is none."""

    def apply(self, program):
        return replace(program, outputs=[*program.outputs[:-1], 10**6])


@dataclass(frozen=True)
class Swapped(Pass):
    """tanh for sine: a pass that the result shows."""

    def apply(self, program):
        return replace(program, specs=[replace(s, kind="sine") if s.kind == "tanh" else s for s in program.specs])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [(Renaming(), "names of the arguments are others"), (Breaking(), "outputs.1. is 1000000")],
    ids=repr,
)
def test_pass_that_breaks_the_program_is_named(wrong, says):
    with pytest.raises(InvalidProgramError, match=rf"(?s){says}.*{type(wrong).__name__}\(\) \(pass 2 of 2\)"):
        run_passes(read(), ["dead_code", wrong])


def test_program_that_is_broken_before_the_first_pass_is_refused():
    with pytest.raises(InvalidProgramError, match="barriers"):
        run_passes(replace(read(), barriers=[]), ["dead_code"])


def test_each_pass_is_reported_and_its_program_can_be_printed():
    seen = []
    _, reports = run_passes(read(), [DeadCode(), Swapped()], lambda one, p: seen.append((one, p.op_count)))
    assert [r.name for r in reports] == ["DeadCode()", "Swapped()"]
    assert seen == [(DeadCode(), reports[0].ops_after), (Swapped(), reports[1].ops_after)]
    assert reports[0].ops_before == read().op_count > reports[0].ops_after == reports[1].ops_before
    assert "DeadCode()" in str(reports[0])


def test_passes_of_a_schedule_run_after_the_imports_own_and_before_the_tactics():
    low = ap.jit(everything, MESH, [ap.ManualPartition({"x": 0}, axis="batch")], passes=[Swapped()]).lower(X, X)
    assert [r.name for r in low.passes] == [
        "DefaultGenerators(platform='cpu')",
        *map(repr, IMPORT_PASSES),
        "Swapped()",
    ]
    text = low.as_text("program")
    assert "sine(" in text
    assert "tanh(" not in text
    assert "sine(" in low.as_text("core")


def test_passes_run_over_loaded_files_too(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text("func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {\n"
                    "%d = stablehlo.sine %x : tensor<8xf32>\n%y = stablehlo.tanh %x : tensor<8xf32>\n"
                    "return %y : tensor<8xf32> }")  # fmt: skip
    loaded = ap.load(path, argument_names=["x"])
    low = ap.jit(loaded, MESH, passes=[Swapped()]).lower()
    assert [r.name for r in low.passes] == [*map(repr, IMPORT_PASSES), "Swapped()"]
    assert [(r.name, r.ops_before, r.ops_after) for r in low.passes if r.ops_before != r.ops_after] == [
        ("DeadCode()", 3, 2)
    ]
    assert low.as_text("program") == (
        "func @main(%x: tensor<8xf32>) {\n  %1 = sine(%x) : tensor<8xf32>\n  return %1\n}"
    )
    assert "tanh" in ap.jit(loaded, MESH).lower().as_text("program")


def test_program_text_shows_regions_as_they_nest():
    def fun(x):
        return lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y), x)

    assert (
        ap.jit(fun, MESH).lower(X).as_text("program")
        == """\
func @main(%x: tensor<8x4xf32>) {
  %1 = constant 0 : tensor<i32>
  while() {
    %2, %3 = carry(%1, %10) : tensor<i32>, tensor<i32>
    %4, %5 = carry(%x, %8) : tensor<8x4xf32>, tensor<8x4xf32>
    condition {
      %6 = constant 3 : tensor<i32>
      %7 = compare(%2, %6) {comparison_direction=LT} : tensor<i1>
      condition(%7)
    }
    body trips=3 {
      %8 = tanh(%4) : tensor<8x4xf32>
      %9 = constant 1 : tensor<i32>
      %10 = add(%2, %9) : tensor<i32>
    }
  }
  return %5
}"""
    )


def test_unknown_pass_is_answered_with_the_known_ones():
    with pytest.raises(ap.UnknownNameError, match="dead_code"):
        ap.jit(everything, MESH, passes=["dead_cod"])


@pytest.mark.parametrize("passes", ["dead_code", [3], [DeadCode], None])
def test_what_is_no_list_of_passes_is_refused(passes):
    with pytest.raises(ap.ArgumentError, match="passes is"):
        ap.jit(everything, MESH, passes=passes)


def test_name_of_a_pass_is_taken_once():
    with pytest.raises(RegistryError, match='pass "dead_code" is registered already'):
        register_pass("dead_code")(Renaming)


# ---- passes that nobody asked for


@dataclass(frozen=True)
class Raising(Pass):
    """Fails as a mistake does."""

    def apply(self, program: Program) -> Program:
        return replace(program, outputs=[program.outputs[program.op_count]])


@dataclass(frozen=True)
class Breaking(Pass):
    """Makes a program that its verifier refuses."""

    def apply(self, program: Program) -> Program:
        return replace(program, op_spec=program.op_spec[:-1])


@dataclass(frozen=True)
class Renaming(Pass):
    """Makes a valid program that callers would not know."""

    def apply(self, program: Program) -> Program:
        return replace(program, argument_names=["state", "y"])


@pytest.mark.parametrize(
    ("failing", "says"),
    [
        (Raising(), r"IndexError: .*test_passes.py:\d+"),
        (Breaking(), "op_scope has"),
        (Renaming(), "names of the arguments"),
    ],
)
def test_an_optional_pass_that_fails_is_left_out_and_named_once(failing, says):
    before = read()
    with pytest.warns(PassWarning, match=says) as seen:
        after, reports = run_optional_passes(before, [failing, DeadCode(), failing])
    assert len(seen) == 1
    assert str(seen[0].message).count(repr(failing)) == 1
    assert after.op_count == run_passes(before, [DeadCode()])[0].op_count
    assert [bool(report.left_out) for report in reports] == [True, False, True]
    assert "left out" in str(reports[0])


def test_a_function_is_lowered_without_a_pass_that_fails(monkeypatch):
    monkeypatch.setattr("autopart.api.tracing.trace.IMPORT_PASSES", (Raising(), *IMPORT_PASSES))
    with pytest.warns(ap.PassWarning, match="Please report"):
        lowered = ap.jit(everything, MESH, [ap.ManualPartition({"x": 0}, axis="batch")]).lower(X, X)
    assert "left out" in str(lowered.passes[1])


def test_a_pass_that_was_asked_for_may_fail():
    with pytest.raises(IndexError):
        run_passes(read(), [Raising()])
