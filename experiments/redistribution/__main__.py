"""Plans, against Shardy's and XLA's on the same problems, and their time and memory on simulated devices.

python -m experiments.redistribution             everything (half an hour on 2 cores): results.json, figure_14.png
python -m experiments.redistribution plans       our planner and Shardy's: cost, height, planning time (seconds)
python -m experiments.redistribution xla         XLA's collectives and temporary memory, compiled beside ours (minutes)
python -m experiments.redistribution time        run time on 8 devices, interleaved with XLA's (minutes)
"""

from __future__ import annotations

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=24".strip()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.kept import write
from experiments.redistribution import compiled, figure, planned, timed

RESULTS = Path(__file__).with_name("results.json")
FIGURE = Path(__file__).with_name("figure_14.png")

PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "plans": planned.measure,
    "xla": compiled.measure,
    "time": timed.measure,
}


def main(names: list[str]) -> None:
    unknown = set(names) - set(PARTS)
    if unknown:
        raise SystemExit(f"no part is called {sorted(unknown)}; known: {', '.join(PARTS)}")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names or PARTS:
        results[name] = PARTS[name]()
        write(RESULTS, results)
    if "time" in results:
        figure.draw(results["time"]["problems"], FIGURE)
        print(f"wrote {RESULTS.name} and {FIGURE.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
