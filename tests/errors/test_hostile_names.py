"""Does a name that a stranger chose stay a name: in generated code, in errors, in text forms, in lines for readers?"""

from __future__ import annotations

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.base.quoting import one_line, quoted
from autopart.core.table.actions import Atomic, Propagate, Tile
from autopart.core.table.partitioning import Partitioning
from autopart.search.progress import ProgressLine

NAMES = [
    'say "hi"',
    "it's",
    "x': 0}, axis='a'), print('PWNED'), dict({'",
    'x": 0}, axis="a"), print("PWNED"), dict({"',
    "two\nlines",
    "forged\n  why  nothing",
    "comma, dim",
    "a>b<c",
    "{braces} {0} {x!r} %s %(x)s",
    "back\\slash\\",
    "\\n",
    "é ß 漢字 😀",
    "null\x00byte",
    "\x1b[31mred\r",
    "\u202eright to left\u2028",
    "glob*?[a]",
    "[",
    "%1",
    "%0",
    "# comment",
    "outputs",
    '"""',
    "a/b",
    "*",
]
AXES = [
    'say "hi"',
    "it's",
    "two\nlines",
    "a, 0",
    "a>b",
    "{x}",
    "null\x00",
    "*",
    'a"), print("PWNED"',
]


def mlir_string(text: str) -> str:
    return '"' + "".join(c if c.isalnum() and c.isascii() else f"\\{b:02X}" for c in text for b in c.encode()) + '"'


def program(tmp_path, *names: str) -> ap.LoadedProgram:
    """The sum of the first and the last of its arguments."""
    kind = "tensor<8x8xf32>"
    arguments = ", ".join(f"%a{i}: {kind} loc({mlir_string(n)})" for i, n in enumerate(names))
    path = tmp_path / "m.mlir"
    body = f"%s = stablehlo.add %a0, %a{len(names) - 1} : {kind} return %s : {kind}"
    path.write_text(f"func.func @main({arguments}) -> {kind} {{ {body} }}")
    return ap.load(path)


class TileByNumber:
    """A tactic that does not need names."""

    def __init__(self, name: str):
        self.name = name

    def act(self, partitioning, context):
        axis = partitioning.mesh.axis_names[0]
        actions = [Tile(0, 1, axis), Atomic(2, axis), Propagate(axis)]
        partitioning.apply_all(actions)
        return ap.TacticResult(actions)


def replayed(lowered: ap.Lowered, source, mesh) -> ap.Lowered:
    """What the generated code does; it may use `ap` and nothing else."""
    scope = {"ap": ap, "__builtins__": {}}
    exec(lowered.metadata.as_schedule(), scope)
    return ap.jit(source, mesh, scope["schedule"]).lower()


def actions(lowered: ap.Lowered) -> list:
    return sorted(d for t in lowered.metadata.tactics for d in t.decisions)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_generated_code_takes_the_same_actions_whatever_an_argument_is_called(tmp_path, name):
    source, mesh = program(tmp_path, name, "other", "third"), ap.Mesh({"a": 4})
    assert source.argument_names[0] == name
    lowered = ap.jit(source, mesh, [TileByNumber(f"T {name}")]).lower()
    again = replayed(lowered, source, mesh)
    assert actions(again) == actions(lowered)
    assert again.metadata.in_specs == lowered.metadata.in_specs
    assert ap.Metadata.from_json(lowered.metadata.to_json()) == lowered.metadata


@pytest.mark.parametrize("axis", AXES, ids=ascii)
def test_generated_code_takes_the_same_actions_whatever_an_axis_is_called(tmp_path, axis):
    source, mesh = program(tmp_path, "x", "y", "z"), ap.Mesh({axis: 4})
    lowered = ap.jit(source, mesh, [TileByNumber("T")]).lower()
    assert len(actions(lowered)) == 3
    assert lowered.metadata.as_schedule().replace("\n", "").isprintable()
    assert actions(replayed(lowered, source, mesh)) == actions(lowered)


@pytest.mark.parametrize("axis", ["back\\slash", "é", "日", "a\u202eb", "\\n"], ids=ascii)
@pytest.mark.parametrize("of_jax", [False, True], ids=["ap.Mesh", "jax's mesh"])
def test_an_axis_that_xla_cannot_be_told_of_is_refused(axis, of_jax):
    def mesh():
        return jax.sharding.Mesh(np.array(jax.devices()[:4]), (axis,)) if of_jax else ap.Mesh({axis: 4})

    with pytest.raises(ap.MeshError, match="a mesh axis cannot be called") as error:
        ap.jit(lambda x: x, mesh())
    assert "ASCII" in error.value.hint


def test_a_name_above_others_is_not_confused_with_them(tmp_path):
    source, mesh = program(tmp_path, "x", "x/0", "x/1"), ap.Mesh({"a": 4})
    lowered = ap.jit(source, mesh, [TileByNumber("T")]).lower()
    assert actions(replayed(lowered, source, mesh)) == actions(lowered)


def test_names_that_differ_in_numbers_still_become_a_glob():
    def add(p):
        return [v * 2 for v in p]

    p = [jax.ShapeDtypeStruct((8, 8), "float32")] * 3
    lowered = ap.jit(add, ap.Mesh({"a": 4}), [ap.ManualPartition({"p": 0}, axis="a")]).lower(p)
    assert 'ap.ManualPartition({"p/*": 0}, axis="a")' in lowered.metadata.as_schedule()


@pytest.mark.parametrize("name", [n for n in NAMES if n != "outputs"], ids=ascii)
def test_a_tag_can_be_named_whatever_it_is_called(name):
    def f(x):
        return ap.tag(name, x * 2) + 1

    key = "".join(f"[{c}]" if c in "*?[" else c for c in name)
    if name.startswith("%"):
        key = name.replace("%", "[%]")
    low = ap.jit(f, ap.Mesh({"a": 4}), [ap.ManualPartition({key: 0}, axis="a")]).lower(jnp.ones((8, 8)))
    assert len(low.metadata.tactics[0].decisions) == 2


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_adds_no_line_to_what_is_printed(tmp_path, name):
    source, mesh = program(tmp_path, name, "other", "third"), ap.Mesh({"a": 4}, device="tpu_v3")
    plain = program(tmp_path, "name", "other", "third")
    shown = []
    for each in (source, plain):
        low = ap.jit(each, mesh, [TileByNumber("T")]).lower()
        with pytest.raises(ap.TileError) as error:
            low_tile(each, mesh)
        shown.append([low.as_text("core"), low.as_text("hlo"), str(low.metadata)])
        shown[-1] += [str(error.value), *low.metadata.tactics[0].actions, str(low.estimate.top(4))]
    for hostile, harmless in zip(*shown, strict=True):
        assert len(hostile.splitlines()) == len(harmless.splitlines())
        assert hostile.replace("\n", "").isprintable()


def low_tile(source, mesh):
    Partitioning(source.traced.program, mesh).tile(0, 7, "a")


def test_a_name_adds_no_line_to_an_error():
    error = ap.TileError("cannot tile x\n  why  because", by="a\nb", hint="c\rd")
    assert str(error).splitlines() == ["cannot tile x\\n  why  because", "  by   a\\nb", "  try  c\\rd"]


def test_a_name_adds_no_line_to_the_progress_line():
    stream = io.StringIO()
    assert "\n" not in ProgressLine("a\nbest 0 s", stream)._title


@pytest.mark.parametrize("text", [*NAMES, "\ud800", "\t\v\f", "\x7f\x80\xa0\ufeff"], ids=ascii)
def test_quoted_text_is_a_literal_of_itself(text):
    assert eval(quoted(text), {"__builtins__": {}}) == text
    assert quoted(text).isprintable()
    assert one_line(text).isprintable()


def test_computed_values_agree_under_a_hostile_name(tmp_path):
    source, mesh = program(tmp_path, NAMES[2], "y", "z"), ap.Mesh({"a": 4})
    x = np.arange(64, dtype="f4").reshape(8, 8)
    step = ap.jit(source, mesh, [TileByNumber("T")])
    np.testing.assert_array_equal(step(x, x, x)[0], 2 * x)
