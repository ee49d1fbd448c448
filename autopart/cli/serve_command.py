"""`autopart serve`: the same questions, asked by an assistant."""

from __future__ import annotations

import click

from autopart.cli.mcp_server import serve_over_stdio


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
    serve_over_stdio()
