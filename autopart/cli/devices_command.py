"""`autopart devices`: the devices that costs can be estimated for."""

from __future__ import annotations

import click

from autopart.cli.command_options import JSON, show
from autopart.costmodel.hardware.device_table import device_rows, device_table


@click.command()
@JSON
def devices(as_json: bool) -> None:
    """List the devices that --device can name, with their memory and speed.

    \b
    Example:
      autopart devices
    """
    show(device_table(), device_rows(), as_json)
