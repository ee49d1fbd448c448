"""`autopart sweep`: a search on every mesh of a number of devices."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from autopart.api.sweep import SWEEP_BUDGET
from autopart.api.sweep import sweep as sweep_meshes
from autopart.cli.command_inputs import program_of, schedule_of
from autopart.cli.command_options import (
    BUDGET,
    CACHE,
    EXECUTOR,
    JSON,
    OPTIMIZER,
    PROGRAM,
    SCHEDULE,
    SEED,
    show,
    whether,
)
from autopart.search.budget import Budget


@click.command()
@PROGRAM
@click.option("--devices", type=click.IntRange(1), required=True, help="How many devices there are.")
@click.option("--device", required=True, metavar="NAME", help="Which; `autopart devices` lists them.")
@click.option("--axes", default="batch,model", show_default=True, metavar="AXIS,...", help="The axes of the meshes.")
@SCHEDULE
@OPTIMIZER
@BUDGET
@SEED
@EXECUTOR
@CACHE
@click.option("--csv", metavar="FILE", help="Write the table to a file too.")
@JSON
def sweep(
    program: str, devices: int, device: str, axes: str, schedule: Sequence[str], optimizer: str, budget: int | None,
    seed: int, executor: str, cache: bool, csv: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Search a schedule for PROGRAM on every mesh of so many devices. Exit code 1: it fits on none.

    \b
    Example:
      autopart sweep model.mlir --devices 8 --device tpu_v3 --budget 50
    """
    given = program_of(program)
    result = sweep_meshes(
        given.fun, given.args, devices=devices, device=device, axes=axes.split(","), schedule=schedule_of(schedule),
        optimizer=optimizer, budget=SWEEP_BUDGET if budget is None else Budget(budget), seed=seed, executor=executor,
        cache=cache, **given.options,
    )  # fmt: skip
    if csv:
        result.to_csv(csv)
    show(result, json.loads(result.to_json()), as_json)
    return whether(any(row.fits for row in result.rows))
