"""`autopart verify`: does the partitioned program compute the same?"""

from __future__ import annotations

import dataclasses

import click

from autopart.api.jitted.verification import host_devices
from autopart.api.jitted.verification import verify as verified
from autopart.base.errors import CallError
from autopart.cli.asked import Asked
from autopart.cli.command_options import partitioned, show, whether

_OTHER_ARGUMENTS = "arrays in the place of shapes, of which the program makes finite numbers"


@click.command()
@partitioned
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the arrays that are made up.")
@click.option("--tolerance", type=click.FloatRange(0), default=None, help="Of differences; see the documentation.")
def verify(asked: Asked, as_json: bool, seed: int, tolerance: float | None) -> int:
    """Run PROGRAM whole and partitioned on simulated host devices, and compare. Exit code 1: the results differ.

    Arguments that are shapes alone are filled with random numbers. Exit code 2: nothing could be compared, since no
    element of the results is finite.

    \b
    Example:
      autopart verify model.mlir --mesh batch=8 --schedule "DP(batch)"
    """
    host_devices(asked.mesh.size)
    given = asked.given
    found = verified(
        given.fun, asked.mesh, asked.tactics(), given.args, seed=seed, tolerance=tolerance, **given.options
    )
    outputs = [dataclasses.asdict(row) for row in found.rows]
    show(found, {"agrees": found.agrees, "compared": found.is_compared, "outputs": outputs}, as_json)
    if found.agrees and not found.is_compared:
        raise CallError(found.summary, hint=_OTHER_ARGUMENTS if found.rows else "")
    return whether(found.agrees)
