"""Grids of small programs of convolutions: the simulator's seconds beside those of the TPU compiler, which are kept.

run(words, groups(), compiled_us, folder)      folder/compiler.json is read, folder/results.json written

compile   compiles what is not kept first
worst     names the programs that are further off than `NEAR`
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import autopart as ap
from autopart.costmodel.xla.optimised_hlo import Instruction, OptimisedHlo
from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.xla_compile import CLOCK_HZ, compile_device_local
from experiments.kept import write

DEVICES = {"v5e": "tpu_v5e", "v3": "tpu_v3", "v4": "tpu_v4", "v5p": "tpu_v5p", "v6e": "tpu_v6e"}

NEAR = (0.8, 1.25)

COMPILER = "compiler.json"


class Program(Protocol):
    """What is compiled and estimated: a function and its arguments."""

    @property
    def name(self) -> str: ...

    @property
    def topology(self) -> str: ...

    def program(self) -> tuple[Any, tuple[Any, ...]]: ...


P = TypeVar("P", bound=Program)


def run(
    words: Sequence[str], groups: Mapping[str, Sequence[P]], compiled_us: Callable[[P], float], folder: Path
) -> None:
    """Compiles what is asked for, and compares each group; `words` are those of the command line."""
    if set(words) - {"compile", "worst"}:
        raise SystemExit(f"no part is called {sorted(set(words) - {'compile', 'worst'})}; known: compile, worst")
    kept = kept_us(folder)
    for program in (p for group in groups.values() for p in group if "compile" in words):
        if program.name not in kept:
            kept[program.name] = compiled_us(program)
            print(f"{program.name}: {kept[program.name]:.1f} us", flush=True)
            (folder / COMPILER).write_text(json.dumps(kept, indent=0) + "\n")
    summary = {}
    for name, programs in groups.items():
        ratios = {p.name: estimated_us(p) / kept[p.name] for p in programs if p.name in kept}
        summary[name] = summed_up(list(ratios.values()))
        print(f"{name}: {summary[name]}")
        if "worst" in words:
            for ratio, program in sorted((r, n) for n, r in ratios.items()):
                if not NEAR[0] <= ratio <= NEAR[1]:
                    print(f"  {ratio:.2f}  {program}")
    write(folder / "results.json", {"summary": summary})


def by_chip(groups: Mapping[str, Iterable[P]]) -> dict[str, list[P]]:
    """Each group once for each chip, "fitted, v3", and each program once."""
    found: dict[str, list[P]] = {}
    for name, programs in groups.items():
        for program in dict.fromkeys(programs):
            found.setdefault(f"{name}, {program.topology.split(':')[0]}", []).append(program)
    return {name: found[name] for name in sorted(found)}


def cycles_us(program: P, is_edge: Callable[[P, OptimisedHlo, Instruction], bool]) -> float:
    """Microseconds of the compiler's cycles, without those of copies that only a program's edge asks for."""
    text, device = compiled(program)
    module = OptimisedHlo(text)
    cycles = sum(times * ran.cycles for ran, times in module.ran() if ran.cycles and not is_edge(program, module, ran))
    return round(1e6 * cycles / CLOCK_HZ[device.device_kind.lower()], 1)


def kept_us(folder: Path) -> dict[str, float]:
    """By name, microseconds of the compiler's cycles of every program that was compiled."""
    return json.loads((folder / COMPILER).read_text()) if (folder / COMPILER).exists() else {}


def compiled(program: Program) -> tuple[str, Any]:
    """The optimised text of a program for one device, and the device."""
    devices = topology_devices(program.topology)
    return compile_device_local(_lowered(program).program, devices, program.topology).as_text() or "", devices[0]


def _lowered(program: Program) -> ap.Lowered:
    """As it is emitted for one device."""
    function, arguments = program.program()
    mesh = ap.Mesh({"x": 1}, device=DEVICES[program.topology.split(":")[0]])
    return ap.jit(function, mesh, []).lower(*arguments)


def estimated_us(program: Program) -> float:
    """Ours."""
    estimate = _lowered(program).estimate
    assert estimate is not None
    return 1e6 * estimate.compute_s


def summed_up(ratios: list[float]) -> dict[str, Any]:
    """Ours over the compiler's, in a few figures."""
    if not ratios:
        return {"programs": 0}
    return {
        "programs": len(ratios),
        "geomean": round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3),
        "least": round(min(ratios), 3),
        "most": round(max(ratios), 3),
        "within": round(sum(NEAR[0] <= r <= NEAR[1] for r in ratios) / len(ratios), 3),
    }
