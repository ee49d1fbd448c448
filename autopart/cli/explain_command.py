"""`autopart explain`: why an array lies as it does."""

from __future__ import annotations

import dataclasses

import click

from autopart.cli.asked import Asked
from autopart.cli.command_options import partitioned, show


@click.command()
@partitioned
@click.argument("path")
def explain(asked: Asked, as_json: bool, path: str) -> None:
    """Explain why the array at PATH, such as params/blocks/3/qkv, is laid out as it is in the partitioned PROGRAM.

    \b
    Example:
      autopart explain model.mlir w1 --mesh batch=8 --device tpu_v3 --schedule "DP(batch)"
    """
    found = asked.lowered().explain(path)
    show(found, dataclasses.asdict(found), as_json)
