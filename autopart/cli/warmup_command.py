"""`autopart warmup`: the kernels compiled ahead of time."""

from __future__ import annotations

import click

from autopart.api.jitted.warmup import warmup as compile_kernels
from autopart.cli.command_options import JSON, show


@click.command()
@JSON
def warmup(as_json: bool) -> None:
    """Compile the kernels of estimates and searches, for an image or for workers that share a disk.

    \b
    Example:
      autopart warmup
    """
    seconds = compile_kernels()
    show(f"kernels are compiled, or were: {seconds:.1f} s", {"seconds": seconds}, as_json)
