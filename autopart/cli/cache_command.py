"""`autopart cache`: the results of searches that are kept on disk."""

from __future__ import annotations

import click

from autopart.base.units import bytes_text
from autopart.cli.command_options import JSON, show
from autopart.search.storage.cache import clear, default_directory, kept


@click.command()
@click.option("--clear", "is_cleared", is_flag=True, help="Delete them.")
@JSON
def cache(is_cleared: bool, as_json: bool) -> None:
    """Show where results of searches are kept and how much they take; $AUTOPART_CACHE_DIR chooses the place.

    \b
    Example:
      autopart cache --clear
    """
    directory = default_directory()
    files = clear(directory) if is_cleared else kept(directory)
    size = sum(files.values())
    did = "deleted" if is_cleared else "kept"
    data = {"directory": str(directory), "results": len(files), "bytes": size, "deleted": is_cleared}
    show(f"{directory}: {len(files)} results {did}, {bytes_text(size)}", data, as_json)
