"""Anytime curves: the score over the best named schedule's, after so many evaluations, a line per program and mesh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

KINDS = ("200", "unseeded", "default")


def draw(stored: dict[str, Any], path: Path) -> None:
    """Writes the plot of every stored search."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(KINDS), figsize=(4.5 * len(KINDS), 4), sharey=True)
    for panel, kind in zip(panels, KINDS, strict=True):
        for row in stored.values():
            if kind in row and "200" in row:
                score = row["200"]["named"]["rank"][1]
                steps = [(max(1, n), s / score) for n, s in row[kind]["history"]]
                last = row[kind]["evaluations"]
                panel.step(*zip(*steps, (last, steps[-1][1]), strict=True), where="post", alpha=0.6) if steps else None
        panel.axhline(1.0, color="black", linewidth=0.8)
        panel.set(xscale="log", yscale="log", ylim=(0.3, 10), xlabel="evaluations", title=kind)
    panels[0].set_ylabel("score over the best named schedule's")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
