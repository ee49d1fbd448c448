"""Is CONTRIBUTING's table true: is an op one file, and do cost model and search know no op by its name?"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from autopart.core.ops.rule import rules
from tests.examples.pages import ROOT

NEW_OP = '''"""Tile mappings of an op that no one has seen."""

from autopart.core.ops.passages import moved
from autopart.core.ops.rule import rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import common_dims
from autopart.core.ops.traits import Elementwise


@rule("abs_of_tomorrow", traits=Elementwise(3, passes=moved()), examples=(op("abs", "4x6xf32 -> 4x6xf32"),))
def abs_of_tomorrow(spec):
    """Every dim."""
    return common_dims(spec, range(len(spec.results[0].shape)))
'''

LOOKS = """
import importlib.util, sys

found = importlib.util.find_spec("autopart.core.ops.rules")
found.submodule_search_locations.append(sys.argv[1])
rules = importlib.util.module_from_spec(found)
sys.modules[found.name] = rules
found.loader.exec_module(rules)

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.ops_table import ops_table
from autopart.core.ops.rule import mappings_of, passages_of
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE, op_class, op_work

spec = OpSpec("abs_of_tomorrow", {}, (TensorType((4, 6), "f32"),), (TensorType((4, 6), "f32"),))
assert len(mappings_of(spec)) == 2, "propagation"
assert passages_of(spec), "pending sums"
assert op_class(spec) == ELEMENTWISE and op_work(spec).vector_flop == 3 * 24, "the cost model"
assert "abs_of_tomorrow" in ops_table(), "the table of ops"
"""
"""What each part of autopart knows of the op, in a process that starts with one more file among the rules."""

COLLECTIVES = {"all_reduce", "all_gather", "all_to_all", "reduce_scatter", "collective_permute"}
"""Ops of a program, and also what a lowering adds to it, which cost model and search do name."""


def test_a_new_op_is_one_file(tmp_path: Path):
    (tmp_path / "tomorrow.py").write_text(NEW_OP)
    command = [sys.executable, "-c", LOOKS, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_cost_model_and_search_know_no_op_by_its_name():
    names = {r.kind for r in rules() if not r.structural} - COLLECTIVES
    found = []
    for folder in ("costmodel", "search"):
        for path in sorted((ROOT / "autopart" / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and node.value in names:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.value!r}")
    assert found == []


def test_every_row_names_a_test_and_an_example_that_exist():
    rows = re.findall(r"^\| an? .*$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert len(rows) >= 10
    for row in rows:
        _, _, _, tests, example, _ = row.split("|")
        assert all((ROOT / path).is_file() for path in re.findall(r"`(tests/[\w/]+\.py)`", tests)), row
        assert "tests/" in tests, row
        assert (ROOT / re.findall(r"\((.*)\)", example)[0]).is_file(), row
