"""What the TPU compiler says of each pair: memory and estimated cycles, kept in `compiler.json` with the date.

Each row has a hash of the text that was compiled, so that a pair which is emitted otherwise now is found.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.xla_compile import compile_device_local, compute_seconds
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.emission.export import export
from experiments.simulator_accuracy import labels
from experiments.simulator_accuracy.decode_pairs import DecodePair
from experiments.simulator_accuracy.outside_pairs import OutsidePair, all_pairs
from experiments.simulator_accuracy.pairs import Pair

KEPT = Path(__file__).with_name("compiler.json")


def text_key(local: DeviceLocal) -> str:
    """The device-local program as it is emitted, as a number."""
    return hashlib.sha256(str(export(local)).encode()).hexdigest()[:16]


def compile_pair(pair: Pair | DecodePair | OutsidePair) -> dict[str, Any]:
    """Compiles a pair for its topology; half a minute to five."""
    devices = topology_devices(pair.on[0])
    local, started = pair.lower().program, time.perf_counter()
    compiled = compile_device_local(local, devices, pair.on[0], numbered=True)
    stats, text = compiled.memory_analysis(), compiled.as_text()
    labels.keep(pair.name, text)
    outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return {
        "text": text_key(local),
        "argument_bytes": stats.argument_size_in_bytes,
        "peak_bytes": stats.argument_size_in_bytes + outputs + stats.temp_size_in_bytes,
        "compute_s": compute_seconds(OptimisedHlo(text), devices[0]),
        "rematerialised": text.count(".remat"),
        "compile_s": round(time.perf_counter() - started, 1),
    }


def compile_all(names: list[str]) -> None:
    """Compiles pairs and keeps what came out: those whose name contains one of `names`; without names, all that are not
    kept as they are emitted now, with labels.
    """
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"pairs": {}}
    kept["date"] = datetime.date.today().isoformat()
    kept["versions"] = {package: version(package) for package in ("jax", "libtpu")}
    for pair in all_pairs():
        known = kept["pairs"].get(pair.name, {}).get("text")
        missing = not labels.kept_text(pair.name)
        if any(name in pair.name for name in names) or (
            not names and (missing or known != text_key(pair.lower().program))
        ):
            kept["pairs"][pair.name] = compile_pair(pair)
            KEPT.write_text(json.dumps(kept, indent=1) + "\n")
            print(pair.name, kept["pairs"][pair.name], flush=True)
