"""`autopart diff`: what differs between two plans."""

from __future__ import annotations

import dataclasses

import click

from autopart.api.plan.plan import Plan
from autopart.cli.command_options import JSON, show, whether


@click.command()
@click.argument("before")
@click.argument("after")
@JSON
def diff(before: str, after: str, as_json: bool) -> int:
    """Show in which layouts, collectives and seconds two plan files differ. Exit code 1: they do.

    \b
    Example:
      autopart diff plan.json other.json
    """
    found = Plan.load(before).diff(Plan.load(after))
    show(found, [dataclasses.asdict(row) for row in found.rows], as_json)
    return whether(not found)
