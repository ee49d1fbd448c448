"""The simulator beside the TPU compiler, on models in bf16 with parameters in f32.

python -m experiments.mixed_precision                    with the compiler's figures kept in `compiler.json`; seconds
python -m experiments.mixed_precision compile [NAME]     compiles what is not kept: pip install libtpu, a minute each
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autopart.costmodel.xla.optimised_hlo import estimated_cycles
from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.xla_compile import CLOCK_HZ, compile_device_local
from experiments.kept import write
from experiments.mixed_precision.programs import TOPOLOGY, MixedPair, pairs

COMPILER = Path(__file__).with_name("compiler.json")
RESULTS = Path(__file__).with_name("results.json")

NEAR = (0.8, 1.25)


def main(words: list[str]) -> None:
    """See the module."""
    kept = json.loads(COMPILER.read_text()) if COMPILER.exists() else {}
    if words[:1] == ["compile"]:
        for pair in pairs():
            if pair.name not in kept and all(word in pair.name for word in words[1:]):
                kept[pair.name] = compiled(pair)
                print(pair.name, kept[pair.name], flush=True)
                COMPILER.write_text(json.dumps(kept, indent=0) + "\n")
    rows = [row(pair, kept[pair.name]) for pair in pairs() if pair.name in kept]
    print(table(rows))
    halves = {"tuned": [r for r in rows if r["tuned"]], "held out": [r for r in rows if not r["tuned"]]}
    summary = {name: summed_up(half) for name, half in halves.items()}
    for name, figures in summary.items():
        print(name, figures)
    write(RESULTS, {"summary": summary, "rows": rows})


def compiled(pair: MixedPair) -> dict[str, float]:
    """The compiler's memory, and seconds of its cycles."""
    devices = topology_devices(TOPOLOGY)
    program = compile_device_local(pair.lower().program, devices, TOPOLOGY)
    stats, clock_hz = program.memory_analysis(), CLOCK_HZ[devices[0].device_kind.lower()]
    outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return {
        "peak_bytes": stats.argument_size_in_bytes + outputs + stats.temp_size_in_bytes,
        "compute_s": estimated_cycles(program.as_text() or "") / clock_hz,
    }


def row(pair: MixedPair, theirs: dict[str, float]) -> dict[str, Any]:
    """Ours over the compiler's."""
    ours = pair.lower().estimate
    assert ours is not None
    return {
        "pair": pair.name,
        "tuned": pair.tuned,
        "compute_ms": round(1e3 * ours.compute_s, 2),
        "compute_ratio": round(ours.compute_s / theirs["compute_s"], 3),
        "peak_gb": round(ours.peak_bytes / 1e9, 3),
        "peak_ratio": round(ours.peak_bytes / theirs["peak_bytes"], 3),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """As the README has it."""
    lines = [
        "| model, schedule | compute ms | of the compiler's | peak GB | of the compiler's | |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['pair']} | {r['compute_ms']:.1f} | {r['compute_ratio']:.2f} | {r['peak_gb']:.2f} "
        f"| {r['peak_ratio']:.2f} | {'tuned' if r['tuned'] else ''} |"
        for r in rows
    ]
    return "\n".join(lines)


def summed_up(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Ours over the compiler's, in a few figures."""
    if not rows:
        return {"pairs": 0}
    compute, peak = ([r[key] for r in rows] for key in ("compute_ratio", "peak_ratio"))
    return {
        "pairs": len(rows),
        "compute_geomean": round(math.exp(sum(map(math.log, compute)) / len(rows)), 3),
        "compute_least": min(compute),
        "compute_most": max(compute),
        "compute_within": round(sum(NEAR[0] <= r <= NEAR[1] for r in compute) / len(rows), 3),
        "peak_least": min(peak),
        "peak_most": max(peak),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
