"""The plot of a sweep: seconds against memory, a labelled point per mesh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autopart.base.errors import PartitionError
from autopart.costmodel.hardware.devices import device

if TYPE_CHECKING:
    from autopart.api.compared.sweep_rows import Sweep


def write_plot(sweep: Sweep, path: str | Path) -> None:
    """Writes the plot to `path`, whose ending says in which format. Raises `PartitionError` without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise PartitionError(
            "a plot needs matplotlib, which is not installed", hint="pip install 'autopart[plots]'"
        ) from None

    figure = Figure(figsize=(7, 5), layout="constrained")
    plot = figure.subplots()
    for row in sweep.rows:
        if row.step_s is None or row.peak_bytes is None:
            continue
        at = (row.peak_bytes / 1e9, row.step_s * 1e3)
        plot.plot(*at, "o" if row.fits else "x", color="tab:blue" if row.fits else "tab:gray")
        plot.annotate(str(row.mesh), at, xytext=(4, 4), textcoords="offset points", fontsize=8)
    if sweep.device is not None:
        limit = device(sweep.device).hbm_bytes / 1e9
        plot.axvline(limit, linestyle=":", color="tab:red", label=f"{sweep.device} memory")
        plot.legend()
    plot.set(xscale="log", yscale="log", xlabel="peak memory per device (GB)", ylabel="step (ms)")
    figure.savefig(path)
