"""`autopart completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete autopart's commands and options.

    \b
    Example:
      autopart completion bash > autopart.bash
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"{shell} is not supported")
    click.echo(found(context.find_root().command, {}, "autopart", "_AUTOPART_COMPLETE").source())
