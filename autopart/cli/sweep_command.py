"""`autopart sweep`: a search on every mesh of a number of devices, of one kind or several."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from autopart.api.compared.sweep import SWEEP_BUDGET
from autopart.api.compared.sweep import sweep as sweep_meshes
from autopart.api.compared.sweep_rows import Sweep
from autopart.cli.command_inputs import prices_of, program_of, schedule_of, sizes_of
from autopart.cli.command_options import (
    BUDGET,
    CACHE,
    EXECUTOR,
    JSON,
    OPTIMIZER,
    PROGRAM,
    SCHEDULE,
    SEED,
    TOKENS,
    show,
    whether,
)  # fmt: skip
from autopart.search.budget import Budget


@click.command()
@PROGRAM
@click.option("--devices", required=True, metavar="N", help="How many there are, or of each kind: h100=64,tpu_v5p=32.")
@click.option("--device", metavar="NAME", help="Which, where --devices is a number; `autopart devices` lists them.")
@click.option("--price", metavar="NAME=PRICE,...", help="Of a device and hour, as in h100=2.5.")
@TOKENS
@click.option("--axes", default="batch,model", show_default=True, metavar="AXIS,...", help="The axes of the meshes.")
@SCHEDULE
@OPTIMIZER
@BUDGET
@SEED
@EXECUTOR
@CACHE
@click.option("--csv", metavar="FILE", help="Write the table to a file too.")
@JSON
def sweep(as_json: bool, csv: str | None, **words: Any) -> int:
    """Search a schedule for PROGRAM on every mesh of so many devices. Exit code 1: it fits on none.

    \b
    Example:
      autopart sweep model.mlir --devices 8 --device tpu_v3 --budget 50
    """
    result = swept(**words)
    if csv:
        result.to_csv(csv)
    show(result, json.loads(result.to_json()), as_json)
    return whether(any(row.fits for row in result.rows))


def swept(
    program: str, devices: str, device: str | None = None, price: str | None = None, tokens: int | None = None,
    axes: str = "batch,model", schedule: Sequence[str] = (), optimizer: str = "mcts", budget: int | None = None,
    seed: int = 0, executor: str = "serial", cache: bool = True,
) -> Sweep:  # fmt: skip
    """The sweep that words mean."""
    given = program_of(program)
    return sweep_meshes(
        given.fun, given.args, device=device, tokens=tokens, axes=axes.split(","), schedule=schedule_of(schedule),
        devices=int(devices) if devices.isdecimal() else sizes_of(devices, "device", "h100=64,tpu_v5p=32"),
        price=prices_of(price) if price else None, optimizer=optimizer, seed=seed, executor=executor, cache=cache,
        budget=SWEEP_BUDGET if budget is None else Budget(budget), **given.options,
    )  # fmt: skip
