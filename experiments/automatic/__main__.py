"""Searches and compares; writes what it finds to `results.json` beside this file, one entry per claim.

python -m experiments.automatic quality            AllAuto against manual schedules, all cases
python -m experiments.automatic quality T32 UNet   some of them
python -m experiments.automatic mixes              automatic tactics among manual ones
python -m experiments.automatic depth              12, 24 and 48 layers
python -m experiments.automatic workers            two workers over one
python -m experiments.automatic xla                search time over XLA's compile time
python -m experiments.automatic referee 4 20       memory by the TPU compiler, layers of T32
python -m experiments.automatic compiled GNS       steps by the TPU compiler, of what is found and of manual schedules
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from experiments.kept import write

RESULTS = Path(__file__).with_name("results.json")


def main(words: list[str]) -> None:
    claims = ("quality", "mixes", "depth", "workers", "xla", "referee", "compiled")
    if not words or words[0] not in claims:
        raise SystemExit(f"one of {', '.join(claims)}")
    if words[0] == "xla":
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=32".strip()
    store(words[0], run(words[0], words[1:]))


def run(claim: str, rest: list[str]) -> Any:
    from experiments.automatic import compiled, quality, referee, speed
    from experiments.automatic.cases import CASES

    if claim == "quality":
        chosen = [c for c in CASES if not rest or any(c.name.startswith(word) for word in rest)]
        known = {r["case"]: r for r in stored().get("quality", [])}
        for case in chosen:
            known[case.name] = quality.compare(case)
            store("quality", list(known.values()))
        return list(known.values())
    if claim == "referee":
        known = {r["layers"]: r for r in stored().get("referee", [])}
        for layers in map(int, rest or ["4"]):
            known[layers] = referee.judged(layers)
            store("referee", list(known.values()))
        return list(known.values())
    if claim == "compiled":
        known = {r["model"]: r for r in stored().get("compiled", [])}
        for model in rest or compiled.MODELS:
            known[model] = compiled.judged(model)
            store("compiled", list(known.values()))
        return list(known.values())
    return {"mixes": quality.mixes, "depth": speed.depth, "workers": speed.workers, "xla": speed.against_xla}[claim]()


def stored() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def store(claim: str, result: Any) -> None:
    write(RESULTS, {**stored(), claim: result})


if __name__ == "__main__":
    main(sys.argv[1:])
