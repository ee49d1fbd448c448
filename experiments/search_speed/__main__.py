"""CPU time of an evaluation by stage and by depth, beside another version of autopart if one is given.

    python -m experiments.search_speed                         T32 of 12 to 96 layers, GNS, UNet, GPT-2 XL
    python -m experiments.search_speed --base ../older         the same states there, in turn with those here
    python -m experiments.search_speed --programs t32x32

Each program is measured in a process of its own, `rounds` times; the round with the least CPU time counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("results.json")
PROGRAMS = ("t32x12", "t32x24", "t32x32", "t32x48", "t32x96", "gns", "unet", "hf_gpt2_xl_train")


def measured(tree: Path, program: str, states: int) -> dict[str, Any]:
    """The figures of the version of autopart in `tree`; `measure.py` is this version's for both."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("measure.py")), program, str(states)],
        env=os.environ | {"PYTHONPATH": str(tree), "JAX_PLATFORMS": "cpu"},
        cwd=tree, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="experiments.search_speed")
    parser.add_argument("--base", type=Path)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--states", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    trees = {"now": HERE} | ({"base": options.base.resolve()} if options.base else {})
    rows = []
    print(
        "program               ops  version  evaluations/s     ms   whole ms:  propagate  lower  simulate  options"
        "  space s"
    )
    for program in options.programs.split(","):
        found = {tree: [] for tree in trees}
        for _ in range(options.rounds):
            for name, tree in trees.items():
                found[name].append(measured(tree, program, options.states))
        row = {name: min(runs, key=lambda r: r["evaluation_ms"]) for name, runs in found.items()}
        rows.append(row)
        for name, best in row.items():
            stages = best["stages_ms"]
            print(
                f"{program:18} {best['ops']:7,}  {name:7} {1e3 / best['evaluation_ms']:13.0f} "
                f"{best['evaluation_ms']:6.2f} {best['whole_ms']:10.2f}  {stages['propagate']:9.2f} "
                f"{stages['lower']:6.2f} {stages['simulate']:9.2f} {stages['options']:8.2f} {best['space_s']:8.2f}",
                flush=True,
            )
        if len({best["digest"] for best in row.values()}) > 1:
            print(f"{program}: the two versions differ in costs or options")
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
