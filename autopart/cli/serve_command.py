"""`autopart serve`: the same questions, asked by an assistant."""

from __future__ import annotations

import click

from autopart.core.errors import ArgumentError


@click.command()
@click.option("--mcp", "as_mcp", is_flag=True, help="Speak the Model Context Protocol over stdin and stdout.")
def serve(as_mcp: bool) -> None:
    """Serve explain, what_if, search and sweep as tools for assistants, until stdin ends.

    \b
    Example:
      autopart serve --mcp
    """
    if not as_mcp:
        raise click.UsageError("--mcp is the one protocol that there is")
    try:
        from autopart.cli.mcp_server import server
    except ModuleNotFoundError as error:
        raise ArgumentError(
            "autopart serve needs the package mcp", why=str(error), hint="pip install 'autopart[mcp]'"
        ) from None
    server().run("stdio")
