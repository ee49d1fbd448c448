"""`autopart estimate`: seconds and bytes of a partitioned program."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from autopart.cli.command_inputs import mesh_of, program_of, schedule_of
from autopart.cli.command_options import partitioned, show, whether
from autopart.core.errors import MeshError
from autopart.costmodel.hardware.devices import devices


@click.command()
@partitioned
@click.option("--top", type=click.IntRange(0), default=0, help="Also the so many slowest ops and largest buffers.")
def estimate(
    program: str, mesh: str, device: str | None, schedule: Sequence[str], as_json: bool, top: int
) -> int:  # fmt: skip
    """Estimate seconds and bytes of PROGRAM, partitioned by a schedule. Exit code 1: it does not fit in memory.

    \b
    Example:
      autopart estimate model.mlir --mesh batch=8 --device tpu_v3 --schedule "DP(batch)" --top 5
    """
    if device is None:
        raise MeshError("an estimate is of a device", hint=f"--device, one of {', '.join(sorted(devices()))}")
    found = program_of(program).lowered(mesh_of(mesh, device), schedule_of(schedule)).estimate
    if found is None:
        raise MeshError(f"nothing prices {device}")
    show(f"{found}\n\n{found.top(top)}" if top else found, json.loads(found.to_json()), as_json)
    return whether(found.fits)
