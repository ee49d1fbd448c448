"""Can the command line do what Python can: rewritings, modules, rankings, prices, advice that a shell takes?"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import autopart as ap
from autopart.cli.main import main

MODEL = """
import jax, jax.numpy as jnp, numpy as np, optax


def shape(*sizes, dtype="float32"):
    return jax.ShapeDtypeStruct(sizes, dtype)


OPTIMIZER = optax.adam(1e-3)


def loss(params, x):
    h = params["table"][x].astype(jnp.bfloat16)
    for block in params["blocks"]:
        h = h + jnp.tanh(h @ block["up"].astype(jnp.bfloat16)) @ block["down"].astype(jnp.bfloat16)
    return jnp.square(h.astype(jnp.float32)).mean()


def step(params, opt_state, x):
    updates, opt_state = OPTIMIZER.update(jax.grad(loss)(params, x), opt_state)
    return optax.apply_updates(params, updates), opt_state


def arguments(width, batch, length, make):
    blocks = [{"up": make(width, 4 * width), "down": make(4 * width, width)}] * 3
    params = {"table": make(64, width), "blocks": blocks}
    return params, jax.eval_shape(OPTIMIZER.init, params), shape(batch, length, dtype="int32")


def example():
    return step, arguments(32, 16, 8, shape), {"donate_argnums": (0, 1)}


def too_large():
    return step, arguments(4096, 4096, 2048, shape), {"donate_argnums": (0, 1)}


def made():
    draw = np.random.default_rng(0).standard_normal
    params, _, x = arguments(32, 16, 8, lambda *sizes: np.float32(draw(sizes)) / 8)
    return params, OPTIMIZER.init(params), np.arange(128, dtype="int32").reshape(x.shape) % 64
"""

MODULES = """
import jax, jax.numpy as jnp, optax
import equinox as eqx
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(16, 64, rngs=rngs), nnx.Linear(64, 16, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        return self.down(self.drop(jnp.tanh(self.up(x))))


def nnx_step(model, optimizer, x):
    value, grads = nnx.value_and_grad(lambda m: jnp.square(m(x) - x).mean())(model)
    optimizer.update(model, grads)
    return value


def nnx_example():
    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    return nnx_step, (model, optimizer, jax.ShapeDtypeStruct((32, 16), "float32")), {"donate_argnums": (0, 1)}


def eqx_step(model, x):
    value, grads = eqx.filter_value_and_grad(lambda m: jnp.square(jax.vmap(m)(x) - x).mean())(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, grads)), value


def eqx_example():
    return eqx_step, (eqx.nn.MLP(16, 16, 64, 1, key=jax.random.key(0)), jax.ShapeDtypeStruct((32, 16), "float32"))
"""

ON = ["--mesh", "data=4,model=2", "--device", "h100"]
PLAIN = ["capable.py:example", *ON]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    (tmp_path / "capable.py").write_text(MODEL)
    (tmp_path / "modular.py").write_text(MODULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOPART_CACHE_DIR", str(tmp_path / "cache"))

    def run(*words):
        code = main(words)
        captured = capsys.readouterr()
        assert code != 2, captured.err
        return code, captured.out

    return run


def test_an_estimate_of_a_program_in_microbatches_that_computes_again(run):
    def estimate(*options):
        return json.loads(run("estimate", *PLAIN, "--schedule", "DP(data)", "--json", *options)[1])

    looped = json.loads(run("partition", *PLAIN, "--microbatch", "2", "--recompute", "blocks", "--json")[1])
    tactics = [tactic["report"] for tactic in looped["metadata"]["tactics"]]
    assert tactics[0]["microbatch"] == {"inputs": {"x": 0}, "steps": 2, "loops": 1}
    assert tactics[1]["recompute"] == {"keep": ["blocks"]}
    assert estimate("--microbatch", "2")["step_s"] > estimate()["step_s"]


def test_a_search_chooses_among_programs(run):
    options = ("--microbatch", "1,2", "--recompute", "blocks", "--uneven", "pad", "--budget", "8", "--json")
    report = json.loads(run("search", *PLAIN, *options)[1])["metadata"]["tactics"][-1]["report"]
    programs = [row["program"] for row in report["programs"]]
    assert "as it is" in programs
    assert any("Microbatch" in name and "Recompute" in name for name in programs)


def test_the_best_schedules_come_with_their_names_and_reasons(run):
    data = json.loads(run("search", *PLAIN, "--budget", "12", "--top", "3", "--json")[1])
    first, second, third = data["top"]
    assert [row["rank"] for row in data["top"]] == [1, 2, 3]
    assert first["reasons"][0].endswith("of the step")
    assert sum(first["seconds"].values()) == pytest.approx(first["step_s"], rel=1e-6)
    for row in (second, third):
        assert "%" in row["reasons"][0] or "times" in row["reasons"][0]
        again = json.loads(run("estimate", *PLAIN, "--schedule", row["schedule"], "--json")[1])
        assert again["step_s"] == pytest.approx(row["step_s"])


def test_named_schedules_alone_are_costed(run):
    rows = json.loads(run("search", *PLAIN, "--named", "--json")[1])
    assert [row["step_s"] for row in rows] == sorted(row["step_s"] for row in rows)
    assert any(row["name"].startswith("FSDP") for row in rows)


def test_a_referee_is_named(run):
    data = json.loads(run("search", *PLAIN, "--budget", "3", "--referee", "simulator", "--json")[1])
    assert data["metadata"]["tactics"][-1]["report"]["referee"]["finalists"]


@pytest.mark.filterwarnings("ignore::autopart.SearchWarning")
def test_advice_is_a_command_whose_result_fits(run):
    words = ["capable.py:too_large", "--mesh", "data=4,model=2", "--device", "h100", "--budget", "2", "--json"]
    code, out = run("search", *words)
    commands = json.loads(out)["fits"]
    assert code == 1
    assert any("--recompute" in command for command in commands)
    for command in commands[:1]:
        program, *rest = shlex.split(command, comments=True)
        assert (program, run(*rest, "--budget", "2")[0]) == ("autopart", 0)


@pytest.mark.parametrize("name", ["nnx_example", "eqx_example"])
def test_modules_are_partitioned_and_verified(run, name):
    found = json.loads(run("search", f"modular.py:{name}", *ON, "--budget", "4", "--json")[1])
    assert found["estimate"]["fits"]
    words = [f"modular.py:{name}", "--mesh", "data=4,model=2", "--schedule", "DP(data)", "--json"]
    verified = json.loads(run("verify", *words)[1])
    assert verified["agrees"]
    assert verified["compared"]
    assert len(verified["outputs"]) >= 5
    estimate = json.loads(run("estimate", *words, "--device", "h100")[1])
    assert estimate["collectives"]["all_reduce"]["count"]


def test_a_mixed_precision_step_agrees_by_its_narrowest_type_and_its_state_begins_at_zero(run):
    words = ["verify", "capable.py:example", "--mesh", "data=4,model=2", "--schedule", "FSDP(data)+Megatron(model)"]
    outputs = json.loads(run(*words, "--json")[1])["outputs"]
    assert all(row["agrees"] and not row["not_finite"] for row in outputs)
    named = json.loads(run(*words, "--args", "capable.py:made", "--json")[1])["outputs"]
    assert all(row["agrees"] and not row["not_finite"] for row in named)
    assert [row["largest"] for row in named] != [row["largest"] for row in outputs]


def test_what_if_prices_a_decision(run):
    data = json.loads(
        run("what-if", *PLAIN, "params/table=1", "--axis", "model", "--schedule", "DP(data)", "--json")[1]
    )
    assert data["actions"] == ["tile<params/table, 1, model>"]
    code, said = run("what-if", *PLAIN, "params/table=7", "--axis", "model")
    assert code == 1
    assert "fails: params/table" in said
    assert len(data["step_s"]) == 2


def test_a_sweep_over_kinds_of_devices_says_what_tokens_cost(run):
    words = ["--devices", "h100=4,tpu_v5p=2", "--price", "h100=2.5,tpu_v5p=4", "--axes", "data", "--budget", "3"]
    rows = json.loads(run("sweep", "capable.py:example", *words, "--json")[1])["rows"]
    assert [(row["device"], row["mesh"]) for row in rows] == [("h100", {"data": 4}), ("tpu_v5p", {"data": 2})]
    for row, price in zip(rows, (4 * 2.5, 2 * 4.0), strict=True):
        assert row["tokens"] == 16 * 8
        assert row["price_per_mtoken"] == pytest.approx(price / 3600 * row["step_s"] / row["tokens"] * 1e6)
        assert 0 < row["utilization"] < 1
    assert "$/Mtoken" in run("sweep", "capable.py:example", *words)[1]


def test_a_report_is_written_of_a_search_and_of_two_schedules(run, tmp_path):
    run("search", *PLAIN, "--budget", "3", "--report", "found.html")
    run(
        "report", *PLAIN, "--schedule", "DP(data)", "--beside", "FSDP(data)", "--tokens", "1000", "--output", "two.html"
    )
    assert "tokens/s" in (tmp_path / "found.html").read_text()
    page = (tmp_path / "two.html").read_text()
    assert "Arguments that lie otherwise" in page
    assert "this plan" in page
    assert "1,000 in a step (as told)" in page


def test_no_accelerator_is_started_unless_it_is_asked_for(monkeypatch):
    import jax

    from autopart.api.jitted.verification import on_the_host

    asked = []
    monkeypatch.setattr(jax.config, "update", lambda name, value: asked.append((name, value)))
    on_the_host()
    monkeypatch.delenv("JAX_PLATFORMS")
    on_the_host()
    assert asked == [("jax_platforms", "cpu")]


NOISE = """
import os
import jax

os.write(2, b"E1129 21:15:19.673608   27285 rendezvous.cc:116] may be stuck\\n")
os.write(2, b"words of the program\\n")


def example():
    return (lambda x: x + 1), (jax.ShapeDtypeStruct((8,), "float32"),)


def dies():
    os.write(2, b"F1129 21:15:19.673608   27285 rendezvous.cc:116] last words\\n")
    os.abort()
"""


def test_a_terminal_has_no_line_that_a_library_logs_but_its_last_words(tmp_path):
    (tmp_path / "noisy.py").write_text(NOISE)
    kept = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    environment = {**kept, "PYTHONPATH": str(Path(ap.__file__).parents[1])}

    def said(program):
        command = [sys.executable, "-m", "autopart", "partition", program, "--mesh", "a=2"]
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return ended.returncode, ended.stderr

    assert said("noisy.py:example") == (0, "words of the program\n")
    code, words = said("noisy.py:dies")
    assert code < 0
    assert words.startswith("words of the program\nF1129")
    assert "may be stuck" not in words


def test_plans_of_the_command_line_are_those_of_python(run, tmp_path):
    run("partition", *PLAIN, "--schedule", "DP(data)", "--save-plan", "plan.json")
    assert ap.Plan.load(tmp_path / "plan.json").device == "h100"
