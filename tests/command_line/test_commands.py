"""Does every subcommand do what its help says, with its exit code, as text and as JSON?"""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import click
import pytest

import autopart as ap
from autopart.cli.main import autopart, main

MODULE = """
func.func @main(%x: tensor<16x64xf32> loc("x"), %w: tensor<64x64xf32> loc("w")) -> tensor<16x64xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
  %1 = stablehlo.tanh %0 : tensor<16x64xf32>
  return %1 : tensor<16x64xf32>
}
"""

TRAIN = """
import jax
import jax.numpy as jnp
import autopart as ap


def step(params, x):
    return [w - 0.1 * g for w, g in zip(params, jax.grad(lambda p: jnp.tanh(x @ p[0] @ p[1]).sum())(params))]


def example():
    square = jax.ShapeDtypeStruct((64, 64), "float32")
    return step, ([square, square], square), {"donate_argnums": 0}


def bare():
    return step, ([jnp.ones((8, 8)), jnp.ones((8, 8))], jnp.ones((8, 8)))


def wrong():
    return step


def half_not_finite():
    return lambda x, v: (jnp.log(x) + v, jnp.sqrt(v - 9)), (jnp.arange(-8.0, 8.0), jnp.ones(16))


def none_finite():
    return lambda x: (jnp.log(x), x.sum() / 0), (-jnp.ones(16),)


def no_outputs():
    return lambda x: None, (jnp.ones(16),)


def raises():
    raise RuntimeError("boom")


def raises_when_traced():
    def inner(x):
        return x @ jnp.ones((3, 3))

    return inner, (jnp.ones((4, 4)),)


def leaves():
    raise SystemExit(1)


def reads_a_file():
    open("none.txt")


def calls_wrongly():
    return step, (1, 2, 3)


def wrong_option():
    return step, (1, 2), {"donate": 0}


schedule = [ap.ManualPartition({"x": 0}, axis="batch", name="BP")]
megatron = [ap.ManualPartition({"params/0": 1}, axis="model", name="MP")]
"""

MESH = "--mesh=batch=4,model=2"
ON_TPU = [MESH, "--device=tpu_v3"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.mlir").write_text(MODULE)
    (tmp_path / "train_cli.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOPART_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def run(capsys, *arguments: str) -> tuple[int, str]:
    code = main(arguments)
    return code, capsys.readouterr().out


def test_partition_of_a_file_prints_what_each_tactic_did(folder, capsys):
    code, out = run(capsys, "partition", "model.mlir", *ON_TPU, "--schedule", "DP(batch)")
    assert code == 0
    assert out.startswith("tactic")
    assert "\nDP(batch)" in out


def test_partition_of_a_function_takes_its_options_and_schedules_in_a_row(folder, capsys):
    code, out = run(
        capsys, "partition", "train_cli:example", *ON_TPU, "--schedule", "train_cli.py", "--schedule",
        "train_cli.py:megatron", "--json",
    )  # fmt: skip
    assert code == 0
    data = json.loads(out)
    assert [tactic["name"] for tactic in data["metadata"]["tactics"]] == ["BP", "MP"]
    assert data["estimate"]["step_s"] > 0
    assert re.fullmatch("[0-9a-f]{32}", data["plan_hash"])


def test_partition_writes_texts_and_plans_that_are_schedules(folder, capsys):
    run(capsys, "partition", "model.mlir", MESH, "--schedule", "DP(batch)", "--save-plan", "plan.json")
    code, out = run(capsys, "partition", "model.mlir", MESH, "--schedule", "plan.json", "--text", "hlo")
    assert code == 0
    assert out.startswith("func @main(")
    code, out = run(capsys, "partition", "model.mlir", MESH, "--text=stablehlo", "--output=out.mlir")
    assert (code, (folder / "out.mlir").read_text()[:6]) == (0, "module")


def test_search_prints_the_code_of_what_it_found_and_saves_its_plan(folder, capsys):
    code, out = run(capsys, "search", "model.mlir", *ON_TPU, "--budget=10", "--no-cache", "--save-plan=plan.json")
    assert code == 0
    assert "schedule = [" in out
    assert ap.Plan.load("plan.json").device == "tpu_v3"


def test_a_search_that_finds_nothing_that_fits_answers_no(folder, capsys):
    (folder / "large_cli.py").write_text(
        "import jax\ndef example():\n    x = jax.ShapeDtypeStruct((1 << 20, 1 << 15), 'float32')\n"
        "    return (lambda x: x + 1), (x,)\n"
    )
    over = ["--mesh=a=1", "--device=tpu_v3"]
    assert main(["estimate", "large_cli:example", *over]) == 1
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["search", "large_cli:example", *over, "--budget=1", "--no-cache"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("SearchWarning: ")
    assert "autopart/" not in said


def test_sweep_prints_a_row_for_each_mesh_and_writes_csv(folder, capsys):
    arguments = ["sweep", "model.mlir", "--devices=4", "--device=tpu_v3", "--budget=6", "--no-cache", "--csv=rows.csv"]
    code, out = run(capsys, *arguments)
    assert code == 0
    assert out.count("{batch:") == 3
    assert (folder / "rows.csv").read_text().startswith("batch,model,step_s")


def test_estimate_prints_seconds_and_what_takes_most(folder, capsys):
    code, out = run(capsys, "estimate", "model.mlir", *ON_TPU, "--schedule", "DP(batch)", "--top=2")
    assert code == 0
    assert out.startswith("step ")
    assert "dot_general" in out
    code, out = run(capsys, "estimate", "model.mlir", *ON_TPU, "--json")
    assert json.loads(out)["fits"] is True


def test_diff_answers_whether_plans_are_alike(folder, capsys):
    for name in ("DP(batch)", "DP(model)"):
        run(capsys, "partition", "model.mlir", *ON_TPU, "--schedule", name, "--save-plan", f"{name}.json")
    code, out = run(capsys, "diff", "DP(batch).json", "DP(model).json")
    assert code == 1
    assert "[- | batch]  ->  [- | model]" in re.sub(" +", " ", out).replace("] ->", "]  ->").replace("-> [", "->  [")
    assert run(capsys, "diff", "DP(batch).json", "DP(batch).json") == (0, "no difference\n")
    code, out = run(capsys, "diff", "DP(batch).json", "DP(model).json", "--json")
    assert {row["what"] for row in json.loads(out)} >= {"input"}


def test_reshard_plan_prints_the_collectives(folder, capsys):
    code, out = run(capsys, "reshard-plan", "a,_", "_,a", "--mesh=a=4", "--shape=8,8")
    assert code == 0
    assert 'all_to_all {0 -> 1} <"a">' in out
    code, out = run(capsys, "reshard-plan", "a+b,_", "_,_", "--mesh=a=2,b=2", "--shape=8,8", "--json")
    data = json.loads(out)
    assert len(data["steps"]) == 1
    assert data["steps"][0].startswith("all_gather")


@pytest.mark.parametrize("program", ["model.mlir", "train_cli:example", "train_cli.py:bare"])
def test_verify_compares_with_the_whole_program(program, folder, capsys):
    schedule = ["--schedule", "train_cli.py"] if "train" in program else []
    code, out = run(capsys, "verify", program, MESH, *schedule)
    assert code == 0
    assert "agree" in out.splitlines()[-1]


def test_verify_answers_no_where_results_differ(folder, capsys):
    code, out = run(capsys, "verify", "train_cli:example", MESH, "--schedule=train_cli.py:megatron", "--tolerance=0")
    assert code == 1
    assert "NO" in out
    assert "outputs differ" in out


def test_verify_counts_what_is_not_finite_on_either_side(folder, capsys):
    code, out = run(capsys, "verify", "train_cli:half_not_finite", MESH, "--schedule=train_cli.py")
    assert code == 0
    assert "yes, 9 of 16 elements not finite" in out
    assert "nothing compared, 16 of 16 elements not finite" in out
    assert out.splitlines()[-1] == "1 of 2 outputs agree; 25 of their elements are not finite, and say nothing"


@pytest.mark.parametrize(
    ("program", "why"),
    [("none_finite", "no output has a finite element"), ("no_outputs", "the program has no outputs")],
)
def test_verify_has_no_answer_where_nothing_could_be_compared(program, why, folder, capsys):
    assert main(["verify", f"train_cli:{program}", MESH]) == 2
    printed = capsys.readouterr()
    assert f"nothing was compared: {why}" in printed.err
    assert "agree" not in printed.out.splitlines()[-1]


def test_devices_are_listed(capsys):
    code, out = run(capsys, "devices")
    assert (code, out.split()[0]) == (0, "device")
    assert "tpu_v3" in out
    assert {row["name"] for row in json.loads(run(capsys, "devices", "--json")[1])} >= {"h100", "tpu_v5e"}


def test_the_cache_is_counted_and_cleared(folder, capsys):
    run(capsys, "search", "model.mlir", *ON_TPU, "--budget=3")
    assert json.loads(run(capsys, "cache", "--json")[1])["results"] == 1
    assert run(capsys, "cache", "--clear")[0] == 0
    assert json.loads(run(capsys, "cache", "--json")[1])["results"] == 0


def test_ops_has_two_other_tables(folder, capsys):
    assert "dot_general" in run(capsys, "ops")[1]
    assert "2 of 2 ops" in run(capsys, "ops", "--coverage", "model.mlir")[1]
    assert " ops have a rule" in run(capsys, "ops", "--coverage", "train_cli:example")[1]
    assert main(["ops", "--coverage=model.mlir", "--flop"]) == 2


@pytest.mark.skipif(not hasattr(ap.Lowered, "explain"), reason="Lowered.explain is not there yet")
def test_explain_says_why_an_array_lies_so(folder, capsys):
    code, out = run(capsys, "explain", "model.mlir", "x", *ON_TPU, "--schedule", "DP(batch)")
    assert code == 0
    assert "batch" in out


@pytest.mark.skipif(not hasattr(ap.Lowered, "report"), reason="Lowered.report is not there yet")
def test_report_writes_a_page(folder, capsys):
    assert run(capsys, "report", "model.mlir", *ON_TPU, "--schedule", "DP(batch)", "--output=r.html")[0] == 0
    assert "<html" in (folder / "r.html").read_text()


def test_ops_are_json_where_that_is_asked_for(capsys):
    code, out = run(capsys, "ops", "--json")
    assert code == 0
    assert {"kind", "family", "example", "mappings", "blocked_because", "left_out"} == set(json.loads(out)[0])
    assert main(["ops", "--json", "--flop"]) == 2
    assert "--json is of the list" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell, capsys):
    code, out = run(capsys, "completion", shell)
    assert code == 0
    assert "_AUTOPART_COMPLETE" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "No such command"),
        (["partition"], "Missing argument"),
        (["partition", "none.mlir", MESH], "none.mlir cannot be read"),
        (["partition", "model.mlir", "--mesh=batch"], "no axis with its size"),
        (["partition", "model.mlir", "--mesh=a=2,a=2"], "twice"),
        (["partition", "model.mlir", "--mesh=batch=0"], "size 0"),
        (["partition", "model.mlir", MESH, "--schedule=none.json"], "none.json cannot be read"),
        (["partition", "model.mlir", MESH, "--schedule=none.py"], "none.py"),
        (["partition", "model.mlir", MESH, "--schedule=train_cli.py:none"], 'has no "none"'),
        (["partition", "model.mlir", MESH, "--schedule=train_cli.py:step"], "a list of tactics"),
        (["partition", "model.mlir", MESH, "--schedule=DP"], "no named schedule"),
        (["partition", "no_such_module:example", MESH], "there is no module no_such_module"),
        (["partition", ":example", MESH], "there is no module ''"),
        (["partition", "train_cli.py", MESH], "train_cli.py:example"),
        (["partition", "train_cli:wrong", MESH], "hint|(fun, args)"),
        (["partition", "train_cli:schedule", MESH], "a function without arguments"),
        (["estimate", "model.mlir", MESH], "an estimate is of a device"),
        (["estimate", "model.mlir", MESH, "--device=tpu"], "tpu_v3"),
        (["diff", "model.mlir", "model.mlir"], "no plan"),
        (["reshard-plan", "a,_", "_,a", "--mesh=a=3", "--shape=8,8"], "8"),
        (["reshard-plan", "a", "_", "--mesh=a=2", "--shape=8,x"], "no shape"),
        (["verify", "model.mlir", "--mesh=batch=64"], "64 devices"),
        (["search", "model.mlir", MESH], "--device, one of"),
        (["search", "model.mlir", *ON_TPU, "--microbatch=some"], "no number of microbatches"),
        (["search", "model.mlir", *ON_TPU, "--recompute=matmul"], "'matmuls'"),
        (["search", "model.mlir", *ON_TPU, "--optimizer=none"], "no optimizer"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_cannot_be_done_says_why(arguments, said, folder, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert any(part in printed for part in said.split("|")), printed


OF_A_PROGRAM = {
    "partition": [MESH], "estimate": ON_TPU, "search": ON_TPU, "sweep": ["--devices=2", "--device=tpu_v3"],
    "verify": [MESH], "report": [*ON_TPU, "--output=r.html"], "explain": ["x", *ON_TPU],
}  # fmt: skip
"""The subcommands that take a program, with what else they need."""


@pytest.mark.parametrize("command", OF_A_PROGRAM)
@pytest.mark.parametrize(
    ("program", "what", "line"),
    [
        ("raises", "RuntimeError: boom", '    raise RuntimeError("boom")'),
        ("raises_when_traced", "TypeError: dot_general requires", "        return x @ jnp.ones((3, 3))"),
        ("leaves", "the program ended Python, by sys.exit(1)", "    raise SystemExit(1)"),
        ("reads_a_file", "No such file or directory: 'none.txt'", '    open("none.txt")'),
    ],
)
def test_a_program_that_raises_is_named_by_its_line(command, program, what, line, folder, capsys):
    assert main([command, f"train_cli.py:{program}", *OF_A_PROGRAM[command]]) == 2
    printed = capsys.readouterr().err
    assert what in printed
    assert f"\n  at   train_cli.py:{TRAIN.splitlines().index(line) + 1} in " in printed
    assert printed.endswith(f", {line.strip()}\n")


@pytest.mark.parametrize("command", OF_A_PROGRAM)
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("calls_wrongly", "step cannot be called so: too many positional arguments"),
        ("wrong_option", "donate is no option of ap.jit\n  try  'donate_arg"),
    ],
)
def test_arguments_and_options_that_do_not_fit_the_function_are_named(command, program, said, folder, capsys):
    assert main([command, f"train_cli.py:{program}", *OF_A_PROGRAM[command]]) == 2
    assert said in capsys.readouterr().err


def test_a_schedule_that_raises_is_named_by_its_line(folder, capsys):
    (folder / "mine.py").write_text("schedule = 1 / 0\n")
    assert main(["partition", "model.mlir", MESH, "--schedule=mine.py"]) == 2
    printed = capsys.readouterr().err
    assert printed == "autopart: ZeroDivisionError: division by zero\n  at   mine.py:1 in <module>, schedule = 1 / 0\n"
    (folder / "mine.py").write_text("schedule = = 1\n")
    assert main(["partition", "model.mlir", MESH, "--schedule=mine.py"]) == 2
    assert capsys.readouterr().err == "autopart: SyntaxError: invalid syntax (mine.py, line 1)\n"


def test_a_mistake_of_autopart_itself_keeps_its_traceback(monkeypatch, capsys):
    monkeypatch.setattr("json.dumps", None)
    assert main(["ops", "--json"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(autopart.commands))
def test_every_subcommand_has_help_with_an_example_that_is_one(command, capsys):
    code, out = run(capsys, command, "--help")
    assert code == 0
    (example,) = re.findall(r"Example:\n +autopart (\S+)(.*)", out)
    assert example[0] == command
    names = {name for parameter in autopart.commands[command].params for name in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", example[1])) <= names


def test_the_whole_has_help(capsys):
    code, out = run(capsys, "--help")
    assert code == 0
    assert all(command in out for command in autopart.commands)
    assert isinstance(autopart, click.Group)
