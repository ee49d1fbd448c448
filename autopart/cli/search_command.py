"""`autopart search`: a schedule found by an optimizer."""

from __future__ import annotations

from collections.abc import Sequence

import click

from autopart.api.automatic import AutomaticPartition
from autopart.cli.command_inputs import mesh_of, program_of, schedule_of
from autopart.cli.command_options import BUDGET, CACHE, EXECUTOR, OPTIMIZER, SAVE_PLAN, SEED, partitioned, show, whether
from autopart.cli.partition_command import described
from autopart.search.budget import Budget


@click.command()
@partitioned
@click.option("--axes", metavar="AXIS,...", help="The axes to search over; by default all of the mesh.")
@OPTIMIZER
@BUDGET
@click.option("--seconds", type=click.FloatRange(0), default=None, help="Seconds at most.")
@SEED
@EXECUTOR
@CACHE
@SAVE_PLAN
def search(
    program: str, mesh: str, device: str | None, schedule: Sequence[str], as_json: bool, axes: str | None,
    optimizer: str, budget: int | None, seconds: float | None, seed: int, executor: str, cache: bool,
    save_plan: str | None,
) -> int:  # fmt: skip
    """Search a schedule for PROGRAM by estimated cost, after --schedule where one is given.

    Prints what was found beside the named schedules, and the code of it. Exit code 1: nothing found fits in memory.

    \b
    Example:
      autopart search model.mlir --mesh batch=4,model=2 --device tpu_v3 --budget 200 --save-plan plan.json
    """
    over = mesh_of(mesh, device)
    limits = {"evaluations": budget} if budget is not None else {}
    automatic = AutomaticPartition(
        axes.split(",") if axes else over.axis_names, optimizer=optimizer,
        budget=Budget(**limits, seconds=seconds), seed=seed, executor=executor, cache=cache,
    )  # fmt: skip
    low = program_of(program).lowered(over, [*schedule_of(schedule), automatic])
    if save_plan:
        low.plan.save(save_plan)
    show(f"{low.metadata}\n\n{low.metadata.as_schedule()}", described(low), as_json)
    return whether(low.estimate is None or low.estimate.fits)
