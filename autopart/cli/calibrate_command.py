"""`autopart calibrate`: a device entry measured on the devices that are there."""

from __future__ import annotations

import click

from autopart.api.measured.calibration import calibrate as measured


@click.command()
@click.argument("file")
@click.option("--like", metavar="NAME", help="The device whose other figures hold; `autopart devices` lists them.")
@click.option("--seconds", type=click.FloatRange(1), default=120.0, show_default=True, help="About how long.")
def calibrate(file: str, like: str | None, seconds: float) -> None:
    """Measure the devices of this machine, and write what they can do to FILE, which --device takes.

    \b
    Example:
      autopart calibrate mine.json
    """
    click.echo(str(measured(file, like=like, seconds=seconds)))
