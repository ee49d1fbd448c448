"""What the TPU compiler says of each pair: memory and estimated cycles, kept in `compiler.json` with the date."""

from __future__ import annotations

import datetime
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autopart.costmodel.optimised_hlo import OptimisedHlo
from autopart.costmodel.xla_compile import compile_device_local, compute_seconds, topology_devices
from experiments.simulator_accuracy.outside_pairs import OutsidePair, outside_pairs
from experiments.simulator_accuracy.pairs import PAIRS, Pair

KEPT = Path(__file__).with_name("compiler.json")


def compile_pair(pair: Pair | OutsidePair) -> dict[str, Any]:
    """Compiles a pair for its topology; half a minute to five."""
    devices = topology_devices(pair.on[0])
    local, started = pair.lower().program, time.perf_counter()
    compiled = compile_device_local(local, devices, pair.on[0])
    stats, text = compiled.memory_analysis(), compiled.as_text()
    outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return {
        "argument_bytes": stats.argument_size_in_bytes,
        "peak_bytes": stats.argument_size_in_bytes + outputs + stats.temp_size_in_bytes,
        "compute_s": compute_seconds(OptimisedHlo(text), devices[0]),
        "rematerialised": text.count(".remat"),
        "compile_s": round(time.perf_counter() - started, 1),
    }


def compile_all(names: list[str]) -> None:
    """Compiles pairs and keeps what came out: those whose name contains one of `names`; without names, those not kept.

    A pair is compiled once: after a change to its program or to the lowering, name it.
    """
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"pairs": {}}
    kept["date"] = datetime.date.today().isoformat()
    kept["versions"] = {package: version(package) for package in ("jax", "libtpu")}
    for pair in (*PAIRS, *outside_pairs()):
        if any(name in pair.name for name in names) or (not names and pair.name not in kept["pairs"]):
            kept["pairs"][pair.name] = compile_pair(pair)
            KEPT.write_text(json.dumps(kept, indent=1) + "\n")
            print(pair.name, kept["pairs"][pair.name], flush=True)
