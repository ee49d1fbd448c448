"""Does each mistake on the command line end with 2, and with what is right?"""

from __future__ import annotations

import pytest

from autopart.cli.main import main

MODEL = """
import jax, jax.numpy as jnp
import autopart as ap


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, "float32")


def step(params, x):
    loss = lambda p: jnp.tanh(x @ p["up"] @ p["down"]).sum()
    return jax.tree.map(lambda w, g: w - g, params, jax.grad(loss)(params))


def example():
    return step, ({"up": shape(64, 128), "down": shape(128, 64)}, shape(32, 64)), {"donate_argnums": 0}


def example_of(n):
    return step, ()


def no_pair():
    return step


def jitted():
    return ap.jit(step, ap.Mesh({"a": 2})), ()


def raises():
    return lambda x: x @ jnp.ones((3, 3)), (shape(4, 4),)


def no_batch():
    return lambda w: w * 2, (shape(),)


def one_shape():
    return shape(4)


ARRAYS = 3
schedule = [ap.ManualPartition({"x": 0}, axis="data")]
nothing = [3]
"""


ON = ["--mesh", "data=4,model=2", "--device", "tpu_v3"]
EXAMPLE = ["mistaken.py:example", *ON]

TYPED = [
    (["estimat", "mistaken.py:example"], "estimate"),
    (["estimate"], "Missing argument 'PROGRAM'"),
    (["estimate", "mistaken.py:example", "--device", "tpu_v3"], "--mesh"),
    (["estimate", "mistaken.py:example", "--mesh", "data=4"], "--device, one of"),
    (["estimate", "mistaken.py:exampel", *ON], "'example'"),
    (["estimate", "mistaken.py", *ON], "mistaken.py:example"),
    (["estimate", "mistake.py:example", *ON], "mistake.py"),
    (["estimate", "mistake:example", *ON], "no module mistake"),
    (["estimate", "no such file.mlir", *ON], "cannot be read"),
    (["estimate", "mistaken.py:example_of", *ON], "without arguments"),
    (["estimate", "mistaken.py:no_pair", *ON], "(fun, args)"),
    (["estimate", "mistaken.py:ARRAYS", *ON], "a function without arguments"),
    (["estimate", "mistaken.py:jitted", *ON], "without ap.jit"),
    (["estimate", "mistaken.py:raises", *ON], "mistaken.py:"),
    (["estimate", "words.mlir", *ON], "not a StableHLO module"),
    (["estimate", "mistaken.py:example", "--mesh", "data", "--device", "tpu_v3"], "batch=16,model=2"),
    (["estimate", "mistaken.py:example", "--mesh", "data=x", "--device", "tpu_v3"], "batch=16,model=2"),
    (["estimate", "mistaken.py:example", "--mesh", "data=0", "--device", "tpu_v3"], "at least 1"),
    (["estimate", "mistaken.py:example", "--mesh", "data=2,data=2", "--device", "tpu_v3"], "there twice"),
    (["estimate", "mistaken.py:example", "--mesh", "data=4", "--device", "tpu_v9"], "'tpu_v7'"),
    (["estimate", *EXAMPLE, "--schedule", "FDSP(data)"], "'FSDP'"),
    (["estimate", *EXAMPLE, "--schedule", "FSDP(dat)"], "'data'"),
    (["estimate", *EXAMPLE, "--schedule", "FSDP"], '"DP(data)"'),
    (["estimate", *EXAMPLE, "--schedule", "none.json"], "No such file"),
    (["estimate", *EXAMPLE, "--schedule", "words.json"], "it is not JSON"),
    (["estimate", *EXAMPLE, "--schedule", "none.py"], "none.py"),
    (["estimate", *EXAMPLE, "--schedule", "mistaken.py:schedul"], "'schedule'"),
    (["estimate", *EXAMPLE, "--schedule", "mistaken.py:nothing"], "a list of tactics"),
    (["estimate", *EXAMPLE, "--microbatch", "x"], "no number of microbatches"),
    (["estimate", *EXAMPLE, "--microbatch", "0"], "1 is the whole batch"),
    (["estimate", *EXAMPLE, "--microbatch", "1,2"], "autopart search chooses"),
    (["estimate", *EXAMPLE, "--microbatch", "5"], "not a multiple of 5"),
    (["estimate", "mistaken.py:no_batch", *ON, "--microbatch", "2"], "no batch"),
    (["estimate", *EXAMPLE, "--recompute", "blcks"], "'blocks'"),
    (["estimate", *EXAMPLE, "--args", "mistaken.py:one_shape"], "a tuple of the program's arguments"),
    (["estimate", *EXAMPLE, "--args", "mistaken.py:one_shap"], "'one_shape'"),
    (["estimate", *EXAMPLE, "--top", "-1"], "--top"),
    (["estimate", *EXAMPLE, "--budget", "3"], "No such option"),
    (["explain", *EXAMPLE, "params/upp"], "'params/up'"),
    (["what-if", *EXAMPLE, "params/up", "--axis", "data"], "PATH=DIM"),
    (["what-if", *EXAMPLE, "params/upp=0", "--axis", "data"], "'params/up'"),
    (["what-if", *EXAMPLE, "params/up=0", "--axis", "dat"], "'data'"),
    (["what-if", *EXAMPLE, "params/up=0"], "--axis"),
    (["partition", *EXAMPLE, "--text", "html"], "stablehlo"),
    (["partition", *EXAMPLE, "--text", "hlo", "--output", "no/such/x.txt"], "a folder that is there"),
    (["partition", *EXAMPLE, "--save-plan", "no/such/plan.json"], "No such file"),
    (["report", *EXAMPLE, "--no-named", "--output", "no/such/report.html"], "a folder that is there"),
    (["report", *EXAMPLE, "--tokens", "0"], "--tokens"),
    (["search", *EXAMPLE, "--optimizer", "mtcs"], "'mcts'"),
    (["search", *EXAMPLE, "--axes", "dat"], "'data'"),
    (["search", *EXAMPLE, "--executor", "procs"], "'processes'"),
    (["search", *EXAMPLE, "--referee", "simulater", "--budget", "2"], "'simulator'"),
    (["search", *EXAMPLE, "--uneven", "padded"], "pad"),
    (["search", *EXAMPLE, "--budget", "many"], "not a valid int"),
    (["search", "mistaken.py:example", "--mesh", "data=4", "--budget", "2"], "--device, one of"),
    (["sweep", "mistaken.py:example", "--devices", "4"], "h100"),
    (["sweep", "mistaken.py:example", "--devices", "h10=4"], "'h100'"),
    (["sweep", "mistaken.py:example", "--devices", "h100"], "h100=64"),
    (["sweep", "mistaken.py:example", "--devices", "h100=4", "--device", "h100"], "which kinds"),
    (["sweep", "mistaken.py:example", "--devices", "h100=4", "--price", "2.5"], "h100=2.5"),
    (["sweep", "mistaken.py:example", "--devices", "h100=4", "--price", "h200=2"], "'h100'"),
    (["diff", "none.json", "none.json"], "No such file"),
    (["diff", "words.json", "words.json"], "it is not JSON"),
    (["reshard-plan", "dat", "_", "--mesh", "data=4", "--shape", "8"], "'data'"),
    (["reshard-plan", "data", "_", "--mesh", "data=4", "--shape", "eight"], "8,128"),
    (["reshard-plan", "data", "_", "--mesh", "data=4", "--shape", "7"], "not a multiple of 4"),
    (["reshard-plan", "data", "_", "--mesh", "data=4", "--shape", "8", "--dtype", "f33"], "an element type"),
    (["verify", "mistaken.py:example", "--mesh", "data=64"], "64 devices"),
    (["ops", "--coverage", "mistaken.py"], "mistaken.py:example"),
    (["ops", "--coverage", "mistaken.py:example", "--flop"], "ask for one"),
    (["completion", "tcsh"], "bash"),
    (["serve"], "--mcp"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("mistakes")
    (found / "mistaken.py").write_text(MODEL)
    for name in ("words.mlir", "words.json"):
        (found / name).write_text("hello")
    return found


@pytest.mark.parametrize(("typed", "says"), TYPED, ids=[" ".join(typed) for typed, _ in TYPED])
def test_a_mistake_on_the_command_line_ends_with_2_and_says_what_is_right(typed, says, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AUTOPART_CACHE_DIR", str(folder / "cache"))
    code = main(typed)
    err = capsys.readouterr().err
    assert code == 2
    assert "Traceback" not in err
    assert says in err, err


def test_there_are_more_mistakes_than_a_day_makes():
    assert len(TYPED) >= 60
