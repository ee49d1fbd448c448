"""Writes `docs/reliability.md` from `results.json`, so that the page cannot say what was not measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"

HEAD = """\
# Reliability

This page is written by `python -m experiments.reliability` from
[its results](../experiments/reliability/results.json); change `experiments/reliability/page.py`, not the page.

## Partitioned programs keep the numbers

A random program takes random steps from all op families, gradients, loops, branches, random numbers and empty dims
among them. Random actions, tactics and tiny searches partition it over meshes of 2 to 8 simulated devices. Its results
are compared with `jax.jit` of the unpartitioned program: bit by bit where all values are small whole numbers, which no
order of summation rounds, and to a tolerance elsewhere. A program that raises, ends the process or hangs is a failure
too.

"""

EXPLAINED = """\

Excepted are programs on which plain jax does not agree with itself: `jax.jit` of the unpartitioned program differs from
the same program op by op, or it raises or ends the process as well. Each is listed by its seed in the results, with the
reason. `python -m tests.property.shrink SEED` makes a failing program small.

## What is promised, and what holds it

| promise | tests | passed | failed |
|---|---|---|---|
"""


def write(results: Mapping[str, Any]) -> None:
    """Replaces the page."""
    PAGE.write_text(text(results))


def text(results: Mapping[str, Any]) -> str:
    """The page, as Markdown."""
    programs = results["programs"]
    figures = ("cases", "mismatches", "errors", "crashes", "timeouts", "excepted", "minutes")
    table = [
        f"| {' | '.join(figures)} |",
        "|" + "---|" * len(figures),
        f"| {' | '.join(f'{programs[k]:,}' for k in figures)} |",
    ]
    if again := ", ".join(f"{seed:,}" for seed in programs.get("again", ())):
        table += ["", f"Failed at first, was mended, and ran again with its batch: {again}."]
    rows = [_row(promise) for promise in results["promises"]]
    tail = f"\nMeasured at {results['date']} with {programs['workers']} worker processes.\n"
    return HEAD + "\n".join(table) + "\n" + EXPLAINED + "\n".join(rows) + "\n" + tail


def _row(promise: Mapping[str, Any]) -> str:
    tests = f"`{promise['tests']}`" + (f" (`-m {promise['mark']}`)" if promise["mark"] else "")
    if "absent" in promise:
        return f"| {promise['text']} | {tests} | {promise['absent']} | |"
    return f"| {promise['text']} | {tests} | {promise['passed']:,} | {promise['failed']:,} |"
