"""`autopart report`: everything about a partitioned program as one page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from autopart.cli.command_inputs import mesh_of, program_of, schedule_of
from autopart.cli.command_options import partitioned, show


@click.command()
@partitioned
@click.option("--output", metavar="FILE", default="report.html", show_default=True, help="The page to write.")
def report(
    program: str, mesh: str, device: str | None, schedule: Sequence[str], as_json: bool, output: str
) -> None:  # fmt: skip
    """Write a page about the partitioned PROGRAM that a browser opens without a network.

    \b
    Example:
      autopart report model.mlir --mesh batch=8 --device tpu_v3 --schedule "DP(batch)" --output report.html
    """
    low: Any = program_of(program).lowered(mesh_of(mesh, device), schedule_of(schedule))
    low.report(output)
    show(output, {"report": output}, as_json)
