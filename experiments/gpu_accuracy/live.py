"""What lives at the peak, by size: ours beside XLA's.

    python -m experiments.gpu_accuracy.live "gpt FSDP 4x2" [xla]

XLA dumps its assignment of buffers, with offsets, and when each value lives. The peak is where the values that live
cover most of the temporary memory: what is in place counts once. (The peak that the dump names leaves out loops.)
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from autopart.core.doors.xla_options import for_devices
from autopart.costmodel.breakdown import top_buffers
from autopart.costmodel.xla.topologies import topology_devices
from experiments.gpu_accuracy.cases import Case
from experiments.gpu_accuracy.compiled import sides

SHOWN = 16
_LIVES = re.compile(r"^\s+(\S+?)\{([\d,]*)\}:(\d+)-(\d+)$", re.MULTILINE)
_VALUE = re.compile(r"^ value: <\d+ (\S+?)(?:\{([\d,]*)\})? @\d+> \(size=(\d+),offset=(\d+)\): (\S+)", re.MULTILINE)


class Value(NamedTuple):
    """One value in the temporary memory: where, and from which instruction to which."""

    name: str
    size: int
    offset: int
    first: int
    last: int


def values(assignment: str, lives: str) -> list[Value]:
    """Those of a dump's buffer-assignment and live-range texts."""
    when = {(name, index): (int(a), int(b)) for name, index, a, b in _LIVES.findall(lives)}
    parts = re.split(r"^allocation \d+: ", assignment, flags=re.MULTILINE)
    temporary = next(part for part in parts if "preallocated-temp" in part.split("\n", 1)[0])
    found = _VALUE.findall(temporary)
    return [
        Value(name, int(n), int(at), *when[name, index]) for name, index, n, at, _ in found if (name, index) in when
    ]


def covered(of: Iterable[Value]) -> int:
    """Bytes that values take together."""
    end = total = 0
    for begin, stop in sorted((v.offset, v.offset + v.size) for v in of):
        total += max(0, stop - max(begin, end))
        end = max(end, stop)
    return total


def at_peak(all_values: list[Value]) -> list[Value]:
    """The values that live where most is covered, those in place of another once."""
    moments = {v.first for v in all_values}
    peak = max(moments, key=lambda t: covered(v for v in all_values if v.first <= t <= v.last))
    return list({(v.offset, v.size): v for v in all_values if v.first <= peak <= v.last}.values())


def main(name: str, side: str = "ours") -> None:
    *program, schedule, on = name.split()
    case = Case(" ".join(program), schedule, on)
    low = case.lower()
    lowered = sides(case, low, side == "xla")[side]
    with tempfile.TemporaryDirectory() as folder:
        dump = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        compiled = lowered.compile(compiler_options={**for_devices(topology_devices(case.topology)), **dump})
        texts = [next(Path(folder).glob(f"*{part}.txt")).read_text() for part in ("buffer-assignment", "live-range")]
    live = at_peak(values(*texts))
    theirs, ours = defaultdict[int, Counter[str]](Counter), defaultdict[int, Counter[str]](Counter)
    for value in live:
        theirs[value.size][f"{re.sub(r'[.0-9]+$', '', value.name)} {value.first}-{value.last}"] += 1
    estimate = low.estimate
    assert estimate.simulation is not None
    for buffer in top_buffers(estimate.simulation, 100_000):
        if not buffer.what.startswith("argument"):
            ours[round(buffer.bytes)][buffer.what.split("[")[0].split(" ")[0] + " " + buffer.where.split("/")[-1]] += 1
    between = estimate.peak_bytes - estimate.argument_bytes
    temporaries = compiled.memory_analysis().temp_size_in_bytes
    gigabytes = [f"{n / 1e9:.3f}" for n in (temporaries, covered(live), between)]
    print("{}: {} GB of temporaries, {} at the peak; ours {}".format(name, *gigabytes))

    def apart(size: int) -> float:
        return size * (ours[size].total() - theirs[size].total())

    for size in sorted({*ours, *theirs}, key=lambda size: -abs(apart(size)))[:SHOWN]:
        both = [f"{side.total():4d} {dict(side.most_common(5))}" for side in (ours[size], theirs[size])]
        print(f"{size / 1e6:9.2f} MB  {apart(size) / 1e9:+.3f} GB  ours {both[0]}  XLA {both[1]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
