"""Is search never worse than what people write, on programs nobody tuned it for? Writes results.json and figure.png.

python -m experiments.search_quality                            every program on both meshes: 200, default, unseeded
python -m experiments.search_quality 200 unseeded -- t32 unet   some searches, of programs whose name begins so
python -m experiments.search_quality long -- t32                20 times the default budget: hours for large programs
python -m experiments.search_quality figure                     the table and the plot of what is stored

What was measured before and is not asked for again stays in results.json.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from experiments.search_quality.measured import SEARCHES, ratio, searched
from experiments.search_quality.programs import MESHES, programs

RESULTS = Path(__file__).with_name("results.json")


def main(words: list[str]) -> None:
    split = words.index("--") if "--" in words else len(words)
    kinds, names = words[:split] or ["200", "default", "unseeded"], words[split + 1 :]
    unknown = set(kinds) - {*SEARCHES, "figure"}
    if unknown:
        raise SystemExit(f"no search is called {', '.join(sorted(unknown))}; there are {', '.join(SEARCHES)}")
    stored: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, load in programs().items() if kinds != ["figure"] else ():
        if names and not any(name.startswith(start) for start in names):
            continue
        program = load()
        for device, mesh in MESHES.items():
            row = stored.setdefault(f"{name} on {device}", {"ops": program.op_count})
            for kind in kinds:
                row[kind] = searched(program, mesh, kind)
                print(line(f"{name} on {device}", kind, row[kind], row.get("200", row[kind])["named"]), flush=True)
            RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
    print("\n".join(summary(stored)))
    from experiments.search_quality.figure import draw

    draw(stored, RESULTS.with_name("figure.png"))


def line(where: str, kind: str, found: dict[str, Any], named: dict[str, Any]) -> str:
    """One search on a line, beside the best named schedule."""
    beside = f"{ratio(found, named['rank']):5.3f} of {named['name']}, {named['step_s'] * 1e3:.2f} ms"
    return (
        f"{where:40} {kind:9} {found['step_s'] * 1e3:10.2f} ms {found['peak_bytes'] / 1e9:7.2f} GB   "
        f"{beside}   {found['cpu_s']:.0f} s"
    )


def summary(stored: dict[str, Any]) -> list[str]:
    """Per search: the worst ratio to the best named schedule, and the geometric mean over the best that is known."""
    lines = []
    for kind in SEARCHES:
        rows = [row for row in stored.values() if kind in row]
        if not rows:
            continue
        bounds = [row["200"]["named"]["rank"] for row in rows if "200" in row]
        beside = [ratio(row[kind], bound) for row, bound in zip((r for r in rows if "200" in r), bounds, strict=True)]
        best = [min(row[k]["rank"] for k in SEARCHES if k in row) for row in rows]
        over = [ratio(row[kind], known) for row, known in zip(rows, best, strict=True)]
        finite = [r for r in over if 0 < r < math.inf]
        mean = math.exp(sum(map(math.log, finite)) / len(finite)) if finite else math.nan
        lines.append(
            f"{kind:9} {len(rows)} programs: at most {max(beside, default=math.nan):.3f} of the best named schedule, "
            f"{mean:.3f} of the best known in the geometric mean, {len(over) - len(finite)} need other memory"
        )
    return lines


if __name__ == "__main__":
    main(sys.argv[1:])
