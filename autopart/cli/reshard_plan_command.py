"""`autopart reshard-plan`: the collectives between two layouts."""

from __future__ import annotations

import click
from jax.sharding import PartitionSpec

from autopart.api.reshard import redistribution_plan
from autopart.cli.command_inputs import layout_of, mesh_of, numbers_of
from autopart.cli.command_options import JSON, MESH, show


@click.command("reshard-plan")
@click.argument("source")
@click.argument("target")
@MESH
@click.option("--shape", required=True, metavar="SIZE,...", help="The shape of the whole array.")
@click.option("--dtype", default="float32", show_default=True, help="Its element type.")
@JSON
def reshard_plan(source: str, target: str, mesh: str, shape: str, dtype: str, as_json: bool) -> None:
    """Plan the collectives that take an array from the layout SOURCE to TARGET.

    A layout has an entry per dim with commas between them: the axes that tile it, joined by +, or _ for none.

    \b
    Example:
      autopart reshard-plan a,_ _,a --mesh a=4 --shape 8,8
    """
    before, after = (PartitionSpec(*layout_of(text)) for text in (source, target))
    sizes = numbers_of(shape, "shape", "sizes with commas between them, as in 8,128")
    found = redistribution_plan(before, after, sizes, dtype, mesh_of(mesh, None))
    steps = [line.strip() for line in str(found).splitlines()[1:]]
    show(found, {"cost": found.cost, "height": found.height, "steps": steps}, as_json)
