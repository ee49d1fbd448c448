"""`python -m autopart ops` and its coverage report."""

from __future__ import annotations

import re
from pathlib import Path

import autopart as ap
from autopart.__main__ import main
from autopart.core.ops.ops_table import coverage, ops_rows, ops_table
from autopart.core.ops.rule import known_kinds
from autopart.core.passes import IMPORT_PASSES

PROGRAM = """
func.func @main(%x: tensor<4x6xf32>, %s: tensor<2xui64>) -> (tensor<4x6xf32>, tensor<4x6xui32>) {
  %0 = stablehlo.add %x, %x : tensor<4x6xf32>
  %1 = "stablehlo.custom_call"(%0) {call_target_name = "mystery"} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %2:2 = "stablehlo.rng_bit_generator"(%s) {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>}
    : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4x6xui32>)
  return %1, %2#1 : tensor<4x6xf32>, tensor<4x6xui32>
}
"""


def saved(folder: Path) -> str:
    path = folder / "program.mlir"
    path.write_text(PROGRAM)
    return str(path)


def kinds_listed() -> list[str]:
    """The kinds that the table lists, by family, and those that it lists with a reason, in the order of its lines."""
    families, blocked = ops_table().split("known, and not partitioned\n")
    tiled = [line.strip() for line in families.splitlines() if re.match(r"  \S", line)]
    reasons = [line.split(": ")[0].strip() for line in blocked.replace("\n      ", " ").splitlines()]
    return [kind.strip() for line in tiled + reasons for kind in line.split(",") if kind.strip()]


def test_the_table_names_every_kind_once():
    assert sorted(kinds_listed()) == sorted(known_kinds())


def test_the_table_shows_mappings_and_reasons():
    table = ops_table()
    assert "(1, 0) -> sum, at most 6 ways" in table
    assert "quantized types are not supported" in table


def test_the_table_says_what_its_words_mean_what_is_left_out_and_which_passes_run_before():
    table = ops_table()
    legend, _, families = table.partition("\nbarrier\n")
    for words in re.findall(r", (after|by exchange for|with what is read of)|(left out):", families):
        assert any(line.startswith("    " + "".join(words)) for line in legend.splitlines()), words
    assert "left out: no collective of XLA combines integers bit by bit" in families
    assert all(f"    {type(one).__name__} " in legend for one in IMPORT_PASSES)


def test_the_rows_are_those_of_the_table():
    rows = {row["kind"]: row for row in ops_rows()}
    assert sorted(rows) == sorted(known_kinds())
    assert "(1, 0) -> sum, at most 6 ways" in rows["dot_general"]["mappings"]
    assert rows["rng_bit_generator"]["blocked_because"]


def test_coverage_counts_ops_with_a_rule_and_names_the_others(tmp_path):
    report = coverage(ap.load(saved(tmp_path)).traced.program)
    assert report.startswith("2 of 3 ops have a rule (66.67 %)")
    assert "custom_call @mystery" in report
    assert "rng_bit_generator: a slice of the bits cannot be drawn" in report


def test_the_command_line_prints_both(tmp_path, capsys):
    assert main(["ops"]) == 0
    assert main(["ops", "--coverage", saved(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "dot_general" in printed
    assert "2 of 3 ops" in printed
