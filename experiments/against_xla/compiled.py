"""What the TPU compiler makes of a program, kept in `compiled.json` by the hash of what it was given.

A case of which both programs' texts, the topology and the compiler are known is never compiled again.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import autopart as ap
from autopart.costmodel.xla.hlo_collectives import collectives
from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.xla_compile import CLOCK_HZ
from experiments.against_xla.cases import Case
from experiments.against_xla.hlo import cycles_by_class
from experiments.compiled_programs import CompiledPrograms

KEPT = CompiledPrograms(Path(__file__).with_name("compiled.json"), ("jax", "libtpu"))
ROUNDS = 5
ENOUGH_S = 20.0
"""How often both programs of a pair are compiled: so many times, or until that took so many CPU seconds in all."""

TEXTS: Path | None = None
"""Where optimised texts are left for reading; None: nowhere."""


def compile_case(case: Case, known: dict[str, Any]) -> dict[str, Any]:
    """What `results.json` keeps of a case: keys of both programs in `KEPT`, what each took to compile, our estimate.

    `known` is what it kept before; where both programs are the same, the estimate alone is new. The seconds belong to
    the pair, since schedules with equal shardings share XLA's program: both programs are compiled in one run on one
    load of the machine, small ones several times, the first of a round the second of the next.
    """
    devices = topology_devices(case.topology)
    pair = case.pair(devices)
    sides = {"ours": pair.ours, "xla": pair.xla}
    keys = {side: KEPT.key(lowered, case.topology) for side, lowered in sides.items()}
    found = {**keys, "estimate": _of_interest(pair.estimate)}
    if keys.items() <= known.items() and "compile_cpu_s" in known and all(key in KEPT.read() for key in keys.values()):
        return {**known, **found}
    _warm_up(devices[0])
    clock_hz = CLOCK_HZ[devices[0].device_kind.lower()]
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(ROUNDS):
        for side in sorted(sides, key=lambda side: keys[side], reverse=bool(number % 2)):
            account = figures(sides[side], case.mesh, clock_hz, f"{case.name} {side}")
            if "error" in account:
                KEPT.add(keys[side], account)
                return found
            seconds[side].append(account.pop("compile_cpu_s"))
            KEPT.add(keys[side], account)
        if sum(map(sum, seconds.values())) > ENOUGH_S:
            break
    return {**found, "compile_cpu_s": {side: float(np.median(taken)) for side, taken in seconds.items()}}


def estimate_case(case: Case, known: dict[str, Any]) -> dict[str, Any]:
    """`known` with our estimate as it is now; without one where our program is no longer the one that was compiled."""
    pair = case.pair(topology_devices(case.topology))
    same = known["ours"] == KEPT.key(pair.ours, case.topology)
    rest = {name: of for name, of in known.items() if name != "estimate"}
    return {**rest, "estimate": _of_interest(pair.estimate)} if same else rest


def _of_interest(estimate: ap.Estimate | None) -> dict[str, float]:
    assert estimate is not None
    return {"compute_s": estimate.compute_s, "collective_s": estimate.collective_s, "peak_bytes": estimate.peak_bytes}


def _warm_up(device: Any) -> None:
    """Compiles almost nothing, so that what the compiler does once is not counted to the first program."""
    placed = jax.sharding.SingleDeviceSharding(device)
    jax.jit(lambda x: x + 1, in_shardings=placed, out_shardings=placed).lower(jax.ShapeDtypeStruct((), "f4")).compile()


def figures(lowered: Any, mesh: ap.Mesh, clock_hz: float, name: str) -> dict[str, Any]:
    """The compiler's account of one program; {"error": ...} where it refuses it."""
    jax.clear_caches()
    started = time.process_time()
    try:
        compiled = lowered.compile(compiler_options={})  # with options, if only none, what was compiled is not reused
    except jax.errors.JaxRuntimeError as error:
        return {"error": str(error).splitlines()[0][:200]}
    compile_s = time.process_time() - started
    text, stats = compiled.as_text(), compiled.memory_analysis()
    if TEXTS is not None:
        (TEXTS / f"{name}.hlo").write_text(text)
    module = OptimisedHlo(text)
    outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return {
        "compute_s": module.cycles / clock_hz,
        "classes": {kind: cycles / clock_hz for kind, cycles in cycles_by_class(module).most_common()},
        "collectives": [[*row, count] for row, count in collectives(module, mesh).items()],
        "peak_bytes": stats.argument_size_in_bytes + outputs + stats.temp_size_in_bytes,
        "compile_cpu_s": round(compile_s, 2),
        "rematerialised": text.count(".remat"),
    }
