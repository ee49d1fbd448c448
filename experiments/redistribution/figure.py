"""A plot like the paper's Figure 14: run times against each other, and the distribution of their ratios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Writes the plot of the timed problems to `path`."""
    xla, ours = (np.array([row["min_s"][name] for row in rows]) for name in ("xla", "ours"))
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 4))
    left.loglog(xla * 1e3, ours * 1e3, "o", markersize=4)
    ends = [min(xla.min(), ours.min()) * 800, max(xla.max(), ours.max()) * 1250]
    left.plot(ends, ends, "k--", linewidth=1)
    left.set_xlabel("XLA partitioner (ms)")
    left.set_ylabel("ours (ms)")
    left.set_title("run times: below the line, ours is faster")
    ratios = xla / ours
    right.hist(ratios, bins=np.geomspace(ratios.min() * 0.95, ratios.max() * 1.05, 25))
    right.set_xscale("log")
    right.axvline(1, color="k", linestyle="--", linewidth=1)
    right.set_xlabel("XLA / ours")
    right.set_ylabel("problems")
    right.set_title("ratio of run times")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
