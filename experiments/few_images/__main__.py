"""The simulator's seconds beside the TPU compiler's, of convolutions of few images.

python -m experiments.few_images               with the compiler's figures kept in `compiler.json`; writes results.json
python -m experiments.few_images compile       compiles what is not kept: pip install libtpu, half an hour
python -m experiments.few_images worst         with the rows that are furthest off
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import jax

import autopart as ap
from autopart.costmodel.optimised_hlo import estimated_cycles
from autopart.costmodel.xla_compile import CLOCK_HZ, topology_devices
from experiments.few_images.cases import fitted, held_out
from experiments.few_images.nets import NETS
from experiments.kept import write

COMPILER = Path(__file__).with_name("compiler.json")
RESULTS = Path(__file__).with_name("results.json")
DEVICES = {"v5e": "tpu_v5e", "v3": "tpu_v3", "v4": "tpu_v4", "v5p": "tpu_v5p", "v6e": "tpu_v6e"}
FEW = 8
"""Of so many images and more none is cut."""

NEAR = (0.8, 1.25)


class Program(Protocol):
    """What is compiled and estimated: a function and its arguments."""

    @property
    def name(self) -> str: ...

    @property
    def topology(self) -> str: ...

    def program(self) -> tuple[Any, tuple[Any, ...]]: ...


def groups() -> dict[str, Sequence[Program]]:
    """All programs, by what they are for."""
    fit, held = list(fitted()), list(held_out())
    return {
        "fitted": [case for case in fit if case.batch < FEW],
        "as many as are not cut": [case for case in fit if case.batch >= FEW],
        "held out": held,
        "nets": NETS,
    }


def main(words: list[str]) -> None:
    """See the module."""
    if set(words) - {"compile", "worst"}:
        raise SystemExit(f"no part is called {sorted(set(words) - {'compile', 'worst'})}; known: compile, worst")
    kept = json.loads(COMPILER.read_text()) if COMPILER.exists() else {}
    for program in (p for group in groups().values() for p in group if "compile" in words):
        if program.name not in kept:
            kept[program.name] = compiled_us(program)
            print(f"{program.name}: {kept[program.name]:.1f} us", flush=True)
            COMPILER.write_text(json.dumps(kept, indent=0) + "\n")
    summary = {}
    for name, programs in groups().items():
        ratios = {p.name: estimated_us(p) / kept[p.name] for p in programs if p.name in kept}
        summary[name] = summed_up(list(ratios.values()))
        print(f"{name}: {summary[name]}")
        if "worst" in words:
            for ratio, program in sorted((r, n) for n, r in ratios.items()):
                if not NEAR[0] <= ratio <= NEAR[1]:
                    print(f"  {ratio:.2f}  {program}")
    write(RESULTS, {"summary": summary})


def compiled_us(program: Program) -> float:
    """Microseconds of the compiler's cycles."""
    device = topology_devices(program.topology)[0]
    placed = jax.sharding.SingleDeviceSharding(device)
    function, arguments = program.program()
    compiled = jax.jit(function, in_shardings=placed, out_shardings=placed).lower(*arguments).compile()
    return round(1e6 * estimated_cycles(compiled.as_text() or "") / CLOCK_HZ[device.device_kind.lower()], 1)


def estimated_us(program: Program) -> float:
    """Ours."""
    function, arguments = program.program()
    mesh = ap.Mesh({"x": 1}, device=DEVICES[program.topology.split(":")[0]])
    estimate = ap.jit(function, mesh, []).lower(*arguments).estimate
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


if __name__ == "__main__":
    main(sys.argv[1:])
