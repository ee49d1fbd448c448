"""Compares our programs with those of XLA's partitioner; writes `results.json` and `figure.png` beside this file.

python -m experiments.against_xla                             all that is missing is compiled and timed, then compared
python -m experiments.against_xla --only compare              with what is kept
python -m experiments.against_xla --only compile --case T32   cases whose name contains "T32" (needs libtpu)
python -m experiments.against_xla --only estimate             our estimates of programs that are compiled (needs libtpu)
python -m experiments.against_xla --only wall --case GNS      seconds on 8 host devices
python -m experiments.against_xla --texts DIR                 leaves the optimised texts there, for reading
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from experiments.kept import write

RESULTS = Path(__file__).with_name("results.json")
STEPS = ("compile", "estimate", "wall", "compare")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.against_xla")
    parser.add_argument("--only", choices=STEPS)
    parser.add_argument("--case", nargs="*", default=[""], help="cases whose name contains one of these")
    parser.add_argument("--texts", type=Path)
    asked = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

    from experiments.against_xla import compare, compiled, estimates, wall
    from experiments.against_xla.cases import CASES

    compiled.TEXTS = asked.texts
    chosen = [case for name, case in CASES.items() if any(word in name for word in asked.case)]
    if asked.only in (None, "compile"):
        for case in (c for c in chosen if c.topology):
            store("compiled", case.name, compiled.compile_case(case, stored()["compiled"].get(case.name, {})))
            print(compare.line(stored(), case), flush=True)
    if asked.only == "estimate":
        for case in (c for c in chosen if c.name in stored()["compiled"]):
            store("compiled", case.name, compiled.estimate_case(case, stored()["compiled"][case.name]))
            print(estimates.line(stored(), case.name), flush=True)
    if asked.only in (None, "wall"):
        for case in (c for c in chosen if not c.topology):
            store("wall", case.name, wall.timed(case))
            print(case.name, stored()["wall"][case.name], flush=True)
    if asked.only in (None, "compare"):
        write(RESULTS, {**compare.summarised(stored()), "estimates": estimates.summary(stored())})
        print(compare.table(stored()), compare.walls(stored()), estimates.table(stored()), sep="\n\n")
        compare.plot(stored())


def stored() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {"compiled": {}, "wall": {}}


def store(part: str, name: str, found: Any) -> None:
    results = stored()
    results[part][name] = found
    write(RESULTS, results)


if __name__ == "__main__":
    main()
