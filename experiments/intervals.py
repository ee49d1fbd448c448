"""What estimates state of themselves: quantiles of a compiler's figures over ours, of the plans that are kept.

python -m experiments.intervals        writes autopart/costmodel/hardware/intervals.json
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FILE = HERE.parent / "autopart/costmodel/hardware/intervals.json"
SHARE = 0.9


def between(ratios: Sequence[float]) -> list[float]:
    """The quantiles that `SHARE` of the ratios lie between."""
    found = statistics.quantiles(ratios, n=20, method="inclusive")
    return [round(found[0], 3), round(found[-1], 3)]


def figures() -> dict[str, Any]:
    """By compiler."""
    gpu = json.loads((HERE / "gpu_accuracy/results.json").read_text())["rows"].values()
    compiled = json.loads((HERE / "gpu_accuracy/compiled.json").read_text())
    tpu = json.loads((HERE / "simulator_accuracy/results.json").read_text())["rows"]
    pairs = {
        "xla_gpu": [
            [compiled[row["keys"]["ours"]][name] / row["estimate"][name] for name in ("step_s", "peak_bytes")]
            for row in gpu
        ],
        "xla_tpu": [[row[f"compiler_{name}"] / row[name] for name in ("step_s", "peak_bytes")] for row in tpu],
    }
    by = {"xla_gpu": "XLA's GPU compiler", "xla_tpu": "XLA's TPU compiler"}
    return {
        name: {
            "by": by[name],
            "plans": len(of),
            "step": between([s for s, _ in of]),
            "peak": between([b for _, b in of]),
        }
        for name, of in pairs.items()
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(figures(), indent=1) + "\n")
    print(FILE.read_text())
