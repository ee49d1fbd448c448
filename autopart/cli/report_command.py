"""`autopart report`: everything about a partitioned program as one page."""

from __future__ import annotations

import click

from autopart.cli.asked import Asked
from autopart.cli.command_options import TOKENS, partitioned, show


@click.command()
@partitioned
@TOKENS
@click.option("--named/--no-named", default=None, help="Cost the named schedules beside it, or not.")
@click.option("--beside", multiple=True, metavar="SCHEDULE", help="A second schedule, or several in a row, beside it.")
@click.option(
    "--trace", metavar="DIR", help="A profile of the step, by jax.profiler.trace, to put beside the estimate."
)
@click.option("--output", metavar="FILE", default="report.html", show_default=True, help="The page to write.")
def report(
    asked: Asked, as_json: bool, tokens: int | None, named: bool | None, beside: tuple[str, ...], trace: str | None,
    output: str,
) -> None:  # fmt: skip
    """Write a page about the partitioned PROGRAM that a browser opens without a network.

    \b
    Example:
      autopart report model.mlir --mesh batch=8 --device tpu_v3 --schedule "DP(batch)" --output report.html
    """
    other = asked.by(beside).lowered() if beside else None
    asked.lowered().report(output, tokens=tokens, named=named, beside=other, trace=trace)
    show(output, {"report": output}, as_json)
