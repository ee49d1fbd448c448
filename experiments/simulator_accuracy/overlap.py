"""How much of a program's collectives does the TPU compiler run beside compute? Writes `overlap.json`.

python -m experiments.simulator_accuracy.overlap                    compiles cases (needs libtpu; minutes each)
python -m experiments.simulator_accuracy.overlap "GNS ES v5e:2x4"   one of them
python -m experiments.simulator_accuracy.overlap table              what is kept

    %fusion.1 = fusion(...)      holds the start of an all-gather, chain 5    \\
    %fusion.2 = fusion(...)      a product, and a step of chain 5              } cycles of these are beside it
    %fusion.3 = fusion(...)      holds its end                                /

The compiler's program is in the order in which it runs. A collective whose start and end stand apart hides behind the
kernels between, as far as these last; one that stands alone hides nothing. The simulator's two accounts of the same
lowering are beside it: collectives in turn, and beside all compute that does not need them.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import autopart as ap
from autopart.costmodel.xla.hlo_collectives import Collective, collective_of, seconds
from autopart.costmodel.xla.optimised_hlo import Instruction, OptimisedHlo
from experiments.against_xla.cases import CASES, Case
from experiments.kept import write

KEPT = Path(__file__).with_name("overlap.json")
LOOKED_AT = (
    "T32 BP+MP v5e:2x4", "T32 BP+MP+Z3 v5e:2x4", "T32 found v5e:2x4", "GNS ES v5e:2x4", "GNS ES+Z3 v5e:2x4",
    "T32 BP+MP v3:4x4", "T32 BP+MP+Z3 v3:4x4",
)  # fmt: skip

_CHAIN = re.compile(r'chain_id="(\d+)"')
_OPERAND = re.compile(r"-done\(%?([\w.\-]+)")


def hidden(module: OptimisedHlo, mesh: ap.Mesh, clock_hz: float) -> dict[str, float]:
    """Seconds of collectives by the simulator's formulas: all, of those that stand apart, and what these hide."""
    found = {"collective_s": 0.0, "apart_s": 0.0, "hidden_s": 0.0}
    times = {instruction.computation: n for instruction, n in module.ran()}
    for name, trips in times.items():
        for collective, beside in _in_order(module, module.computations[name], mesh):
            link_s = trips * seconds(collective, mesh)
            found["collective_s"] += link_s
            if beside is not None:
                found["apart_s"] += link_s
                found["hidden_s"] += min(link_s, trips * beside / clock_hz)
    return found


def _in_order(
    module: OptimisedHlo, instructions: list[Instruction], mesh: ap.Mesh
) -> list[tuple[Collective, float | None]]:
    """Each collective of a computation with the cycles between its start and end; None where it has no start."""
    places: dict[str, list[int]] = {}
    what: dict[str, Instruction] = {}
    for at, instruction in enumerate(instructions):
        if done := _OPERAND.search(instruction.line):
            places.setdefault(done.group(1), []).append(at)
        for inner in (instruction, *module.inside(instruction)):
            if collective_of(module, inner, mesh) is not None:
                chain = _CHAIN.search(inner.line)
                key = f"chain {chain.group(1)}" if chain else inner.name
                places.setdefault(key, []).append(at)
                what.setdefault(key, inner)
    pairs: list[tuple[Collective, float | None]] = []
    for key, inner in what.items():
        first, last = min(places[key]), max(places[key])
        beside = sum(i.cycles for i in instructions[first : last + 1]) if last > first else None
        collective = collective_of(module, inner, mesh)
        assert collective is not None
        pairs.append((collective, beside))
    return pairs


def look_at(case: Case) -> dict[str, Any]:
    """Compiles our program of a case."""
    from autopart.costmodel.xla.topologies import topology_devices
    from autopart.costmodel.xla.xla_compile import CLOCK_HZ

    devices = topology_devices(case.topology)
    low = case.lower(case.load())
    text = case.pair(devices).ours.compile().as_text()
    found = hidden(OptimisedHlo(text), case.mesh, CLOCK_HZ[devices[0].device_kind.lower()])
    estimate = low.estimate
    assert estimate is not None
    ours = {"in_turn_s": estimate.serial_s, "overlapped_s": estimate.overlapped_s, "links_s": estimate.collective_s}
    return {**found, "estimate": ours}


def table(kept: dict[str, Any]) -> str:
    """A row per case: shares of the collectives' seconds."""
    lines = ["| program | collectives | stand apart | hidden by the compiler | hidden by the simulator's overlap |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for name, row in kept.items():
        ours = row["estimate"]
        shares = (row["apart_s"] / row["collective_s"], row["hidden_s"] / row["collective_s"])
        by_us = (ours["in_turn_s"] - ours["overlapped_s"]) / ours["links_s"]
        lines.append(
            f"| {name} | {row['collective_s'] * 1e3:.2f} ms | {shares[0]:.0%} | {shares[1]:.0%} | {by_us:.0%} |"
        )
    return "\n".join(lines)


def main(words: list[str]) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    kept = json.loads(KEPT.read_text())["programs"] if KEPT.exists() else {}
    for name in () if words == ["table"] else words or LOOKED_AT:
        kept[name] = look_at(CASES[name])
        write(KEPT, {"programs": kept})
        print(table({name: kept[name]}).splitlines()[-1], flush=True)
    print(table(kept))


if __name__ == "__main__":
    main(sys.argv[1:])
