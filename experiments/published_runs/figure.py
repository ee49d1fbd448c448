"""The plot: estimated tokens per second of all devices over the published ones, a point a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

COLORS = {
    "tpu_v6e": "#0b7a75", "tpu_v5p": "#7fb7be", "h100": "#d1495b", "a100_80gb": "#edae49", "h200": "#8d1c31",
    "b200": "#5f4b8b", "gb200": "#b39ddb",
}  # fmt: skip
NAMES = {
    "tpu_v6e": "TPU v6e", "tpu_v5p": "TPU v5p", "h100": "H100", "a100_80gb": "A100", "h200": "H200", "b200": "B200",
    "gb200": "GB200",
}  # fmt: skip
LIMITS = 20.0, 50000.0


def draw(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Writes the plot as SVG; the same rows make the same file."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "published", "font.size": 10})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 5.2))
    ends = list(LIMITS)
    axes.fill_between(ends, [x / 1.25 for x in ends], [x * 1.25 for x in ends], color="#eeeeee", label="within 25 %")
    axes.plot(ends, ends, color="#888888", linewidth=0.8)
    for device, color in COLORS.items():
        of = [row for row in rows if row["device"] == device]
        size = [14 * math.log2(row["parameters"] / 1e9) + 10 for row in of]
        points = [row["published"] for row in of], [row["estimated"] for row in of]
        axes.scatter(*points, s=size, color=color, edgecolor="white", zorder=3, label=NAMES[device])
    axes.set(xscale="log", yscale="log", xlim=LIMITS, ylim=LIMITS)
    axes.set(xlabel="published tokens/s per device", ylabel="estimated tokens/s per device")
    axes.set_title("Training runs of others, estimated without their hardware", fontsize=11)
    axes.legend(frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
