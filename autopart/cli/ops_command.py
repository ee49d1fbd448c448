"""`autopart ops`: the table of ops and their tile mappings."""

from __future__ import annotations

import click

from autopart.api.kernels.known_kernels import kernels_table
from autopart.cli.command_inputs import program_of
from autopart.cli.command_options import JSON, show
from autopart.core.ops.ops_table import coverage as coverage_of
from autopart.core.ops.ops_table import ops_rows, ops_table
from autopart.costmodel.flop_table import flop_table


@click.command()
@click.option("--coverage", metavar="PROGRAM", help="How much of a program's ops have a rule, instead.")
@click.option("--flop", is_flag=True, help="Flop of every op's examples beside XLA's count, instead.")
@JSON
def ops(coverage: str | None, flop: bool, as_json: bool) -> None:
    """List the tile mappings of every op that has a rule. --json is of this list, not of the other two tables.

    \b
    Example:
      autopart ops --coverage model.mlir
    """
    if coverage and flop:
        raise click.UsageError("--coverage and --flop are two tables: ask for one")
    if as_json and (coverage or flop):
        raise click.UsageError("--json is of the list of mappings, without --coverage and --flop")
    if coverage:
        click.echo(coverage_of(program_of(coverage).traced().program))
    elif flop:
        click.echo(flop_table())
    else:
        show("" if as_json else f"{ops_table()}\n\n{kernels_table()}", ops_rows() if as_json else None, as_json)
