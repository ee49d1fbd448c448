"""`ap.jit`: like `jax.jit`, with a mesh and a schedule.

step = ap.jit(train_step, mesh, [BP, MP], donate_argnums=(0, 1))
params, opt_state, loss = step(params, opt_state, batch)        compiled once per input shape
low = step.lower(*abstract_args)                                no devices needed
low.metadata, low.as_text("hlo"), low.compile()

@ap.jit(mesh=mesh, schedule=[BP, MP])
def train_step(params, opt_state, batch): ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np

from autopart.api.explained.another_program import Remake
from autopart.api.explained.metadata import Metadata
from autopart.api.jitted.ambient import AmbientFunction
from autopart.api.jitted.compiled import Compiled
from autopart.api.jitted.donated import donated_leaves
from autopart.api.jitted.first_state import warn_of_moves
from autopart.api.jitted.kept import Kept
from autopart.api.jitted.lowered import COMPILER_OPTIONS, Lowered
from autopart.api.jitted.method import Method
from autopart.api.plan.plan import Plan
from autopart.api.programs.tried_programs import Setting
from autopart.api.programs.whole_or_apart import scheduled_whole_or_apart
from autopart.api.tactics.asked_passes import passes_asked
from autopart.api.tactics.flax_shardings import names_asked
from autopart.api.tactics.given_shardings import given_shardings
from autopart.api.tactics.schedule import Scheduled
from autopart.api.tactics.schedule_named import Schedule, schedule_of
from autopart.api.tactics.tactic import Tactic
from autopart.api.tracing.call_arguments import check_call, check_numbers, donated_arguments, static_arguments
from autopart.api.tracing.trace import LoadedProgram, Options, Traced, trace
from autopart.base.arguments import (
    ANYTHING,
    FLAG,
    FUNCTION,
    NONE,
    STRING,
    Kind,
    check,
    instance,
    sequence,
    whole,
)
from autopart.base.errors import ArgumentError, PartitionError, PlanError, closest
from autopart.core.doors.jax_dispatch import Dispatcher, FastPath
from autopart.core.doors.jax_internals import context_mesh
from autopart.core.mesh import Mesh
from autopart.core.passes import PASSES_KIND, OwnOutputs, Pass, pass_of
from autopart.costmodel.cost_models import COST_MODEL, cost_model_of
from autopart.costmodel.estimate import CostModel
from autopart.costmodel.hardware.devices import device
from autopart.spmd.device_local import LoweringOptions

_FUN = FUNCTION | instance("what ap.load returns", LoadedProgram)
_MESH = instance("an ap.Mesh({...}), or a jax.sharding.Mesh", Mesh, jax.sharding.Mesh)
_NUMBERS = whole(-(2**31)) | sequence(whole(-(2**31)), "a list of them") | NONE
_NAMES = STRING | sequence(STRING, "a list of them") | NONE
OPTIONS = instance("an ap.LoweringOptions(...)", LoweringOptions)
_IN_MESH = Kind(
    "None here: the mesh says which devices, an ap.Mesh or a jax.sharding.Mesh of them", lambda v: v is None
)
_CONSTRAINTS = Kind('"keep" or "ignore"', lambda v: isinstance(v, str) and v in ("keep", "ignore"))
_STATE = Kind('"free" or "as first"', lambda v: isinstance(v, str) and v in ("free", "as first"))
_LAYOUTS = Kind('"default" or "auto"', lambda v: isinstance(v, str) and v in ("default", "auto"))
_LATER = cast(Callable, object())
"""Stands for the function while `ap.jit(mesh=...)` decorates it."""


def jit(
    fun: Callable | LoadedProgram = _LATER,
    mesh: Mesh | jax.sharding.Mesh | None = None,
    schedule: Schedule = (),
    *,
    passes: Sequence[str | Pass] = (),
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    keep_unused: bool = False,
    inline: bool = False,
    device: Any = None,
    backend: Any = None,
    compiler_options: Mapping[str, Any] | None = None,
    constraints: str = "keep",
    options: LoweringOptions = LoweringOptions(),
    cost_model: str | CostModel | None = None,
    strict: bool = False,
    most_compiled: int = 4096,
    state: str = "free",
    layouts: str = "default",
) -> PartitionedFunction:
    """`fun`, partitioned over `mesh` by `schedule`: a callable like `jax.jit` returns. Without `fun`, a decorator.

    It takes NumPy arrays or jax Arrays of any sharding and returns jax Arrays sharded as the schedule decided. A
    donated argument and the output that updates it keep one layout. `mesh` may be a `jax.sharding.Mesh`,
    whose devices are then used; otherwise the first `mesh.size` of `jax.devices()` are, at the first call. Without it,
    the mesh that `jax.set_mesh` or `with mesh:` has set where the function is called is used. `schedule` is a list of
    tactics, or names one: "FSDP(data)", "plan.json", "tactics.py", "tactics.py:mine"; names may stand in the list too.
    `cost_model`, an object or a registered name, replaces the simulator (which needs the mesh to name a device).
    `strict` raises where propagation stops at a conflict or at an op without a rule, and where a mesh axis that tiles
    arguments divides next to no flop in the end, instead of reporting it. Of the programs compiled for different
    shapes, the `most_compiled` that were called last are kept. Each lays out donated arguments by itself, with a
    `LayoutWarning` where calls in turn would move them; with `state="as first"` all take the plan of the first, where
    axes divide their sizes. `passes` rewrite the program before the first tactic sees it, in order, after the import's
    own (dead code): instances of `autopart.core.passes.Pass`, or names that are registered. An `ap.Plan` is a schedule
    too: what it holds is done again, with its options, and nothing is searched.

    `in_shardings` and `out_shardings` are pytree prefixes of the positional arguments and of the result, as `jax.jit`
    takes them: a `PartitionSpec` or `NamedSharding` over the mesh's axes, by name, or None to leave it to the schedule.
    `in_shardings="flax"` reads partition metadata of flax in the arguments, and a list of pairs such as ("embed",
    "fsdp") does so by these logical axis rules. They are decided before the first tactic, with the sharding constraints
    in the model: `constraints="ignore"` leaves the latter out. `compiler_options` are XLA's, by name. An argument that
    the function does not use stays where it is, unless `keep_unused`. `inline` puts the program into the jaxpr around
    it, where there is one, without a call. `device` and `backend`, which `jax.jit` deprecates, are refused: the mesh
    says what runs where.

    With `layouts="auto"` XLA chooses the layouts in memory of all arguments, and donated state keeps its own from step
    to step: an array in another layout is moved once, and `Compiled.in_formats` says what to put it in beforehand.

    Several threads may call it; each shape is compiled once. In a class it is a method, whose `self` is static or a
    pytree. Under `jax.jit`, `scan` and the like it runs as part of the program around it; transform with `grad` or
    `vmap` before partitioning. Raises `ArgumentError` for arguments of other types than these.
    """
    given: dict[str, Any] = {name: value for name, value in locals().items() if name not in ("fun", "mesh")}
    check("ap.jit", mesh=(mesh, _MESH | NONE))
    if fun is _LATER:
        return cast(Any, lambda fun: jit(fun, mesh, **given))
    check("ap.jit", fun=(fun, _FUN))
    schedule = schedule_of("ap.jit", schedule)
    check("ap.jit", passes=(passes, PASSES_KIND))
    check("ap.jit", donate_argnums=(donate_argnums, _NUMBERS), static_argnums=(static_argnums, _NUMBERS))
    check("ap.jit", donate_argnames=(donate_argnames, _NAMES), static_argnames=(static_argnames, _NAMES))
    check("ap.jit", options=(options, OPTIONS), cost_model=(cost_model, COST_MODEL), strict=(strict, FLAG))
    check("ap.jit", most_compiled=(most_compiled, whole(1)), constraints=(constraints, _CONSTRAINTS))
    check("ap.jit", compiler_options=(compiler_options, COMPILER_OPTIONS))
    check("ap.jit", keep_unused=(keep_unused, FLAG), inline=(inline, FLAG), state=(state, _STATE))
    check("ap.jit", layouts=(layouts, _LAYOUTS))
    check("ap.jit", device=(device, _IN_MESH), backend=(backend, _IN_MESH))
    options = schedule.lowering_options(options) if isinstance(schedule, Plan) else options
    if mesh is None:
        asked: dict[str, Any] = {**given, "schedule": schedule}
        over = lambda mesh: jit(fun, mesh, **asked)  # noqa: E731
        return cast(Any, AmbientFunction("ap.jit", cast(Callable, fun), over))
    devices = None
    if isinstance(mesh, jax.sharding.Mesh):
        devices, mesh = mesh, Mesh(dict(mesh.shape))
    own = () if out_shardings is None else (OwnOutputs(),)
    trace_options = Options(
        static_argnums=_tuple(static_argnums),
        static_argnames=_tuple(static_argnames),
        donate_argnums=_tuple(donate_argnums),
        donate_argnames=_tuple(donate_argnames),
        passes=(*map(pass_of, passes), *passes_asked(schedule, [mesh]), *own),
        constraints=constraints == "keep",
        keep_unused=keep_unused,
    )
    check_numbers(fun, trace_options)
    shardings = names_asked(in_shardings), out_shardings
    settings: dict[str, Any] = {**given, "options": options}

    def again(schedule: Sequence[Tactic], mesh: Mesh) -> PartitionedFunction:
        other: dict[str, Any] = {**settings, "schedule": schedule}
        return jit(fun, mesh, **other)

    return PartitionedFunction(
        fun, mesh, tuple(schedule), trace_options, options, cost_model_of(cost_model), strict, devices,
        most_compiled, shardings, compiler_options, inline, state == "as first",
        layouts == "auto", again,
    )  # fmt: skip


def partition(
    fun: Callable | LoadedProgram,
    mesh: Mesh | jax.sharding.Mesh,
    schedule: Schedule,
    example_args: Sequence[Any] = (),
    **jit_options: Any,
) -> tuple[PartitionedFunction, Metadata]:
    """The paper's two results: the partitioned callable, and the metadata for `example_args` (abstract or concrete)."""
    check("ap.partition", example_args=(example_args, sequence(ANYTHING, "a list of arguments")))
    partitioned = jit(fun, mesh, schedule, **known_options("ap.partition", jit_options))
    return partitioned, partitioned.lower(*example_args).metadata


def known_options(owner: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options, which must be keywords of `jit`."""
    known = [name for name in inspect.signature(jit).parameters if name not in ("fun", "mesh", "schedule")]
    for name in options:
        if name not in known:
            raise ArgumentError(f"{owner}: {name} is no option of ap.jit", hint=closest(name, known))
    return options


def _tuple(one_or_many: Any) -> tuple:
    if one_or_many is None:
        return ()
    return (one_or_many,) if isinstance(one_or_many, (int, str)) else tuple(one_or_many)


class PartitionedFunction(Method):
    """What `jit` returns: call it, or `lower` it for abstract arguments."""

    def __init__(
        self,
        fun: Callable | LoadedProgram,
        mesh: Mesh,
        schedule: tuple[Tactic, ...],
        trace_options: Options,
        options: LoweringOptions,
        cost_model: CostModel | None,
        strict: bool,
        devices: jax.sharding.Mesh | None,
        most_compiled: int,
        shardings: tuple[Any, Any] = (None, None),
        compiler_options: Mapping[str, Any] | None = None,
        inline: bool = False,
        as_first: bool = False,
        free_layouts: bool = False,
        again: Callable[[Sequence[Tactic], Mesh], PartitionedFunction] | None = None,
    ):
        self._fun, self.mesh, self.schedule = fun, mesh, schedule
        self._trace_options, self._options = trace_options, options
        self._cost_model, self._strict, self._devices = cost_model, strict, devices
        self._shardings, self._compiler_options, self._inline = shardings, compiler_options, inline
        self._compiled, self._most_compiled = Kept(most_compiled), most_compiled
        self._as_first, self._free_layouts, self._again = as_first, free_layouts, again
        self._first: Lowered | None = None
        functools.update_wrapper(self, cast(Callable, fun), updated=())

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """The partitioned program for arguments (arrays or `jax.ShapeDtypeStruct`) of these shapes, without devices."""
        setting = Setting(self.mesh, self.schedule, self._options, self._cost_model, self._strict, self.given)
        traced, scheduled = scheduled_whole_or_apart(self.traced(args, kwargs), setting)
        remake = Remake(self._scheduled_again, self.schedule, *self._shapes(args, kwargs))
        return self._lowered(traced, scheduled, remake)

    def _lowered(self, traced: Traced, scheduled: Scheduled, remake: Remake | None = None) -> Lowered:
        return Lowered(
            traced, scheduled, self.mesh, self._devices, self._compiler_options, self._inline, remake,
            free_layouts=self._free_layouts,
        )  # fmt: skip

    def _scheduled_again(
        self, schedule: Sequence[Tactic], mesh: Mesh, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Scheduled:
        assert self._again is not None
        return self._again(schedule, mesh).lower(*args, **kwargs).scheduled

    def _shapes(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments with a shape for each array; static ones stay what they are."""
        static, names = self._static_at(args), self._trace_options.static_argnames
        shapes = tuple(a if n in static else jax.tree.map(_shape_of, a) for n, a in enumerate(args))
        return shapes, {k: v if k in names else jax.tree.map(_shape_of, v) for k, v in kwargs.items()}

    def traced(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Traced:
        """The program for arguments of these shapes, before the schedule."""
        check_call(self._fun, self._trace_options, tuple(args), dict(kwargs))
        return trace(self._fun, self._trace_options, platform_of(self.mesh), self.mesh, tuple(args), dict(kwargs))

    def given(self, traced: Traced, mesh: Mesh) -> Sequence[Tactic]:
        """What comes before the schedule on `mesh`: the shardings given here, and the constraints in the model."""
        return given_shardings(traced, mesh, *self._shardings)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs it on the mesh's devices, compiling once per input shape."""
        try:
            return self._dispatch.call(*args, **kwargs)
        except PartitionError:
            raise
        except Exception:  # jax's dispatch hashes and flattens before anything of ours looks at the arguments
            check_call(self._fun, self._trace_options, args, kwargs)
            raise

    @functools.cached_property
    def _dispatch(self) -> Dispatcher:
        numbers, names = static_arguments(self._fun, self._trace_options)
        name = getattr(self._fun, "__name__", type(self._fun).__name__)
        return Dispatcher(
            name, self._call_slowly, static_argnums=numbers, static_argnames=names, donated=self._donated,
            fun=None if isinstance(self._fun, LoadedProgram) else self._fun, capacity=self._most_compiled,
        )  # fmt: skip

    @property
    def _donated(self) -> Callable[[tuple, dict], Sequence[Any]] | None:
        """What a call donates; None where no call does."""
        numbers, names = donated_arguments(self._fun, self._trace_options)
        file_donates = isinstance(self._fun, LoadedProgram) and self._fun.traced.program.donated
        return (
            functools.partial(donated_leaves, self._fun, numbers, names) if numbers or names or file_donates else None
        )

    def _call_slowly(self, /, *args: Any, **kwargs: Any) -> tuple[Any, FastPath | None]:
        check_call(self._fun, self._trace_options, args, kwargs)
        if jax.config.jax_disable_jit and not isinstance(self._fun, LoadedProgram):  # pyright: ignore
            return self._fun(*args, **kwargs), None
        key, dynamic = self._split(args, kwargs)
        key = (*key, context_mesh())
        compiled: Compiled = self._compiled.get(key, lambda: self._compile(args, kwargs))
        return compiled.run(*dynamic)

    def _compile(self, args: tuple, kwargs: dict) -> Compiled:
        if len(self._compiled) == self._most_compiled:
            # The next compilation lets a program go. Calls that jax dispatches are not seen here, so all are looked at
            # once more: those that are called from now on are the last to go.
            self._dispatch.forget()
        lowered = self._planned_as_first(args, kwargs) or self.lower(*args, **kwargs)
        if lowered.traced.program.ties:
            if self._first is None:
                self._first = lowered
            else:
                warn_of_moves(getattr(self._fun, "__name__", type(self._fun).__name__), self._first, lowered)
        return lowered.compiled_when_called()

    def _planned_as_first(self, args: tuple, kwargs: dict) -> Lowered | None:
        """By the plan of the first program; None where it is not asked for, there is none, or it does not apply."""
        if self._first is None or not self._as_first:
            return None
        try:
            plan = self._first.plan
            setting = Setting(self.mesh, tuple(plan), self._options, self._cost_model, self._strict, _nothing_given)
            traced, scheduled = scheduled_whole_or_apart(self.traced(args, kwargs), setting)
        except PlanError:
            return None
        return self._lowered(traced, scheduled)

    def _split(self, args: tuple, kwargs: dict) -> tuple[Any, tuple[tuple, dict]]:
        options, static_at = self._trace_options, self._static_at(args)
        statics = tuple(args[i] for i in sorted(static_at))
        named = tuple((k, v) for k, v in sorted(kwargs.items()) if k in options.static_argnames)
        dynamic = tuple(a for i, a in enumerate(args) if i not in static_at)
        keywords = {k: v for k, v in kwargs.items() if k not in options.static_argnames}
        leaves, tree = jax.tree.flatten((dynamic, keywords))
        types = tuple(map(_type_of, leaves))
        return (statics, named, tree, types), (dynamic, keywords)

    def _static_at(self, args: tuple) -> set[int]:
        """Positions of the static arguments."""
        options = self._trace_options
        static_at = {n % len(args) for n in options.static_argnums if -len(args) <= n < len(args)}
        return static_at | {
            i for i, name in enumerate(self._positional) if name in options.static_argnames and i < len(args)
        }

    @functools.cached_property
    def _positional(self) -> list[str]:
        try:
            return list(inspect.signature(cast(Callable, self._fun)).parameters)
        except (TypeError, ValueError):
            return []


def _nothing_given(traced: Traced, mesh: Mesh) -> Sequence[Tactic]:
    """What comes before a plan, which holds what was given when it was made."""
    return ()


def _shape_of(x: Any) -> Any:
    """An array, or a number, as its shape and type."""
    if isinstance(x, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type)
    if isinstance(x, str) or not (hasattr(x, "dtype") or isinstance(x, (int, float, complex))):
        return x
    shape, dtype, weak = _type_of(x)
    return jax.ShapeDtypeStruct(shape, dtype, weak_type=weak)


def _type_of(x: Any) -> tuple[tuple[int, ...], Any, bool]:
    """(shape, dtype, whether the type is weak): what a program is compiled for."""
    if isinstance(x, jax.Array):
        return x.shape, x.dtype, getattr(x, "weak_type", False)
    weak = isinstance(x, (int, float, complex)) and not isinstance(x, (bool, np.generic))
    return np.shape(x), jax.dtypes.result_type(x), weak


def platform_of(mesh: Mesh) -> str:
    """The platform a mesh's program is lowered for: its device's kind, else the default backend's."""
    kind = mesh.device or ""
    if kind.endswith(".json"):
        return {"xla_tpu": "tpu", "xla_gpu": "cuda"}.get(device(kind).compiler, "cpu")
    if kind.startswith("tpu"):
        return "tpu"
    if kind and not kind.startswith("cpu"):
        return "cuda"
    return "cpu" if kind else jax.default_backend().replace("gpu", "cuda")
