"""`autopart partition`: a program partitioned by a schedule."""

from __future__ import annotations

import json
from typing import Any

import click

from autopart.api.jitted.lowered import Lowered
from autopart.base.written_file import write_text
from autopart.cli.asked import Asked
from autopart.cli.command_options import SAVE_PLAN, partitioned, show


@click.command()
@partitioned
@SAVE_PLAN
@click.option("--text", type=click.Choice(["program", "core", "hlo", "stablehlo"]), help="Write this text of it.")
@click.option("--output", metavar="FILE", help="Where the text goes; by default it is printed.")
@click.option("--strict", is_flag=True, help="Refuse a schedule at which propagation stops somewhere.")
def partition(
    asked: Asked, as_json: bool, save_plan: str | None, text: str | None, output: str | None, strict: bool
) -> None:
    """Partition PROGRAM over a mesh by a schedule, and show what each tactic did.

    \b
    Example:
      autopart partition model.mlir --mesh batch=8 --schedule "DP(batch)" --save-plan plan.json
    """
    low = asked.lowered(strict=strict)
    if save_plan:
        low.plan.save(save_plan)
    if text:
        written = low.as_text(text)
        if output:
            write_text(output, written, "the text")
        else:
            click.echo(written)
    if not text or output:
        show(low.metadata, described(low), as_json)


def described(low: Lowered) -> dict[str, Any]:
    """A partitioned program as plain data: metadata, estimate and the plan's hash."""
    estimate = json.loads(low.estimate.to_json()) if low.estimate else None
    return {"metadata": json.loads(low.metadata.to_json()), "estimate": estimate, "plan_hash": low.plan.hash}
