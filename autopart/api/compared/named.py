"""`ap.named_schedules`: the schedules that people use, found in a program and costed on a mesh.

named = ap.named_schedules(train_step, mesh, abstract_args, donate_argnums=(0, 1))
print(named)                                    FSDP(data,fsdp)+Megatron(model)  1.91 s  31 GB   ...
step = ap.jit(train_step, mesh, named.best.schedule, donate_argnums=(0, 1))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autopart.api.compared.named_rows import NamedSchedules, costed_schedules
from autopart.api.jitted.any_jit import any_jit
from autopart.api.jitted.jit import OPTIONS, known_options
from autopart.api.jitted.lowered import Lowered
from autopart.api.tactics.tactic import Tactic
from autopart.api.tracing.trace import LoadedProgram
from autopart.base.arguments import ANYTHING, FUNCTION, NONE, check, instance, sequence
from autopart.base.errors import ArgumentError
from autopart.core.mesh import Mesh
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.cost_models import COST_MODEL
from autopart.costmodel.estimate import CostModel
from autopart.spmd.device_local import LoweringOptions

_FUN = FUNCTION | instance("what ap.load returns", LoadedProgram) | instance("an ap.Lowered", Lowered)
_MESH = instance("an ap.Mesh({...})", Mesh) | NONE


def named_schedules(
    fun: Callable | LoadedProgram | Lowered,
    mesh: Mesh | None = None,
    args: Sequence[Any] = (),
    *,
    cost_model: str | CostModel | None = None,
    options: LoweringOptions = LoweringOptions(),
    **jit_options: Any,
) -> NamedSchedules:
    """The named schedules of `fun` for `args` on `mesh`, costed: the same that a search costs first.

    `args` are abstract or concrete, and may hold modules of Equinox or Flax nnx, as `ap.filter_jit` and `ap.nnx.jit`
    take them. `fun` may also be what `ap.jit(...).lower(...)` returned: its program and mesh are
    then meant, its schedule is not. `jit_options` are those of `ap.jit` (`donate_argnums`, ...). At most 64 are costed.

    Raises `MeshError` where the mesh names no device and no cost model is given.
    """
    check("ap.named_schedules", fun=(fun, _FUN), mesh=(mesh, _MESH), options=(options, OPTIONS))
    check(
        "ap.named_schedules",
        args=(args, sequence(ANYTHING, "a list of arguments")),
        cost_model=(cost_model, COST_MODEL),
    )
    jit_options = known_options("ap.named_schedules", jit_options)
    given: Sequence[Tactic] = ()
    if isinstance(fun, Lowered):
        program, mesh = fun.traced.program, mesh or fun.mesh
    elif mesh is None:
        raise ArgumentError("ap.named_schedules: on which mesh?", hint="mesh=ap.Mesh({...}, device=...)")
    else:
        function = any_jit(fun, mesh, args, **jit_options)
        traced = function.traced(args, {})
        program, given = traced.program, function.given(traced, mesh)
    return costed_schedules(Partitioning(program, mesh), given, cost_model, options)
