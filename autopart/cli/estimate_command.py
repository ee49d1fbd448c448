"""`autopart estimate`: seconds and bytes of a partitioned program."""

from __future__ import annotations

import json

import click

from autopart.base.errors import MeshError
from autopart.cli.asked import Asked
from autopart.cli.command_options import partitioned, show, whether


@click.command()
@partitioned
@click.option("--top", type=click.IntRange(0), default=0, help="Also the so many slowest ops and largest buffers.")
def estimate(asked: Asked, as_json: bool, top: int) -> int:
    """Estimate seconds and bytes of PROGRAM, partitioned by a schedule. Exit code 1: it does not fit in memory.

    \b
    Example:
      autopart estimate model.mlir --mesh batch=8 --device tpu_v3 --schedule "DP(batch)" --top 5
    """
    asked.check_device("an estimate is of a device")
    found = asked.lowered().estimate
    if found is None:
        raise MeshError(f"nothing prices {asked.mesh.device}")
    show(f"{found}\n\n{found.top(top)}" if top else found, json.loads(found.to_json()), as_json)
    return whether(found.fits)
