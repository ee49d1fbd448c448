"""The programs with stages that a search chooses from, beside those without.

    ap.AutomaticPartition(axes, stages=("pipe",), microbatch=(8, 16, 32), recompute=True)

    "1f1b"                  of 8, 16, 32 microbatches, each keeping all, "matmuls" or "blocks": which is fastest
    "gpipe", "circular"     of the best of those: what another order gains

An axis of stages is used as any other by what is outside the layers, and by the programs without stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autopart.api.programs.rewritings import Rewriting, batch_inputs, policies_of
from autopart.api.programs.tried_programs import Tried
from autopart.api.tactics.automatic import AutomaticPartition
from autopart.api.tactics.microbatch import Microbatch
from autopart.api.tactics.pipeline import Pipeline, Pipelining
from autopart.api.tactics.tactic import TacticContext
from autopart.core.mesh import Mesh
from autopart.core.program import Program

MICROBATCHES = (1, 2, 4)
"""Microbatches for each stage that are tried where a search is given no numbers of them."""

OTHERS = (("gpipe", None), ("circular", 2), ("circular", 4))
"""Schedules, and runs of layers of a device, that are tried with the best microbatches and policy."""


def staged_programs(
    program: Program, search: AutomaticPartition, mesh: Mesh, price: Callable[[Rewriting], Tried]
) -> list[Tried]:
    """The programs with stages along each axis that may have them, priced; without an axis on which none can be."""
    tried = list[Tried]()
    for axis in search.axes_of(mesh) if search.stages is True else search.stages or ():
        stages = mesh.axis_sizes[mesh.index(axis)]
        numbers = [m for m in search.microbatch if m > 1] or [stages * m for m in MICROBATCHES]
        if stages > 1:
            tried += _along(axis, stages, numbers, batch_inputs(program, numbers), search, price)
    return tried


def _along(
    axis: str,
    stages: int,
    numbers: Sequence[int],
    inputs: Mapping[str, Any],
    search: AutomaticPartition,
    price: Callable[[Rewriting], Tried],
) -> list[Tried]:
    def pass_of(schedule: str, repeats: int | None = None) -> Pipelining:
        return Pipelining(Pipeline(axis, schedule=schedule, repeats=repeats), TacticContext(), stages)

    tried = list[Tried]()
    for number in numbers:
        for recompute in (None, *policies_of(search)):
            tried.append(price(Rewriting(Microbatch(inputs, number), recompute, pipeline=pass_of("1f1b"))))
            if tried[-1].error is not None:
                break
    best = min(tried, key=lambda t: t.rank)
    if best.scheduled is not None:
        tried += [price(replace(best.rewriting, pipeline=pass_of(*other))) for other in OTHERS]
    return tried
