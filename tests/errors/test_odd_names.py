"""Do names with newlines and terminal controls reach no message and no terminal as they are?"""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.api.tracing.mutation import MutationWarning
from autopart.base.errors import PartitionWarning
from autopart.cli.main import main
from autopart.search.execution.crew import WorkerWarning
from autopart.search.storage.records import RecordWarning

ODD = "w\n\x1b[31mred\x07\u202e"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f\u202e]|^\\[31m", re.MULTILINE)
X = jax.ShapeDtypeStruct((64, 64), "float32")
P = {ODD: X, "o" + ODD: X}


def step(p, x):
    with jax.named_scope("scope" + ODD):
        hidden = ap.tag("tag" + ODD, jnp.tanh(x @ p[ODD]))
    return {ODD: jnp.sum(hidden @ p["o" + ODD]), "z": x}


def test_what_a_lowered_program_says_holds_no_controls():
    mesh = ap.Mesh({"b": 4, "m": 2}, device="tpu_v3")
    schedule = [ap.ManualPartition({"x": 0}, axis="b"), ap.ManualPartition({"tag" + ODD: 1}, axis="m")]
    low = ap.jit(step, mesh, schedule).lower(P, X)
    said = [low.as_text(form) for form in ("program", "core", "hlo", "stablehlo")]
    said += [low.metadata, low.estimate, low.plan, low.explain(f"p/{ODD}"), low.what_if({f"p/{ODD}": 0}, "m")]
    assert [CONTROLS.findall(str(text)) for text in said] == [[]] * len(said)


@pytest.mark.parametrize("category", [ap.SearchWarning, MutationWarning, RecordWarning, WorkerWarning])
def test_warnings_write_odd_names_on_one_line_and_keep_their_own_lines(category):
    assert issubclass(category, PartitionWarning)
    assert str(category(f"{ODD} is left out\n  why it is")).splitlines() == [
        r"w\n\x1b[31mred\x07\u202e is left out",
        "  why it is",
    ]


def test_a_step_that_changes_an_argument_of_an_odd_name_is_warned_of_on_one_line():
    def changes(state, x):
        state[ODD] = x + 1
        return x

    with pytest.warns(MutationWarning, match=r"red") as caught:
        ap.jit(changes, ap.Mesh({"b": 2})).lower({ODD: X}, X)
    assert not CONTROLS.search(str(caught[0].message))


@pytest.mark.parametrize("arguments", [[ODD], ["partition", ODD], ["partition", "a.mlir", f"--{ODD}"]])
def test_the_command_line_says_odd_names_without_controls(capsys, arguments):
    assert main(arguments) == 2
    assert not CONTROLS.search(capsys.readouterr().err)


def test_an_error_of_the_users_own_program_is_printed_without_controls(capsys, tmp_path, monkeypatch):
    (tmp_path / "odd_model.py").write_text(f"def program():\n    raise RuntimeError({ODD!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["partition", "odd_model:program", "--mesh", "b=2"]) == 2
    said = capsys.readouterr().err
    assert "red" in said
    assert not CONTROLS.search(said.replace("\n", " "))
