"""`autopart search`: a schedule found by an optimizer, what comes next, and what would fit."""

from __future__ import annotations

import shlex
from typing import Any

import click

from autopart.api.compared.named import named_schedules
from autopart.api.compared.ranking import ranking
from autopart.api.jitted.lowered import Lowered
from autopart.api.tactics.automatic import AutomaticPartition
from autopart.cli.asked import Asked
from autopart.cli.command_options import (
    BUDGET,
    CACHE,
    EXECUTOR,
    OPTIMIZER,
    SAVE_PLAN,
    SEED,
    TOKENS,
    partitioned,
    show,
    whether,
)  # fmt: skip
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
@click.option(
    "--uneven",
    type=click.Choice(["refuse", "pad"]),
    default="refuse",
    show_default=True,
    help="What becomes of dims that an axis does not divide: pad makes them longer where that pays.",
)
@click.option("--stages", metavar="AXIS,...", help="Axes along which layers may be in stages, as ap.Pipeline has them.")
@click.option(
    "--referee",
    metavar="NAME",
    help="What costs the finalists again: a cost model, or what XLA compiles for: h100, h100:1x4x8, or v5e:2x4.",
)
@click.option("--named", is_flag=True, help="Cost the named schedules, and search no further.")
@click.option(
    "--top", type=click.IntRange(1), default=None, help="The so many best schedules, and what sets them apart."
)
@click.option("--report", "page", metavar="FILE", help="Write a page about the result.")
@TOKENS
@SAVE_PLAN
def search(
    asked: Asked, as_json: bool, top: int | None, page: str | None, tokens: int | None,
    save_plan: str | None, named: bool, **options: Any,
) -> int:  # fmt: skip
    """Search a schedule for PROGRAM by estimated cost, after --schedule where one is given.

    Prints what was found beside the named schedules, and the code of it. Exit code 1: nothing found fits in memory.

    \b
    Example:
      autopart search model.mlir --mesh batch=4,model=2 --device tpu_v3 --budget 200 --save-plan plan.json
    """
    asked.check_device("a search goes by seconds on a device")
    if named:
        rows = named_schedules(asked.given.fun, asked.mesh, asked.given.args, **asked.given.options)
        show(rows, [vars(row) for row in rows][:top], as_json)
        return whether(rows.best.fits)
    low = asked.searched(search_of(asked, **options))
    if save_plan:
        low.plan.save(save_plan)
    if page:
        low.report(page, tokens=tokens)
    data, text = described(low), f"{low.metadata}\n\n{low.metadata.as_schedule()}"
    if top:
        rows = ranking(low, top)
        data, text = {**data, "top": [row.plain() for row in rows]}, "\n".join(map(str, rows))
    if commands := what_fits(low, asked):
        data, text = {**data, "fits": commands}, "\n".join([text, "", "what would fit:", *commands])
    show(text, data, as_json)
    return whether(low.estimate is None or low.estimate.fits)


def search_of(
    asked: Asked, *, axes: str | None = None, optimizer: str = "mcts", budget: int | None = None,
    seconds: float | None = None, seed: int = 0, executor: str = "serial", cache: bool = True, uneven: str = "refuse",
    referee: str | None = None, stages: str | None = None,
) -> AutomaticPartition:  # fmt: skip
    """The search that options mean."""
    limits = {"evaluations": budget} if budget is not None else {}
    return AutomaticPartition(
        axes.split(",") if axes else asked.mesh.axis_names, optimizer=optimizer, seed=seed, executor=executor,
        budget=Budget(**limits, seconds=seconds), cache=cache, uneven=uneven, referee=referee,
        microbatch=asked.microbatch, recompute=tuple(asked.recompute), stages=stages.split(",") if stages else False,
    )  # fmt: skip


def what_fits(low: Lowered, asked: Asked) -> list[str]:
    """Commands whose results fit, where that of a search does not, each with what the step takes as a comment."""
    found = [change for tactic in low.metadata.tactics for change in tactic.report.get("advice_options", ())]
    commands = {f"autopart search {shlex.join(asked.words(**options))}": cost for options, cost in found}
    return [f"{command}  # {cost}" for command, cost in commands.items()]
