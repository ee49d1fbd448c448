"""`autopart ops`: the table of ops and their tile mappings."""

from __future__ import annotations

import click

from autopart.api.trace import load
from autopart.core.ops.ops_table import coverage as coverage_of
from autopart.core.ops.ops_table import ops_table
from autopart.costmodel.flop_table import flop_table


@click.command()
@click.option("--coverage", metavar="FILE", help="How much of a StableHLO file's ops have a rule, instead.")
@click.option("--flop", is_flag=True, help="Flop of every op's examples beside XLA's count, instead.")
def ops(coverage: str | None, flop: bool) -> None:
    """List the tile mappings of every op that has a rule.

    \b
    Example:
      autopart ops --coverage model.mlir
    """
    if coverage and flop:
        raise click.UsageError("--coverage and --flop are two tables: ask for one")
    if coverage:
        click.echo(coverage_of(load(coverage).traced.program))
    else:
        click.echo(flop_table() if flop else ops_table())
