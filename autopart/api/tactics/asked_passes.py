"""The passes that the tactics of a schedule ask for: another program, before the first of them acts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autopart.api.tactics.manual import ManualPartition
from autopart.api.tactics.pad_tactic import PaddingAsked, pads
from autopart.api.tactics.pipeline import Pipeline, Rolling, stages_asked
from autopart.api.tactics.tactic import RewritesProgram, Tactic, TacticContext
from autopart.base.errors import ArgumentError
from autopart.core.mesh import Mesh
from autopart.core.passes import Pass


def passes_asked(schedule: Sequence[Tactic], meshes: Sequence[Mesh]) -> tuple[Pass, ...]:
    """The passes, for a program that is partitioned over each of `meshes`: padding first, then in order, stages last.

    Raises `ArgumentError` for two tactics of one kind that rewrite the program.
    """
    passes: dict[type, Pass] = {}
    contexts = [TacticContext(position=n, count=len(schedule)) for n in range(1, len(schedule) + 1)]
    for tactic, context in zip(schedule, contexts, strict=True):
        if isinstance(tactic, RewritesProgram):
            if type(tactic) in passes:
                error = ArgumentError(f"a schedule has one ap.{type(tactic).__name__}", why="an earlier tactic is one")
                raise context.blamed(error, tactic)
            passes[type(tactic)] = tactic.program_pass(context)
    rolling = (Rolling(),) if any(isinstance(tactic, Pipeline) for tactic in schedule) else ()
    stages = stages_asked(schedule, contexts, meshes)
    return (*_padding(schedule, contexts, meshes), *rolling, *passes.values(), *stages)


def _padding(schedule: Sequence[Tactic], contexts: Sequence[TacticContext], meshes: Sequence[Mesh]) -> tuple[Pass, ...]:
    tiling = tuple(tactic for tactic in schedule if isinstance(tactic, ManualPartition))
    asking = tuple((t, c) for t, c in zip(schedule, contexts, strict=True) if pads(t))
    axes = {name for mesh in meshes for name in mesh.axis_names}
    sizes = {name: math.lcm(*(mesh.shape.get(name, 1) for mesh in meshes)) for name in sorted(axes)}
    return (PaddingAsked(asking, tiling, sizes),) if asking else ()
