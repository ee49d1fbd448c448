"""Do the shell examples of the command line's page run, in their order?"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from autopart.cli.main import autopart, main
from tests.examples.pages import ROOT, blocks

PAGE = ROOT / "docs/command-line.md"
BLOCKS = blocks(PAGE)
LINES = [line for block in BLOCKS if block.kind == "sh" for line in block.text.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, with the files that the page's Python writes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOPART_CACHE_DIR", str(tmp_path / "cache"))
    for block in BLOCKS:
        if block.kind == "python":
            exec(compile(block.text, "page.py", "exec"), {})
    return tmp_path


def test_every_line_is_done_and_answers_yes(folder, capsys):
    for line in LINES:
        command, *arguments = shlex.split(line)
        assert command == "autopart"
        assert main(arguments) == 0, (line, capsys.readouterr().err)
    assert (folder / "found.json").is_file()


def test_the_page_names_every_subcommand():
    text = PAGE.read_text()
    assert [name for name in autopart.commands if f"`{name}" not in text and f"autopart {name}" not in text] == []


@pytest.mark.slow
def test_a_shell_runs_them(folder):
    kept = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    program = f'autopart() {{ "{sys.executable}" -m autopart "$@"; }}'
    script = "\n".join(["set -e", program, *LINES])
    environment = {**kept, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
