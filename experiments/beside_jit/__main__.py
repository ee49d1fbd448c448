"""Steps of one device as autopart emits them for a TPU, beside `jax.jit` of the same function: cycles and memory.

python -m experiments.beside_jit            with the compiler's figures kept in `compiler.json`
python -m experiments.beside_jit compile    compiles what is not kept: pip install libtpu, half an hour
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import jax

import autopart as ap
from autopart.costmodel.xla.optimised_hlo import estimated_cycles
from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.xla_compile import CLOCK_HZ, compile_device_local
from experiments.beside_jit.cases import Case, chosen, drawn
from experiments.convolution_grids import DEVICES
from experiments.kept import write

FOLDER = Path(__file__).parent
COMPILER = FOLDER / "compiler.json"
DONATED = (0, 1)
CLOSE = 1.01
"""Of the seconds that a step takes by itself: no longer than that."""


def groups() -> dict[str, list[Case]]:
    """All steps, by what is in them."""
    found: dict[str, list[Case]] = {}
    for kind, cases in (("", chosen()), ("drawn ", drawn())):
        for case in dict.fromkeys(cases):
            found.setdefault(f"{kind}{case.group}, {case.topology.split(':')[0]}", []).append(case)
    return found


def figures(case: Case) -> dict[str, list[float]]:
    """Microseconds and MB of both programs."""
    device = topology_devices(case.topology)[0]
    step, args = case.program()
    mesh = ap.Mesh({"x": 1}, device=DEVICES[case.topology.split(":")[0]])
    ours = ap.jit(step, mesh, [], donate_argnums=DONATED).lower(*args)
    place = jax.sharding.SingleDeviceSharding(device)
    placed = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), args)
    plain = jax.jit(step, donate_argnums=DONATED).lower(*placed).compile()
    emitted = compile_device_local(ours.program, [device], case.topology)
    return {"ours": _figures(emitted, device), "xla": _figures(plain, device)}


def estimated_us(case: Case) -> float:
    """Our estimate of the seconds of compute of what is emitted."""
    step, args = case.program()
    mesh = ap.Mesh({"x": 1}, device=DEVICES[case.topology.split(":")[0]])
    estimate = ap.jit(step, mesh, [], donate_argnums=DONATED).lower(*args).estimate
    assert estimate is not None
    return 1e6 * estimate.compute_s


def _figures(compiled: Any, device: Any) -> list[float]:
    stats = compiled.memory_analysis()
    held = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    us = 1e6 * estimated_cycles(compiled.as_text()) / CLOCK_HZ[device.device_kind.lower()]
    return [round(us, 1), round((held + stats.temp_size_in_bytes) / 1e6, 1)]


def kept() -> dict[str, dict[str, list[float]]]:
    """By name, the figures of every step that was compiled."""
    return json.loads(COMPILER.read_text()) if COMPILER.exists() else {}


def summary() -> dict[str, dict[str, Any]]:
    """By group, our seconds and memory over those of the step by itself."""
    known, found = kept(), {}
    for name, cases in groups().items():
        rows = [known[case.name] for case in cases if case.name in known]
        shares = [[ours / xla for ours, xla in zip(row["ours"], row["xla"], strict=True)] for row in rows]
        us, mb = zip(*shares, strict=True) if shares else ((), ())
        if us:
            found[name] = {
                "steps": len(us),
                "compute": _spread(us),
                "memory": _spread(mb),
                "longer": [case.name for case, share in zip(cases, us, strict=True) if share > CLOSE],
            }
    return found


def _spread(shares: tuple[float, ...]) -> dict[str, float]:
    geomean = math.exp(sum(map(math.log, shares)) / len(shares))
    return {"geomean": round(geomean, 3), "least": round(min(shares), 3), "most": round(max(shares), 3)}


def main(words: list[str]) -> None:
    if set(words) - {"compile"}:
        raise SystemExit(f"no part is called {sorted(set(words) - {'compile'})}; known: compile")
    known = kept()
    for case in (case for cases in groups().values() for case in cases if words):
        if case.name not in known:
            known[case.name] = figures(case)
            print(case.name, known[case.name], flush=True)
            COMPILER.write_text(json.dumps(known, indent=0) + "\n")
    found = summary()
    for name, of in found.items():
        print(f"{name}: {of}")
    write(FOLDER / "results.json", {"summary": found})


if __name__ == "__main__":
    main(sys.argv[1:])
