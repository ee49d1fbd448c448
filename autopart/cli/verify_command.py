"""`autopart verify`: does the partitioned program compute the same?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import click

from autopart.api.verification import host_devices
from autopart.api.verification import verify as verified
from autopart.cli.command_inputs import mesh_of, program_of, schedule_of
from autopart.cli.command_options import partitioned, show, whether


@click.command()
@partitioned
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the arrays that are made up.")
@click.option("--tolerance", type=click.FloatRange(0), default=None, help="Of differences; see the documentation.")
def verify(
    program: str, mesh: str, device: str | None, schedule: Sequence[str], as_json: bool, seed: int,
    tolerance: float | None,
) -> int:  # fmt: skip
    """Run PROGRAM whole and partitioned on simulated host devices, and compare. Exit code 1: the results differ.

    Arguments that are shapes alone are filled with random numbers.

    \b
    Example:
      autopart verify model.mlir --mesh batch=8 --schedule "DP(batch)"
    """
    over = mesh_of(mesh, device)
    host_devices(over.size)
    given = program_of(program)
    found = verified(
        given.fun, over, schedule_of(schedule), given.args, seed=seed, tolerance=tolerance, **given.options
    )
    data = {"agrees": found.agrees, "outputs": [dataclasses.asdict(row) for row in found.rows]}
    show(found, data, as_json)
    return whether(found.agrees)
