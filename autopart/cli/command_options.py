"""Arguments that several subcommands take, and how they print."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

PROGRAM = click.argument("program")
MESH = click.option("--mesh", required=True, metavar="AXIS=SIZE,...", help="The mesh, as in batch=16,model=2.")
DEVICE = click.option("--device", metavar="NAME", help="The device that costs are of; `autopart devices` lists them.")
SCHEDULE = click.option(
    "--schedule",
    multiple=True,
    metavar="SCHEDULE",
    help="A plan (plan.json), a Python file with the list `schedule` (or FILE.py:NAME), or a named schedule such as "
    '"DP(batch)+Megatron(model)". Several follow one another; none leaves everything replicated.',
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
SAVE_PLAN = click.option("--save-plan", metavar="FILE", help="Write the plan of the result to a file.")
OPTIMIZER = click.option("--optimizer", default="mcts", show_default=True, help="Who searches: mcts, ilp, beam, ...")
BUDGET = click.option("--budget", type=click.IntRange(0), default=None, help="Evaluations at most.")
SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Same seed, same result.")
EXECUTOR = click.option("--executor", default="serial", show_default=True, help="serial, processes or ray.")
CACHE = click.option("--cache/--no-cache", default=True, show_default=True, help="Keep and recall results on disk.")


def partitioned(command: Command) -> Command:
    """PROGRAM with a mesh, a device and a schedule."""
    for option in (JSON, SCHEDULE, DEVICE, MESH, PROGRAM):
        command = option(command)
    return command


def show(text: object, data: Any, as_json: bool) -> None:
    """Prints the one or the other."""
    click.echo(json.dumps(data, indent=1) if as_json else str(text))


def whether(answer: bool) -> int:
    """The exit code of an answer."""
    return 0 if answer else 1
