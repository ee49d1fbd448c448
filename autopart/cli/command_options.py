"""Arguments that several subcommands take, and how they print."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import click

from autopart.cli.asked import Asked

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
TOKENS = click.option(
    "--tokens", type=click.IntRange(1), help="Tokens in a step; found in the inputs where they can be."
)
SAVE_PLAN = click.option("--save-plan", metavar="FILE", help="Write the plan of the result to a file.")
OPTIMIZER = click.option("--optimizer", default="mcts", show_default=True, help="Who searches: mcts, ilp, beam, ...")
BUDGET = click.option("--budget", type=click.IntRange(0), default=None, help="Evaluations at most.")
SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Same seed, same result.")
EXECUTOR = click.option("--executor", default="serial", show_default=True, help="serial, processes or ray.")
CACHE = click.option("--cache/--no-cache", default=True, show_default=True, help="Keep and recall results on disk.")


MICROBATCH = click.option(
    "--microbatch",
    metavar="N",
    help="Run the step in a loop over N parts of its batch. A search takes several, as in 1,2,4, and chooses one.",
)
RECOMPUTE = click.option(
    "--recompute",
    multiple=True,
    metavar="POLICY",
    help='Compute results again for late uses, but for what is kept: "blocks", "matmuls", "nothing", a tag or a '
    "pattern of scopes. A search chooses among several, and keeping all.",
)
ARGUMENTS = click.option(
    "--args",
    "arguments",
    metavar="MODULE:FUNCTION",
    help="A function without arguments that returns the program's arguments, in the place of those it comes with.",
)


def partitioned(command: Command) -> Command:
    """Gives a command a program with a mesh, a device, a schedule and rewritings, as an `Asked`."""

    @functools.wraps(command)
    def run(
        program: str, mesh: str, device: str | None, schedule: Sequence[str], microbatch: str | None,
        recompute: Sequence[str], arguments: str | None, **rest: Any,
    ) -> Any:  # fmt: skip
        return command(Asked(program, mesh, device, schedule, microbatch, recompute, arguments), **rest)

    for option in (JSON, ARGUMENTS, RECOMPUTE, MICROBATCH, SCHEDULE, DEVICE, MESH, PROGRAM):
        run = option(run)
    return cast(Command, run)


def show(text: object, data: Any, as_json: bool) -> None:
    """Prints the one or the other."""
    click.echo(json.dumps(data, indent=1) if as_json else str(text))


def whether(answer: bool) -> int:
    """The exit code of an answer."""
    return 0 if answer else 1
