"""The bound and what each optimizer found in equal CPU seconds, over the best of them: a group of bars per program."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Writes the plot of the rows of `--gaps`."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    import numpy as np

    figure, panel = plt.subplots(figsize=(1.8 * len(rows) + 2, 4))
    names, at = list(rows[0]["optimizers"]), np.arange(len(rows))
    best = np.array([min(found["score"] for found in row["optimizers"].values()) for row in rows])
    width = 0.8 / len(names)
    for n, name in enumerate(names):
        scores = [row["optimizers"].get(name, {"score": np.nan})["score"] for row in rows]
        panel.bar(at + (n - (len(names) - 1) / 2) * width, scores / best, width, label=name)
    bounds = np.array([row["lower_bound"] for row in rows]) / best
    panel.hlines(bounds, at - 0.45, at + 0.45, color="black", label="bound")
    panel.set_xticks(at, [row["name"] for row in rows])
    panel.set_ylabel(f"score over the best, after {rows[0]['of_s']:.0f} CPU seconds")
    panel.legend(ncol=4, fontsize="small", loc="upper left")
    panel.set_ylim(0, 2)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
