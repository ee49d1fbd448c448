"""`ap.sweep`: which mesh, and which schedule on it? Of which devices, and with which batch?

result = ap.sweep(train_step, abstract_args, devices=32, device="tpu_v3", axes=("batch", "model"))
print(result)                    a row per factorisation of 32: step, memory, MFU, whether it fits
best = result.best
step = ap.jit(train_step, best.mesh, [best.tactic])

ap.sweep(train_step, args, devices={"h100": 64, "tpu_v5p": 64}, price={"h100": 2.5, "tpu_v5p": 4.2})    $ a Mtoken
ap.sweep(train_step, args_of, batches=(256, 512, 1024), devices=64, device="h100").pareto               by batch
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from autopart.api.compared.sweep_rows import Sweep, SweepRow
from autopart.api.jitted.any_jit import Jitted, any_jit
from autopart.api.jitted.jit import OPTIONS, known_options
from autopart.api.plan.replay_tactic import Replay
from autopart.api.tactics.asked_passes import passes_asked
from autopart.api.tactics.automatic import AutomaticPartition
from autopart.api.tactics.pipeline import Pipeline
from autopart.api.tactics.schedule_named import Schedule, schedule_of
from autopart.api.tactics.tactic import Tactic, TacticContext, actions_of
from autopart.api.tracing.names import Keys
from autopart.api.tracing.trace import LoadedProgram
from autopart.base.arguments import (
    ANYTHING,
    NONE,
    TEXT,
    Kind,
    check,
    check_once,
    function_of,
    instance,
    mapping,
    number,
    sequence,
    shown,
    whole,
)
from autopart.base.errors import ArgumentError, MeshError, PartitionError, closest
from autopart.core.mesh import Mesh
from autopart.core.table.actions import text_of
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.cost_models import cost_model_of
from autopart.costmodel.estimate import CostModel
from autopart.costmodel.hardware.devices import device as device_named
from autopart.costmodel.utilization import tokens_found, utilization
from autopart.search.budget import Budget
from autopart.search.evaluation.cost import Objective
from autopart.search.execution.executor import Executor, executor_of
from autopart.search.mesh_search import MeshTask, search_meshes
from autopart.search.optimizers.optimizer import Optimizer, optimizer_of
from autopart.search.search import DEFAULT_OBJECTIVE, Search, SearchResult
from autopart.spmd.device_local import LoweringOptions

SWEEP_BUDGET = Budget(400)
"""Evaluations per mesh unless told otherwise."""


_PRICE = mapping(TEXT, number(0), 'a dict of devices to prices of a device and hour, such as {"h100": 2.5}') | NONE
_OF_KINDS = Kind("None: devices= says which kinds there are", NONE.legal)
_DEVICE = Kind("the name of a registered device, such as 'h100', or devices={'h100': 64}", TEXT.legal)
_AXES = sequence(TEXT, "a list of axis names", least=1)
_ARGS = sequence(ANYTHING, "a list of arguments, or with batches=(16, 32) a function of the batch that returns it")
_MESHES = sequence(instance("meshes", Mesh), "a list of ap.Mesh({...})", least=1) | NONE


def sweep(
    fun: Callable | LoadedProgram,
    args: Sequence[Any] | Callable[[int], Sequence[Any]] = (),
    *,
    devices: int | Mapping[str, int] | None = None,
    device: str | None = None,
    axes: Sequence[str] = ("batch", "model"),
    schedule: Schedule = (),
    meshes: Sequence[Mesh] | None = None,
    batches: Sequence[int] | None = None,
    tokens: int | Callable[[int], int] | None = None,
    price: Mapping[str, float] | None = None,
    optimizer: str | Optimizer = "mcts",
    budget: Budget = SWEEP_BUDGET,
    seed: int = 0,
    executor: str | Executor = "serial",
    objective: Objective = DEFAULT_OBJECTIVE,
    cost_model: str | CostModel | None = None,
    options: LoweringOptions = LoweringOptions(),
    cache: bool | str | Path = True,
    **jit_options: Any,
) -> Sweep:
    """Searches a schedule for `fun` on every mesh of `devices` devices with these `axes`, in parallel on the executor.

    Every way to write `devices` as an ordered product is a mesh, sizes of 1 included; or `meshes` are given, each with
    a device of its own. `devices={"h100": 64, "tpu_v5p": 32}` is a sweep over kinds of devices. `schedule` is applied
    first on each; a mesh on which that is not legal gets a row that says so. `budget` counts per mesh; one whose result
    after a quarter of it is much worse than the best of its kind and batch is given up.
    `batches` are tried in turn: `args` is then a function of the batch that returns the arguments.
    `tokens` are those of a step, a number or a function of the batch; without, they are counted in the largest input of
    integers. `price` is that of a device and hour. `jit_options` are those of `ap.jit` (`donate_argnums`, ...).
    """
    found = list(_meshes_of(devices, device, axes, meshes))
    check("ap.sweep", batches=(batches, sequence(whole(1), "a list of batch sizes", least=1) | NONE))
    check("ap.sweep", tokens=(tokens, (whole(1) if batches is None else whole(1) | function_of(1)) | NONE))
    check("ap.sweep", price=(price, _PRICE), options=(options, OPTIONS))
    schedule = schedule_of("ap.sweep", schedule)
    known_args = _ARGS if batches is None else function_of(1)
    check("ap.sweep", args=(args, known_args))
    for name in price or ():
        if name not in {mesh.device for mesh in found}:
            raise ArgumentError(
                f"ap.sweep: a price of {shown(name)}",
                hint=closest(name, dict.fromkeys(mesh.device or "" for mesh in found)),
            )
    if unpriced := sorted({mesh.device or "" for mesh in found} - {*price}) if price is not None else []:
        raise ArgumentError(
            f"ap.sweep: no price of {shown(unpriced[0])}",
            why="the best of a sweep with prices is the cheapest, and each of its devices has one",
            hint=f"price={{..., {unpriced[0]!r}: ...}}",
        )
    search = AutomaticPartition(
        list(axes), optimizer=optimizer, budget=budget, seed=seed, executor=executor, objective=objective,
        cost_model=cost_model, options=options, cache=cache,
    )  # fmt: skip
    jit_options = known_options("ap.sweep", jit_options)
    rows: list[SweepRow] = []
    for batch in batches or (None,):
        given = args if batch is None else cast("Callable[[int], Sequence[Any]]", args)(batch)
        check("ap.sweep", args=(given, sequence(ANYTHING, "a list of arguments")))
        same = dict[Mesh, SweepRow]()
        for of_kind in _with_one_program(found, schedule):
            told, kind = tokens(cast(int, batch)) if callable(tokens) else tokens, of_kind[0].device
            known = {"batch_size": batch, "price": None if price is None or kind is None else price.get(kind)}
            asked = {**jit_options, "passes": [*jit_options.get("passes", ()), *passes_asked(schedule, of_kind)]}
            function = any_jit(fun, of_kind[0], cast("Sequence[Any]", given), **cast("dict[str, Any]", asked))
            swept = _swept(
                function, cast("Sequence[Any]", given), of_kind, schedule, search, meshes is None, told, bool(price)
            )
            same |= {row.mesh: replace(row, **known) for row in swept}
        rows += [same[mesh] for mesh in found]
    named = {mesh.device for mesh in found}
    return Sweep(tuple(rows), named.pop() if len(named) == 1 else None)


def _with_one_program(meshes: Sequence[Mesh], schedule: Sequence[Tactic]) -> Iterator[list[Mesh]]:
    """The meshes of each kind of device with as many stages."""
    axes, found = [t.axis for t in schedule if isinstance(t, Pipeline)], dict[object, list[Mesh]]()
    for mesh in meshes:
        found.setdefault((mesh.device, *(mesh.shape.get(axis) for axis in axes)), []).append(mesh)
    yield from found.values()


def _meshes_of(
    devices: int | Mapping[str, int] | None, device: str | None, axes: Sequence[str], meshes: Sequence[Mesh] | None
) -> Iterator[Mesh]:
    check("ap.sweep", axes=(axes, _AXES), meshes=(meshes, _MESHES))
    check_once("ap.sweep", axes)
    kinds = mapping(TEXT, whole(1, 2**20), "a dict of devices to numbers of them")
    if meshes is not None:
        check("ap.sweep", device=(device, TEXT | NONE))
        yield from meshes
        return
    if isinstance(devices, Mapping):
        check("ap.sweep", devices=(devices, kinds), device=(device, _OF_KINDS))
        counts = dict(devices)
        if not counts:
            raise MeshError("a sweep over no devices", hint='devices={"h100": 64}')
    elif whole(1, 2**20).legal(devices):
        check("ap.sweep", device=(device, _DEVICE))
        counts = {cast(str, device): cast(int, devices)}
    else:
        raise MeshError(
            "a sweep over no devices" if devices is None else f"a sweep over {shown(devices)} devices",
            why=f"their number is {whole(1, 2**20).says}",
            hint='devices=64, device="h100"; devices={"h100": 64, "tpu_v5p": 32}; or meshes=[...]',
        )
    for kind, count in counts.items():
        yield from (Mesh(sizes, device=kind) for sizes in factorisations(count, axes))


def _swept(
    function: Jitted, args: Sequence[Any], meshes: Sequence[Mesh], schedule: Sequence[Tactic],
    search: AutomaticPartition, all_axes: bool, tokens: int | None, is_priced: bool,
) -> Iterator[SweepRow]:  # fmt: skip
    """The rows of one program on meshes of one kind of device."""
    try:
        traced = function.traced(args, {})
    except PartitionError as error:
        if not any(isinstance(tactic, Pipeline) for tactic in schedule):
            raise
        yield from (SweepRow(mesh, error=str(error)) for mesh in meshes)
        return
    counted = tokens_found(traced.program)
    tokens = tokens or (counted[0] if counted else None)
    if is_priced and tokens is None:
        raise ArgumentError(
            "ap.sweep: a price, and nothing to divide it by",
            why="tokens are counted in the largest input of integers with two dims or more, and there is none",
            hint="tokens=, the tokens, images or rows of a step",
        )
    starts: dict[int, Partitioning] = {}
    errors: dict[int, str] = {}
    price, options = cost_model_of(search.cost_model), search.options or LoweringOptions()
    for place, mesh in enumerate(meshes):
        try:
            partitioning = Partitioning(traced.program, mesh)
            tactics = [*function.given(traced, mesh), *schedule]
            actions_of(partitioning, tactics, TacticContext(options, price))
        except PartitionError as error:
            errors[place] = str(error)
        else:
            starts[place] = partitioning
    wanted = Search(
        axes=search.axes_of(meshes[0]) if all_axes else meshes[0].axis_names,
        optimizer=optimizer_of(search.optimizer), budget=search.budget, seed=search.seed, objective=search.objective,
        cost_model=price, options=options, cache=search.cache,
    )  # fmt: skip
    session = executor_of(search.executor).start(MeshTask(tuple(starts.values()), wanted))
    try:
        results = dict(zip(starts, search_meshes(session, len(starts), search.budget), strict=True)) if starts else {}
    finally:
        session.close()
    for place, mesh in enumerate(meshes):
        if place in errors:
            yield SweepRow(mesh, error=errors[place])
            continue
        row, kind = _row(starts[place], *results[place]), mesh.device
        share = utilization(traced.program, device_named(kind), mesh.size, row.step_s) if kind and row.step_s else None
        yield replace(row, utilization=share, tokens=tokens)


def _row(start: Partitioning, found: SearchResult, searched: bool) -> SweepRow:
    best, keys = found.report["best"], Keys(start.program)
    return SweepRow(
        mesh=start.mesh,
        step_s=best["step_s"],
        peak_bytes=best["peak_bytes"],
        fits=best["fits"],
        score=best["score"],
        evaluations=found.report["evaluations"],
        searched=searched,
        decisions=tuple(found.report["decisions"]),
        actions=tuple(text_of(a, keys) for a in found.actions),
        tactic=Replay(found.actions),
    )


def factorisations(count: int, axes: Sequence[str]) -> Iterator[dict[str, int]]:
    """Every way to write `count` as a product of one factor per axis, the first axis largest first.

    >>> [tuple(sizes.values()) for sizes in factorisations(4, ("batch", "model"))]
    [(4, 1), (2, 2), (1, 4)]
    """
    divisors = [d for d in range(count, 0, -1) if count % d == 0]
    for sizes in itertools.product(divisors, repeat=len(axes)):
        product = 1
        for size in sizes:
            product *= size
        if product == count:
            yield dict(zip(axes, sizes, strict=True))
