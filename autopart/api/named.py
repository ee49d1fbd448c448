"""`ap.named_schedules`: the schedules that people use, found in a program and costed on a mesh.

named = ap.named_schedules(train_step, mesh, abstract_args, donate_argnums=(0, 1))
print(named)                                    FSDP(data,fsdp)+Megatron(model)  1.91 s  31 GB   ...
step = ap.jit(train_step, mesh, named.best.schedule, donate_argnums=(0, 1))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autopart.api.any_jit import any_jit
from autopart.api.jit import OPTIONS, known_options
from autopart.api.lowered import Lowered
from autopart.api.parallelism import Parallelism
from autopart.api.tactic import Tactic, TacticContext, actions_of
from autopart.api.trace import LoadedProgram
from autopart.core.arguments import ANYTHING, FUNCTION, NONE, check, instance, sequence
from autopart.core.errors import ArgumentError, UnknownNameError, closest
from autopart.core.mesh import Mesh
from autopart.core.partitioning import Partitioning
from autopart.costmodel.cost_models import COST_MODEL, cost_model_of
from autopart.costmodel.estimate import CostModel
from autopart.search.baselines import MOST
from autopart.search.budget import Budget
from autopart.search.comparison import row_text
from autopart.search.problem import Problem
from autopart.search.search import Search, search
from autopart.search.space.several_axes import REPLICATED
from autopart.spmd.device_local import LoweringOptions

_FUN = FUNCTION | instance("what ap.load returns", LoadedProgram) | instance("an ap.Lowered", Lowered)
_MESH = instance("an ap.Mesh({...})", Mesh) | NONE


@dataclass(frozen=True)
class NamedSchedule:
    """A named schedule with its costs.

    step_s, peak_bytes   estimates for one device
    fits                 whether the peak is within the device's memory
    """

    name: str
    step_s: float
    peak_bytes: float
    fits: bool

    @property
    def schedule(self) -> list[Parallelism]:
        """For `ap.jit`: one tactic, none for the replicated program."""
        return [] if self.name == REPLICATED else [Parallelism(self.name)]


@dataclass(frozen=True)
class NamedSchedules(Sequence[NamedSchedule]):
    """Named schedules, the best first: by memory that is missing, then by seconds. Found by place, or by name."""

    rows: tuple[NamedSchedule, ...]

    @property
    def best(self) -> NamedSchedule:
        """The fastest that fits; where none does, the one that comes nearest."""
        return self.rows[0]

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self.rows[key]
        named = {row.name: row for row in self.rows}
        if key not in named:
            raise UnknownNameError(f'no named schedule of the program is "{key}"', hint=closest(key, list(named)))
        return named[key]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[NamedSchedule]:
        return iter(self.rows)

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        return "\n".join(row_text(vars(row), width) for row in self.rows)


@dataclass(frozen=True)
class _NothingElse:
    """An optimizer that leaves it at the baselines."""

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`."""


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
    wanted = Search(
        axes=mesh.axis_names, optimizer=_NothingElse(), budget=Budget(MOST), cost_model=cost_model_of(cost_model),
        options=options, cache=False,
    )  # fmt: skip
    start = Partitioning(program, mesh)
    actions_of(start, given, TacticContext(options, cost_model_of(cost_model)))
    report = search(start, wanted).report
    rows = sorted(report["baselines"], key=lambda row: row["rank"])
    return NamedSchedules(tuple(NamedSchedule(r["name"], r["step_s"], r["peak_bytes"], r["fits"]) for r in rows))
