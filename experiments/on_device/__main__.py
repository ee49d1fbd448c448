"""The simulator, and the GPU's referee, beside steps that ran on one device.

python -m experiments.on_device                with what is kept in `h100.json`; writes results.json, a row per step
python -m experiments.on_device keep OUT       makes `h100.json` of what `measure.py` left in OUT; its programs stay
                                               in `tests/data/h100`, where they are small
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import autopart as ap
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.xla.gpu_kernels import kernel_seconds
from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
from experiments import kept
from experiments.on_device.steps import STEPS

FOLDER = Path(__file__).parent
KEPT = FOLDER / "h100.json"
PROGRAMS = FOLDER.parents[1] / "tests" / "data" / "h100"
SMALL = 40_000
"""Bytes of a program that is kept."""

PRODUCT = re.compile("gemm|cutlass|cublas|splitKreduce")
CONVOLUTION = re.compile("conv|fprop|wgrad|dgrad|cudnn|cask")


def kind_of(op: str, kernel: str) -> str:
    """Product, convolution or other, by the instruction and the kernel that it ran."""
    if "conv" in op and not op.startswith("command"):
        return "convolution"
    return "product" if PRODUCT.search(kernel) else "convolution" if CONVOLUTION.search(kernel) else "other"


def keep(out: Path) -> None:
    """Writes `h100.json`: of each step its seconds, bytes, seconds of kernels by kind, and what the referee says."""
    found = json.loads((out / "measured.json").read_text())
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    steps = {}
    for numbered, step in found["steps"].items():
        name, text = numbered.split("-", 1)[1], gzip.decompress((out / f"{numbered}.hlo.gz").read_bytes())
        by_kind: Counter[str] = Counter()
        for op, kernel, _, seconds in step["kernels"]:
            by_kind[kind_of(op, kernel)] += seconds
        steps[name] = {
            "step_s": step["step_s"],
            "kernel_s": sum(by_kind.values()),
            **{f"{kind}_s": seconds for kind, seconds in by_kind.items()},
            "kernels": sum(row[2] for row in step["kernels"]),
            "peak_bytes": step["argument_bytes"] + step["temp_bytes"] + step["output_bytes"] - step["alias_bytes"],
            "referee_s": kernel_seconds(OptimisedHlo(text.decode()), device("h100")),
        }
        smaller = gzip.compress(re.sub(rb", metadata=\{[^}]*\}", b"", text), mtime=0)
        if len(smaller) < SMALL:
            (PROGRAMS / f"{name}.hlo.gz").write_bytes(smaller)
    KEPT.write_text(json.dumps({"device": found["device"], "jax": found["jax"], "steps": steps}, indent=1) + "\n")


def compare() -> list[dict[str, Any]]:
    """A row per step: what was measured, and ours over it."""
    mesh, rows = ap.Mesh({"x": 1}, device="h100"), []
    for name, measured in json.loads(KEPT.read_text())["steps"].items():
        step = STEPS[name]()
        ours = ap.jit(step.function, mesh, donate_argnums=step.donated).lower(*step.arguments).estimate
        rows.append({
            "step": name, "kernel_s": measured["kernel_s"], "step_s": measured["step_s"],
            "compute": ours.compute_s / measured["kernel_s"], "memory": ours.peak_bytes / measured["peak_bytes"],
            "referee": measured["referee_s"] / measured["kernel_s"],
        })  # fmt: skip
        print(line(rows[-1]), flush=True)
    return rows


def line(row: dict[str, Any]) -> str:
    ratios = "".join(f"{row[key]:9.2f}" for key in ("compute", "referee", "memory"))
    return f"{row['step']:<16}{row['kernel_s'] * 1e3:10.2f} ms{row['step_s'] * 1e3:10.2f} ms{ratios}"


def main() -> None:
    if sys.argv[1:2] == ["keep"]:
        keep(Path(sys.argv[2]))
    print(f"{'step':<16}{'kernels':>13}{'step':>13}  compute  referee   memory")
    rows = compare()
    means = {key: statistics.geometric_mean(row[key] for row in rows) for key in ("compute", "referee", "memory")}
    print("geometric means", {key: round(mean, 3) for key, mean in means.items()})
    kept.write(FOLDER / "results.json", {"means": means, "rows": rows})


if __name__ == "__main__":
    main()
