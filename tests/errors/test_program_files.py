"""Is a program file that is too large, too deep, recursive or contradictory refused within the stated limits?"""

from __future__ import annotations

import gzip
import itertools
import sys
import time

import pytest

import autopart as ap
from autopart.base.limits import Gauge
from autopart.core.doors.jax_internals import parse_module
from autopart.core.importer.call_graph import CallGraph
from autopart.core.importer.template import Block, Op
from autopart.core.importer.text_scan import check_text, needs_child

T = "tensor<4xf32>"


def function(name: str, body: str) -> str:
    return f"func.func {'public' if name == 'main' else 'private'} @{name}(%a: {T}) -> {T} {{ {body} }}\n"


def calls(levels: int, each: int) -> str:
    """Functions of which each calls the next `each` times."""
    names = ["main", *(f"f{i}" for i in range(1, levels))]
    text = ""
    for name, callee in itertools.pairwise(names):
        body, value = "", "%a"
        for i in range(each):
            body += f"%{i} = call @{callee}({value}) : ({T}) -> {T} "
            value = f"%{i}"
        text += function(name, f"{body} return {value} : {T}")
    return text + function(names[-1], f"%0 = stablehlo.add %a, %a : {T} return %0 : {T}")


def ifs(depth: int) -> str:
    """Branches inside branches."""
    opened = " ".join(f'%x{i} = "stablehlo.if"(%p) ({{' for i in range(depth))
    closed = "".join(
        f"}}, {{ stablehlo.return %a : {T} }}) : (tensor<i1>) -> {T} "
        + (f"stablehlo.return %x{i} : {T} " if i else f"return %x0 : {T} ")
        for i in reversed(range(depth))
    )
    return f"func.func @main(%p: tensor<i1>, %a: {T}) -> {T} {{ {opened} stablehlo.return %a : {T} {closed} }}"


def aliased(levels: int) -> str:
    """An attribute of 2^levels numbers."""
    lines = ["#a0 = 1 : i64", *(f"#a{i + 1} = [#a{i}, #a{i}]" for i in range(levels))]
    call = f'%0 = stablehlo.custom_call @f(%a) {{backend_config = "", z = #a{levels}}} : ({T}) -> {T} return %0 : {T}'
    return "\n".join(lines) + "\nmodule { " + function("main", call) + "}"


def broadcasts(count: int) -> str:
    """A chain of broadcasts of a scalar, each of which is computed anew for its use."""
    body = "%b0 = stablehlo.constant dense<1.0> : tensor<f32> "
    for i in range(count):
        body += f"%b{i + 1} = stablehlo.broadcast_in_dim %b{i}, dims = [] : (tensor<f32>) -> tensor<f32> "
    body += f"%z = stablehlo.broadcast_in_dim %b{count}, dims = [] : (tensor<f32>) -> {T} "
    return function("main", f"{body} %q = stablehlo.add %z, %a : {T} return %q : {T}")


def donating(alias: str, other: str = "") -> str:
    """Two arguments with aliases; output 0 is f32[4], output 1 f32[2]."""
    second = f" {{tf.aliasing_output = {other}}}" if other else ""
    return (
        f"func.func @main(%a: {T} {{tf.aliasing_output = {alias}}}, %b: {T}{second}) -> ({T}, tensor<2xf32>) {{"
        f"%0 = stablehlo.slice %a [0:2] : ({T}) -> tensor<2xf32> return %a, %0 : {T}, tensor<2xf32> }}"
    )


CALL_MAIN, CALL_G = (f"%0 = call @{n}(%a) : ({T}) -> {T} return %0 : {T}" for n in ("main", "g"))
ADDED = f"%0 = arith.addf %a, %a : {T} return %0 : {T}"
REFUSED = {
    "40 doublings": (calls(41, 2), r"\d,\d{3},\d{3},\d{3},\d{3} ops once its calls are inlined"),
    "200 doublings within the depth": (calls(90, 9), r"about 10\^\d\d ops"),
    "recursion": (function("main", CALL_MAIN), r"@main calls itself[\s\S]*@main -> @main"),
    "mutual recursion": (function("main", CALL_G) + function("g", CALL_MAIN), r"@main -> @g -> @main"),
    "900 calls": (calls(900, 1), "nests calls more than 100 deep"),
    "300 branches": (ifs(300), "nests regions more than 100 deep"),
    "3,000 branches": (ifs(3000), r"nests \(\) 3000 deep"),
    "100,000 brackets": ("[" * 100_000, r"nests \[\] 100000 deep"),
    "60 aliases": (aliased(60), "alias #a18 stands for too much"),
    "3,000 clones": (broadcasts(3000), "Python's stack"),
    "two blocks": (function("main", f"return %a : {T}\n ^b: return %a : {T}"), "@main has 2 blocks"),
    "no body": (f"func.func private @main({T}) -> {T}", "@main has no body"),
    "another dialect": (function("main", ADDED), r"the op arith.addf"),
    "nothing": ("", "no function"),
    "alias out of range": (donating("5 : i32"), r"output 5[\s\S]*has 2 outputs"),
    "negative alias": (donating("-1 : i32"), "output -1"),
    "alias in words": (donating('"0"'), 'tf.aliasing_output of argument 0 is "0"'),
    "alias of another shape": (donating("1 : i32"), r"the output is f32\[2\], the argument f32\[4\]"),
    "two aliases of an output": (donating("0 : i32", "0 : i32"), "output 0 is tied twice"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("packed", [False, True], ids=["text", "gzip"])
def test_a_program_that_cannot_be_is_refused_at_once(tmp_path, text, message, packed):
    path = tmp_path / "m.mlir"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    start = time.perf_counter()
    with pytest.raises(ap.ProgramError, match=message):
        ap.load(path)
    assert time.perf_counter() - start < 10


ACCEPTED = {
    "12 doublings": (calls(13, 2), 4097),
    "90 calls": (calls(90, 1), 2),
    "90 branches": (ifs(90), 182),
    "10 aliases": (aliased(10), 2),
    "50 clones": (broadcasts(50), 54),
    "donated": (donating("0 : i32"), 3),
}


@pytest.mark.parametrize(("text", "ops"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_program_within_the_limits_is_loaded_and_lowered(tmp_path, text, ops):
    path = tmp_path / "m.mlir"
    path.write_text(text)
    assert not needs_child(text.encode())
    program = ap.load(path)
    assert program.traced.program.op_count == ops
    ap.jit(program, ap.Mesh({"a": 2}), [ap.ManualPartition({"*": ap.FIRST_DIVISIBLE_DIM}, axis="a")]).lower()


LIMITS = {
    "max_ops": (ap.Limits(max_ops=100), calls(13, 2)),
    "max_bytes": (ap.Limits(max_bytes=100), calls(13, 2)),
    "max_depth": (ap.Limits(max_depth=5), calls(13, 2)),
    "max_seconds": (ap.Limits(max_seconds=1e-9), calls(13, 2)),
}


@pytest.mark.parametrize(("limits", "text"), LIMITS.values(), ids=LIMITS)
def test_each_limit_holds_and_is_named_by_its_error(tmp_path, request, limits, text):
    path = tmp_path / "m.mlir"
    path.write_text(text)
    with pytest.raises(ap.ProgramError, match=rf"ap\.Limits\({request.node.callspec.id}=\.\.\.\)"):
        ap.load(path, limits=limits)


@pytest.mark.parametrize(
    "wrong", [{"max_ops": 0}, {"max_bytes": -1}, {"max_depth": 1.5}, {"max_seconds": float("nan")}]
)
def test_a_limit_that_is_none_is_an_error(wrong):
    with pytest.raises(ap.ArgumentError, match=f"Limits: {next(iter(wrong))} is"):
        ap.Limits(**wrong)


def test_a_gzip_bomb_is_not_unpacked(tmp_path):
    path = tmp_path / "m.mlir.gz"
    path.write_bytes(gzip.compress(b" " * 100_000_000, 1))
    with pytest.raises(ap.ProgramError, match="more than 1,000,000 bytes once unpacked"):
        ap.load(path, limits=ap.Limits(max_bytes=1_000_000))


@pytest.mark.parametrize("name", [".", "missing.mlir", "m.mlir/below", "null\0byte"])
def test_a_path_that_cannot_be_read_is_an_error(tmp_path, name):
    (tmp_path / "m.mlir").write_text("")
    with pytest.raises(ap.ProgramError, match="cannot be read"):
        ap.load(tmp_path / name)


def damaged_gzip() -> dict[str, bytes]:
    whole = gzip.compress(calls(13, 2).encode(), mtime=0)
    return {
        "cut": whole[: len(whole) // 2],
        "corrupt": whole[:40] + b"zzzz" + whole[44:],
        "checksum": whole[:-8] + bytes(8),
    }


@pytest.mark.parametrize("data", damaged_gzip().values(), ids=damaged_gzip())
def test_a_damaged_gzip_is_an_error(tmp_path, data):
    path = tmp_path / "m.mlir.gz"
    path.write_bytes(data)
    with pytest.raises(ap.ProgramError, match="damaged gzip"):
        ap.load(path)


SETTINGS = {
    "output -1": ({"ties": {-1: 0}}, "ties is {-1: 0}"),
    "argument 7": ({"ties": {0: 7}}, "argument 7"),
    "argument twice": ({"ties": {0: 1, 1: 1}}, "argument 1 is tied twice|cannot be the next value"),
    "other shape": ({"ties": {1: 0}}, "cannot be the next value"),
    "word": ({"ties": "x"}, "ties is 'x'"),
    "named": ({"ties": {"a": 0}}, "ties is {'a': 0}"),
    "too few names": ({"argument_names": ["a"]}, "1 argument names for a program of 2"),
    "numbers": ({"argument_names": [1, 2]}, "a list of names"),
    "letters": ({"argument_names": "ab"}, "a list of names"),
    "empty name": ({"argument_names": ["", "b"]}, "a list of names"),
    "one name twice": ({"argument_names": ["a", "a"]}, "two arguments are called 'a'"),
}


@pytest.mark.parametrize(("settings", "message"), SETTINGS.values(), ids=SETTINGS)
def test_names_and_ties_that_do_not_fit_are_errors(tmp_path, settings, message):
    path = tmp_path / "m.mlir"
    path.write_text(donating("0 : i32"))
    with pytest.raises((ap.ProgramError, ap.ArgumentError), match=message):
        ap.load(path, **settings)


def test_arguments_of_one_location_get_names_of_their_own(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(f'func.func @main(%a: {T} loc("x"), %b: {T} loc("x")) -> {T} {{ return %a : {T} }}')
    assert ap.load(path).argument_names == ["x", "x_1"]


def test_text_that_would_abort_python_is_an_error(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text('func.func @"a\\FF"() { return } func.func @"a\\FF"() { return }')
    with pytest.raises(ap.ProgramError, match="SIGABRT"):
        ap.load(path)


def test_binary_in_a_string_is_loaded_by_way_of_a_child(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(
        function(
            "main", f'%0 = stablehlo.custom_call @f(%a) {{backend_config = "\\FF"}} : ({T}) -> {T} return %0 : {T}'
        )
    )
    assert needs_child(path.read_bytes())
    assert ap.load(path).traced.program.op_count == ap.load(path, trusted=True).traced.program.op_count == 2


def test_counting_is_exact_and_needs_no_inlining():
    def template(name: str) -> Block:
        level = int(name)
        op = Op("call", -1, [], [], None, callee=str(level + 1))
        return Block([], [op, op] if level < 90 else [])

    assert CallGraph(template, Gauge(ap.Limits())).steps("0") == 2**91 - 2


def test_brackets_in_strings_comments_and_arrows_do_not_count():
    text = f'// {"(" * 999}\nmodule attributes {{x.y = "{"[" * 999}"}} {{ {calls(2, 1)} }}' + " // ->" * 999
    check_text(text.encode(), ap.Limits())
    with pytest.raises(ap.ProgramError, match="nests"):
        check_text((">" * 99 + "(" * 999).encode(), ap.Limits())


def test_an_ordinary_module_in_generic_form_has_no_suspicious_aliases():
    text = parse_module(aliased(8)).operation.get_asm(print_generic_op_form=True, enable_debug_info=True)
    check_text(text.encode(), ap.Limits())


def test_loading_raises_no_recursion_error_on_a_deep_stack(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(ifs(90))

    def deeper(levels: int) -> None:
        if levels:
            deeper(levels - 1)
        else:
            with pytest.raises(ap.ProgramError, match="Python's stack"):
                ap.load(path)

    deeper(sys.getrecursionlimit() - 250)
