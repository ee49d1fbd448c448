"""What lives at the peak, by size: ours beside XLA's.

    python -m experiments.gpu_accuracy.live "gpt FSDP 4x2"

XLA dumps its assignment of buffers and the values that live at the peak (`*-live-range.txt`), which leaves out those of
loop bodies. Sizes with the largest difference come first, with what makes such arrays.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from autopart.core.xla_options import for_devices
from autopart.costmodel.breakdown import top_buffers
from autopart.costmodel.topologies import topology_devices
from autopart.costmodel.xla_compile import allocated_bytes
from experiments.gpu_accuracy.cases import Case
from experiments.gpu_accuracy.compiled import sides

SHOWN = 16


def main(name: str, side: str = "ours") -> None:
    *program, schedule, on = name.split()
    case = Case(" ".join(program), schedule, on)
    low = case.lower()
    lowered = sides(case, low, side == "xla")[side]
    with tempfile.TemporaryDirectory() as folder:
        dump = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        compiled = lowered.compile(compiler_options={**for_devices(topology_devices(case.topology)), **dump})
        text = next(Path(folder).glob("*live-range.txt")).read_text()
    rows = re.findall(r"^\s+(\S+)\{([\d,]*)\}: (\d+) bytes", text[text.index("(peak)") :], re.MULTILINE)
    theirs, ours = defaultdict[int, Counter[str]](Counter), defaultdict[int, Counter[str]](Counter)
    for made_by, _, size in rows:
        theirs[int(size)][re.sub(r"[.\d]+$", "", made_by)] += 1
    assert low.estimate.simulation is not None
    for buffer in top_buffers(low.estimate.simulation, 100_000):
        ours[round(buffer.bytes)][buffer.what.split("[")[0].split(" ")[0] + " " + buffer.where.split("/")[-1]] += 1
    stats = compiled.memory_analysis()
    print(
        f"{name}: allocated {allocated_bytes(compiled) / 1e9:.3f}, heap peak {stats.peak_memory_in_bytes / 1e9:.3f}, "
        f"live at the peak {sum(int(size) for *_, size in rows) / 1e9:.3f}, temporaries {stats.temp_size_in_bytes / 1e9:.3f}; "
        f"estimate {low.estimate.peak_bytes / 1e9:.3f}, of it arguments {low.estimate.argument_bytes / 1e9:.3f}"
    )

    def apart(size: int) -> float:
        return size * (ours[size].total() - theirs[size].total())

    for size in sorted({*ours, *theirs}, key=lambda size: -abs(apart(size)))[:SHOWN]:
        both = [f"{side.total():4d} {dict(side.most_common(5))}" for side in (ours[size], theirs[size])]
        print(f"{size / 1e6:9.2f} MB  {apart(size) / 1e9:+.3f} GB  ours {both[0]}  XLA {both[1]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
