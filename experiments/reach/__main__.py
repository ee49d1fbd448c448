"""What programs cost by estimate whose tiles meet ops that had no mapping for them.

python -m experiments.reach                     the table, and results.json
python -m experiments.reach --base ../older     what another checkout says of the same programs, beside it
python -m experiments.reach --bytes             what our programs and those of XLA's partitioner send, on host devices
python -m experiments.reach --compile           what the TPU compiler says of some of them; needs libtpu
python -m experiments.reach --only U-Net        programs whose name contains this; of others, what is kept

A minute. The estimates are the simulator's, for 32 cores of TPU v3.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.json")
COMPILER = Path(__file__).with_name("compiler.json")


def measured(only: str = "") -> dict[str, dict[str, Any]]:
    """Of programs whose name contains `only`: seconds of a step, peak bytes, collectives, flop that axes divide."""
    import autopart as ap
    from experiments.reach.cases import CASES

    found = {}
    for case in (case for case in CASES if only in case.name):
        low = ap.jit(case.fun, case.mesh, case.tactics).lower(*case.args)
        estimate = low.estimate
        assert estimate is not None, "the meshes of all cases name a device"
        found[case.name] = {
            "step_s": estimate.step_s,
            "compute_s": estimate.compute_s,
            "collective_s": estimate.collective_s,
            "peak_bytes": estimate.peak_bytes,
            "collectives": {kind: count for kind, count in low.program.collectives().items() if count},
            "flop_divided": dict(low.metadata.flop_divided),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.reach", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", type=Path, help="a checkout whose package is asked too")
    parser.add_argument("--print", action="store_true", help="only print what this package says, as JSON")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--bytes", action="store_true", help="compile both programs for 8 host devices")
    parser.add_argument("--compile", action="store_true", help="compile for TPUs, which need not be there")
    options = parser.parse_args()
    if options.print:
        print(json.dumps(compiled(options.only) if options.compile else measured(options.only)))
        return
    if options.compile:
        print(_compile(options.only, options.base))
        return
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.bytes:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()
        kept["bytes"] = kept.get("bytes", {}) | _bytes(options.only)
    else:
        kept["now"] = kept.get("now", {}) | measured(options.only)
    if options.base:
        kept["before"] = kept.get("before", {}) | _asked(options.base.resolve(), options.only)
    RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    print(table(kept))


def compiled(only: str) -> dict[str, dict[str, Any]]:
    """The TPU compiler's account of this package's programs; a package that cannot make one has no entry."""
    from experiments.reach.cases import COMPILED
    from experiments.reach.compiler import by_package

    found = {}
    for case in (case for case in COMPILED if only in case.name):
        try:
            found[case.name] = by_package(case)
        except TypeError as error:
            print(f"{case.name}: {error}", file=sys.stderr)
    return found


def _compile(only: str, base: Path | None) -> str:
    """Compiles for both sides, and with `base` for the older package; keeps each row as soon as it is there."""
    from experiments.reach.cases import COMPILED
    from experiments.reach.compiler import by_package, by_partitioner, table

    kept = json.loads(COMPILER.read_text()) if COMPILER.exists() else {}
    for case in (case for case in COMPILED if only in case.name):
        row = kept.setdefault(case.name, {})
        if base:
            found = _asked(base.resolve(), case.name, "--compile")
            row |= {"before": found[case.name]} if case.name in found else {}
        else:
            row |= {"now": by_package(case), "xla": by_partitioner(case)}
        COMPILER.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return table(kept)


def _bytes(only: str) -> dict[str, Any]:
    from experiments.reach.bytes_moved import compared
    from experiments.reach.cases import CASES

    return {case.name: compared(case) for case in CASES if only in case.name and not case.is_searched}


def _asked(tree: Path, only: str, *flags: str) -> dict[str, Any]:
    """What the package of another checkout says of this checkout's programs."""
    code = f"import sys; sys.path[:0] = [{str(tree)!r}, {str(HERE)!r}]; import experiments; "
    code += f"experiments.__path__[:] = [{str(HERE / 'experiments')!r}]; "
    code += f"sys.argv = {['reach', '--print', '--only', only, *flags]!r}; "
    code += "from experiments.reach.__main__ import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"the package in {tree} failed:\n{ended.stderr[-2000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def table(kept: dict[str, Any]) -> str:
    """A row per program; before and now, where both are known."""
    lines = ["| program | step ms | compute ms | collectives ms | peak GB | collectives |", "|---|---|---|---|---|---|"]
    for name in kept["now"]:
        rows = [kept[when][name] for when in ("before", "now") if name in kept.get(when, {})]
        cells = [" -> ".join(f"{1e3 * row[field]:.2f}" for row in rows) for field in FIELDS]
        peak = " -> ".join(f"{row['peak_bytes'] / 1e9:.2f}" for row in rows)
        counts = " -> ".join(
            ", ".join(f"{n} {kind}" for kind, n in row["collectives"].items()) or "none" for row in rows
        )
        lines.append(f"| {name} | {' | '.join(cells)} | {peak} | {counts} |")
    if "bytes" in kept:
        lines += [
            "",
            "| program | MB sent | by XLA's partitioner | collectives | its collectives |",
            "|---|---|---|---|---|",
        ]
    for name, row in kept.get("bytes", {}).items():
        sent = [f"{row[side]['sent_bytes'] / 1e6:.2f}" for side in ("ours", "xla")]
        kinds = [", ".join(f"{n} {kind}" for kind, n in row[side]["collectives"].items()) for side in ("ours", "xla")]
        lines.append(f"| {name} | {' | '.join(sent + kinds)} |")
    return "\n".join(lines)


FIELDS = ("step_s", "compute_s", "collective_s")

if __name__ == "__main__":
    main()
