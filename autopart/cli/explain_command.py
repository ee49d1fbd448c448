"""`autopart explain`: why an array lies as it does."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import click

from autopart.cli.command_inputs import mesh_of, program_of, schedule_of
from autopart.cli.command_options import partitioned, show


@click.command()
@partitioned
@click.argument("path")
def explain(
    program: str, mesh: str, device: str | None, schedule: Sequence[str], as_json: bool, path: str
) -> None:  # fmt: skip
    """Explain why the array at PATH, such as params/blocks/3/qkv, is laid out as it is in the partitioned PROGRAM.

    \b
    Example:
      autopart explain model.mlir w1 --mesh batch=8 --device tpu_v3 --schedule "DP(batch)"
    """
    low: Any = program_of(program).lowered(mesh_of(mesh, device), schedule_of(schedule))
    found = low.explain(path)
    data = dataclasses.asdict(found) if dataclasses.is_dataclass(found) and not isinstance(found, type) else None
    show(found, data if data is not None else {"text": str(found)}, as_json)
