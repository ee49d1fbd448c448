"""`autopart what-if`: what another decision would cost."""

from __future__ import annotations

import dataclasses

import click

from autopart.api.tactics.manual import REPLICATED
from autopart.base.errors import ArgumentError
from autopart.cli.asked import Asked
from autopart.cli.command_options import partitioned, show, whether


@click.command("what-if")
@partitioned
@click.argument("decision")
@click.option("--axis", required=True, metavar="AXIS", help="The mesh axis that tiles it.")
def what_if(asked: Asked, as_json: bool, decision: str, axis: str) -> int:
    """Price another DECISION beside the schedule's: PATH=DIM tiles a dim, PATH=whole keeps an array whole.

    Exit code 1: nothing of it can be decided.

    \b
    Example:
      autopart what-if model.mlir w=1 --axis batch --mesh batch=8 --device tpu_v3 --schedule "DP(batch)"
    """
    found = asked.lowered().what_if(decision_of(decision), axis.split(","))
    show(found, dataclasses.asdict(found), as_json)
    return whether(bool(found.actions) or not found.fails)


def decision_of(text: str) -> dict[str, int | object]:
    """What `params/w=1` and `params/w=whole` say, as `Lowered.what_if` takes it."""
    path, _, dim = text.rpartition("=")
    if not path or not (dim == "whole" or dim.removeprefix("-").isdecimal()):
        raise ArgumentError(f"{text!r} is no decision", hint="PATH=DIM, as in params/w=1, or PATH=whole")
    return {path: REPLICATED if dim == "whole" else int(dim)}
