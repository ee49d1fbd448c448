"""Bytes that a device sends in a step: our program's collectives, and those of XLA's partitioner with equal shardings.

Both are compiled by XLA for 8 host devices, `{batch: 2, model: 4}`, from the same function with the same shardings of
arguments and results, and both are counted in the optimised text: what a collective reads, times the share of it that
goes over links. The mesh names no device, so ours are planned by the elements that move: on a device where a collective
takes long to start, a gather is taken instead of many small pieces.
"""

from __future__ import annotations

import math
from typing import Any

import jax
from jax.sharding import NamedSharding

import autopart as ap
from autopart.costmodel.xla.hlo_collectives import collectives
from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
from autopart.spmd.redistribution.collective_cost import sent_share
from autopart.spmd.run import jax_mesh, on_mesh
from experiments.reach.cases import Case

HOST = ap.Mesh({"batch": 2, "model": 4})


def compared(case: Case) -> dict[str, Any]:
    """Bytes sent by each program, and its collectives by kind."""
    mesh = jax_mesh(HOST, jax.devices())
    low = ap.jit(case.fun, HOST, case.tactics).lower(*case.args)

    def placed(tree: Any) -> Any:
        return jax.tree.map(lambda s: NamedSharding(mesh, s.spec), tree)

    (inputs, _), outputs = placed(low.in_shardings), placed(low.out_shardings)
    theirs = jax.jit(case.for_partitioner(mesh), in_shardings=inputs, out_shardings=outputs, keep_unused=True).lower(
        *case.args
    )
    return {"ours": _sent(on_mesh(low.program, low.exported, mesh).lower()), "xla": _sent(theirs)}


def _sent(lowered: Any) -> dict[str, Any]:
    return sent(OptimisedHlo(lowered.compile().as_text()), HOST)


def sent(module: OptimisedHlo, mesh: ap.Mesh) -> dict[str, Any]:
    """Bytes that a device sends in an optimised program, and its collectives by kind."""
    sent_bytes, kinds = 0.0, dict[str, int]()
    for (kind, axes, in_bytes), times in collectives(module, mesh).items():
        devices = math.prod(size for _, size in axes)
        if devices > 1:
            sent_bytes += times * in_bytes * sent_share(kind, devices)
            kinds[kind] = kinds.get(kind, 0) + times
    return {"sent_bytes": sent_bytes, "collectives": kinds}
