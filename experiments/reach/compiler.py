"""What the TPU compiler makes of the programs of `COMPILED`, for 32 cores of TPU v3, kept in `compiler.json`.

    compute_s      the cycles that it estimates, at the clock of the core
    peak_bytes     arguments, temporaries, and outputs that take no argument's place
    sent_bytes     what a device sends by the collectives of the optimised program

of our program, of XLA's partitioner's with the same shardings of arguments and results, and of an older package's.
"""

from __future__ import annotations

import time
from typing import Any

import jax
from jax.sharding import NamedSharding

import autopart as ap
from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.xla_compile import compute_seconds
from autopart.spmd.emission.export import export
from autopart.spmd.run import jax_mesh, on_mesh
from experiments.reach.bytes_moved import sent
from experiments.reach.cases import TOPOLOGY, Case


def by_package(case: Case) -> dict[str, Any]:
    """The compiler's account of the program that this process's package makes; {} where it cannot pad."""
    devices = topology_devices(TOPOLOGY)
    low = ap.jit(case.fun, case.mesh, case.tactics).lower(*case.args)
    return _account(on_mesh(low.program, export(low.program), jax_mesh(case.mesh, devices)).lower(), case.mesh, devices)


def by_partitioner(case: Case) -> dict[str, Any]:
    """The same of XLA's partitioner, given the shardings of our arguments and results."""
    devices = topology_devices(TOPOLOGY)
    mesh, low = jax_mesh(case.mesh, devices), ap.jit(case.fun, case.mesh, case.tactics).lower(*case.args)

    def placed(tree: Any) -> Any:
        return jax.tree.map(lambda s: NamedSharding(mesh, s.spec), tree)

    (inputs, _), outputs = placed(low.in_shardings), placed(low.out_shardings)
    theirs = jax.jit(case.for_partitioner(mesh), in_shardings=inputs, out_shardings=outputs, keep_unused=True)
    return _account(theirs.lower(*case.args), case.mesh, devices)


def _account(lowered: Any, mesh: ap.Mesh, devices: list[Any]) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        return {"error": str(error).splitlines()[0][:200]}
    module, stats = OptimisedHlo(compiled.as_text()), compiled.memory_analysis()
    outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return {
        "compute_s": compute_seconds(module, devices[0]),
        "peak_bytes": stats.argument_size_in_bytes + outputs + stats.temp_size_in_bytes,
        **sent(module, mesh),
        "seconds": round(time.perf_counter() - began, 1),
    }


def table(kept: dict[str, Any]) -> str:
    """A row per program: an older package's, ours, XLA's partitioner's."""
    lines = ["| program | compute ms | peak GB | MB sent |", "|---|---|---|---|"]
    for name, row in kept.items():
        sides = [row.get(side, {}) for side in SIDES]
        cells = [
            " / ".join(f"{side[field] / unit:.2f}" if field in side else "-" for side in sides)
            for field, unit in (("compute_s", 1e-3), ("peak_bytes", 1e9), ("sent_bytes", 1e6))
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


SIDES = ("before", "now", "xla")
