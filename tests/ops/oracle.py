"""The oracle of tile mappings is XLA: run the op whole, run it on slices, reassemble, compare.

    trial  loop by mapping 0, 2 ways             slices  x[0:2], x[2:4] -> y0, y1
           (0, WHOLE) -> tile 0                  whole   x -> y             concatenate(y0, y1) == y ?

All trials of an op are emitted into one module next to the whole op, and compiled once: each trial as one device
computes it, whose slices and position are arguments. Running the module once per device gives all parts.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import jax
import numpy as np

from autopart.core.doors.jax_internals import device_local_call, func, ir, numpy_dtype
from autopart.core.mlir_values import mlir_type
from autopart.core.op import AND, ANY, MAX, MIN, MUL, OR, SUM, WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.op_spec_import import tensor_type
from autopart.core.ops.example_import import example_op
from autopart.core.ops.rule import Example, localize
from autopart.core.stretch import Stretch
from autopart.spmd.emission.local_op import MlirLocalOp
from tests.ops.stand_ins import replace_what_cpu_lacks

DRAWS = 3
"""Sets of operands that each op is run on."""

COMBINE: dict[int, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    SUM: np.add,
    MAX: np.maximum,
    MIN: np.minimum,
    MUL: np.multiply,
    AND: np.bitwise_and,
    OR: np.bitwise_or,
}


@dataclass(frozen=True)
class Subject:
    """An op under test: MLIR op, spec, and several draws of its operands, lest one make a false mapping look true."""

    example: Example
    op: ir.Operation
    module: ir.Module
    spec: OpSpec
    draws: tuple[tuple[np.ndarray, ...], ...]


@dataclass(frozen=True)
class Trial:
    """The op in a loop nest: `nest` lists (mapping, ways), outermost first; `emit` makes one device's results."""

    nest: tuple[tuple[TileMapping, int], ...]
    results: tuple[TensorType, ...]
    emit: Callable[[Sequence[ir.Value], Sequence[TensorType], Sequence[ir.Value]], list[ir.Value]] = field(
        compare=False
    )

    @property
    def ways(self) -> list[int]:
        """Slices per loop."""
        return [ways for _, ways in self.nest]

    def operand_types(self, spec: OpSpec) -> list[TensorType]:
        """Types of the operands on one device."""
        types = list(spec.operands)
        for mapping, ways in self.nest:
            types = [sliced(t, d, ways) for t, d in zip(types, mapping.operands, strict=True)]
        for mapping, ways, _ in self._stretched((0,) * len(self.nest)):
            for i, stretch in enumerate(mapping.reads):
                if stretch is not None:
                    shape = list(types[i].shape)
                    shape[mapping.operands[i]] = stretch.length(ways)
                    types[i] = replace(types[i], shape=tuple(shape))
        return types

    def _stretched(self, place: tuple[int, ...]) -> list[tuple[TileMapping, int, int]]:
        """(mapping, ways, position) of each mapping whose iterations read stretches, all its loops taken together."""
        found: dict[TileMapping, tuple[int, int]] = {}
        for (mapping, ways), position in zip(self.nest, place, strict=True):
            cut, at = found.get(mapping, (1, 0))
            found[mapping] = cut * ways, at * ways + position
        return [(mapping, *where) for mapping, where in found.items() if mapping.reads]

    def on_device(self, operands: Sequence[np.ndarray], place: tuple[int, ...]) -> list[np.ndarray]:
        """The operands' slices at `place`, one position per loop, and the positions."""
        held = list(operands)
        for mapping, ways, position in self._stretched(place):
            for i, stretch in enumerate(mapping.reads):
                if stretch is not None:
                    held[i] = stretch_of(held[i], mapping.operands[i], stretch, ways, position)
        for (mapping, ways), position in zip(self.nest, place, strict=True):
            for i, dim in enumerate(mapping.operands):
                if dim != WHOLE and mapping.stretch(i) is None:
                    held[i] = np.split(held[i], ways, axis=dim)[position]
        return [*held, *np.array(place, np.int32)]


def stretch_of(array: np.ndarray, dim: int, stretch: Stretch, ways: int, position: int) -> np.ndarray:
    """What an iteration reads: elements of the dim, one by one, and zeros where there are none."""
    begins = stretch.first(ways, position) + stretch.apart * np.arange(stretch.times)
    wanted = (begins[:, None] + np.arange(stretch.piece(ways))).reshape(-1)
    taken = np.take(array, np.clip(wanted, 0, array.shape[dim] - 1), axis=dim)
    there = ((wanted >= 0) & (wanted < array.shape[dim])).reshape([-1 if d == dim else 1 for d in range(array.ndim)])
    return np.where(there, taken, np.zeros_like(taken))


def subject_of(example: Example) -> Subject:
    """Parses an example and draws its operands."""
    parsed = example_op(example)
    spec = parsed.spec
    rng = np.random.default_rng(len(example.text))
    feeds = itertools.chain(example.operands, itertools.repeat(None))
    feeds = list(itertools.islice(feeds, len(spec.operands)))
    draws = tuple(tuple(map(draw, itertools.repeat(rng), spec.operands, feeds)) for _ in range(DRAWS))
    return Subject(example, parsed.op, parsed.module, spec, draws)


def draw(rng: np.random.Generator, type_: TensorType, feed: object) -> np.ndarray:
    """An operand: small integers, which floats add exactly, unless `feed` says otherwise (see `Example`)."""
    shape, dtype = type_.shape, numpy_dtype(type_.dtype)
    if feed == "spd":
        square = rng.normal(size=(*shape[:-1], shape[-1]))
        return (square @ np.swapaxes(square, -1, -2) + 3 * np.eye(shape[-1])).astype(dtype)
    low, high = feed if isinstance(feed, tuple) else (-4, 4)
    if type_.dtype == "i1" and not isinstance(feed, tuple):
        low, high = 0, 2
    if isinstance(low, float):
        return rng.uniform(low, high, shape).astype(dtype)
    if not isinstance(feed, tuple) and type_.dtype.startswith("ui"):
        low, high = 0, 9
    drawn = rng.integers(low, high, shape, endpoint=type_.dtype.startswith(("f", "b")))
    if type_.dtype.startswith("complex"):
        return (drawn + 1j * rng.integers(low, high, shape)).astype(dtype)
    return drawn.astype(dtype)


def sliced(type_: TensorType, dim: int, ways: int) -> TensorType:
    """The type of one of `ways` slices along `dim`; of the whole for WHOLE and reductions."""
    if not 0 <= dim < len(type_.shape):
        return type_
    shape = list(type_.shape)
    assert shape[dim] % ways == 0, (type_, dim, ways)
    shape[dim] //= ways
    return TensorType(tuple(shape), type_.dtype)


def declared_trial(subject: Subject, nest: Sequence[tuple[int, int]], mappings: Sequence[TileMapping]) -> Trial:
    """The op in loops over `mappings`: (mapping number, ways), outermost first, emitted as lowering does."""
    spec = subject.spec
    results = list(spec.results)
    for number, ways in nest:
        results = [sliced(t, d, ways) for t, d in zip(results, mappings[number].results, strict=True)]
    axes = [(axis, number) for axis, (number, _) in enumerate(nest)]

    def emit(operands, types, positions):
        where = _Where([ways for _, ways in nest], positions)
        return localize(MlirLocalOp(spec, subject.op, mappings, axes, operands, types, results, where))

    return Trial(tuple((mappings[number], ways) for number, ways in nest), tuple(results), emit)


@dataclass
class _Where:
    """`AxisPositions` over the loops of a trial."""

    sizes: Sequence[int]
    positions: Sequence[ir.Value]

    def axis_size(self, axis: int) -> int:
        return self.sizes[axis]

    def axis_position(self, axis: int) -> ir.Value:
        return self.positions[axis]


NOT_AN_OP = (ir.MLIRError, AssertionError, ValueError, IndexError, KeyError, TypeError, ZeroDivisionError)
"""What emitting an undeclared mapping may raise: its local types fit neither the op nor its rule."""


class Unsound(Exception):
    """A mapping whose slices do not make up the whole; the message shows both."""


class Workbench:
    """One module that holds an op whole and, for each trial, the op on one device; `run` feeds it every device."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self.trials: list[Trial] = []
        with subject.op.context, ir.Location.unknown():
            self._module = ir.Module.create()
            for other in list(subject.module.body.operations)[:-1]:
                self._module.body.append(other.operation.clone())
            with ir.InsertionPoint(self._module.body):
                self._main = func.FuncOp("main", ir.FunctionType.get([], []), visibility="public")
                self._block = self._main.add_entry_block()
            with ir.InsertionPoint(self._block):
                whole = subject.op.clone()
                for i, type_ in enumerate(subject.spec.operands):
                    whole.operands[i] = self._argument(type_)
        self._outputs = list(whole.results)

    def _argument(self, type_: TensorType) -> ir.Value:
        return self._block.add_argument(mlir_type(type_), ir.Location.unknown())

    def try_to_add(self, trial: Trial) -> int | None:
        """As `add`; None if the op cannot even be written on these slices."""
        try:
            return self.add(trial)
        except NOT_AN_OP:
            return None

    def add(self, trial: Trial) -> int:
        """Emits the op on one device of a trial; returns the trial's number. Emits nothing if it raises."""
        ops, arguments = len(list(self._block.operations)), len(self._block.arguments)
        try:
            with self.subject.op.context, ir.Location.unknown(), ir.InsertionPoint(self._block):
                types = trial.operand_types(self.subject.spec)
                operands = [self._argument(t) for t in types]
                positions = [self._argument(TensorType((), "i32")) for _ in trial.nest]
                results = trial.emit(operands, types, positions)
                found = tuple(tensor_type(r.type) for r in results)
                assert found == trial.results, f"local results are {found}, not {trial.results}"
                for op in list(self._block.operations)[ops:]:
                    op.operation.verify()
        except Exception:
            for op in reversed(list(self._block.operations)[ops:]):
                op.operation.erase()
            for number in reversed(range(arguments, len(self._block.arguments))):
                self._block.erase_argument(number)
            raise
        self.trials.append(trial)
        self._outputs += results
        return len(self.trials) - 1

    def run(self) -> list[Run]:
        """Compiles the module, and runs it for every draw and every device."""
        with self.subject.op.context, ir.Location.unknown(), ir.InsertionPoint(self._block):
            func.ReturnOp(self._outputs)
            type_ = ir.FunctionType.get([a.type for a in self._block.arguments], [v.type for v in self._outputs])
            self._main.attributes["function_type"] = ir.TypeAttr.get(type_)
            kinds = [tensor_type(v.type) for v in self._outputs]
            replace_what_cpu_lacks(self._module)
        run = compiled(self._module, kinds)
        return [self._on_all_devices(run, draw) for draw in self.subject.draws]

    def _on_all_devices(self, run: Callable[..., list[np.ndarray]], draw: tuple[np.ndarray, ...]) -> Run:
        count = len(self.subject.spec.results)
        grids = [list(itertools.product(*map(range, t.ways))) for t in self.trials]
        devices: list[list[list[np.ndarray]]] = [[] for _ in self.trials]
        for step in range(max(map(len, grids), default=1)):
            places = [grid[min(step, len(grid) - 1)] for grid in grids]
            fed = [x for trial, place in zip(self.trials, places, strict=True) for x in trial.on_device(draw, place)]
            outputs = run(*draw, *fed)
            for number, grid in enumerate(grids):
                if step < len(grid):
                    devices[number].append(outputs[count * (number + 1) : count * (number + 2)])
        return Run(outputs[:count], devices)


@dataclass(frozen=True)
class Run:
    """Results of the op whole, and `devices[trial][device][result]`, the last loop's devices next to each other."""

    whole: list[np.ndarray]
    devices: list[list[list[np.ndarray]]]


@functools.cache
def _load_lapack() -> None:
    """jax loads LAPACK when it first lowers a call of it; modules of ours hold such calls without that."""
    jax.jit(jax.lax.linalg.lu).lower(jax.ShapeDtypeStruct((2, 2), np.float32))


def compiled(module: ir.Module, results: Sequence[TensorType]) -> Callable[..., list[np.ndarray]]:
    """A module as a function of arrays, compiled by XLA for the CPU."""
    _load_lapack()
    call = device_local_call(module, [(t.shape, numpy_dtype(t.dtype)) for t in results])
    call = jax.jit(call, compiler_options={"xla_backend_optimization_level": 0})

    def run(*operands: np.ndarray) -> list[np.ndarray]:
        with jax.enable_x64(True):
            return [np.asarray(x) for x in call(*operands)]

    return run


def reassembled(trial: Trial, devices: list[list[np.ndarray]], result: int, actions: Sequence[int]) -> np.ndarray:
    """Result number `result` put together from what the devices hold; `actions` per loop, outermost first."""
    parts = [device[result] for device in devices]
    for ways, action in zip(reversed(trial.ways), reversed(actions), strict=True):
        groups = [parts[i : i + ways] for i in range(0, len(parts), ways)]
        parts = [combined(group, action) for group in groups]
    return parts[0]


def combined(parts: Sequence[np.ndarray], action: int) -> np.ndarray:
    """One loop's parts as a whole: concatenated, reduced, or any of them if they agree."""
    if action == ANY:
        if not all(np.array_equal(parts[0], p, equal_nan=parts[0].dtype.kind in "fc") for p in parts):
            raise Unsound("devices disagree")
        return parts[0]
    if action in COMBINE:
        with np.errstate(all="ignore"):
            return functools.reduce(COMBINE[action], parts).astype(parts[0].dtype)
    return np.concatenate(parts, axis=action)


def same(whole: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    """Equal; floats to within `tolerance` of the largest element, or of a few units in the last place."""
    if whole.shape != other.shape:
        return False
    if whole.dtype.kind in "biu":
        return bool(np.array_equal(whole, other))
    a, b = (x.astype(np.complex128 if np.iscomplexobj(x) else np.float64) for x in (whole, other))
    unit = 2e-2 if whole.dtype.itemsize == 2 else 2e-6
    finite = np.abs(a[np.isfinite(a)])
    scale = finite.max() if finite.size else 1.0
    return bool(np.allclose(a, b, rtol=max(tolerance, unit), atol=max(tolerance, 1e-9) * scale, equal_nan=True))


def check(subject: Subject, trial: Trial, runs: list[Run], number: int) -> None:
    """Raises `Unsound` unless what the devices hold makes up the whole as the trial's mappings say, in every run."""
    for run, result in itertools.product(runs, range(len(subject.spec.results))):
        expected = run.whole[result]
        found = reassembled(trial, run.devices[number], result, [mapping.results[result] for mapping, _ in trial.nest])
        if not same(expected, found, subject.example.tolerance):
            raise Unsound(f"{trial.nest} of {subject.example.text}\nwhole\n{expected}\nfrom slices\n{found}")


# ---- all conceivable mappings


def conceivable(subject: Subject, ways: int, limit: int, rng: np.random.Generator) -> list[TileMapping]:
    """Ways to slice operands, with a guess per result (a dim, or SUM for any reduction), at most `limit`, undeclared.

    Slicing no operand and tiling no result says nothing and is left out.
    """
    spec = subject.spec

    def cuts(type_: TensorType, otherwise: int) -> list[int]:
        return [otherwise, *(d for d, n in enumerate(type_.shape) if n > 1 and n % ways == 0)]

    choices = [cuts(t, WHOLE) for t in spec.operands] + [cuts(t, SUM) for t in spec.results]
    if math.prod(map(len, choices)) > 20000:
        rows = {tuple(int(rng.choice(c)) for c in choices) for _ in range(4 * limit)}
        every: Iterator[tuple[int, ...]] = iter(sorted(rows))
    else:
        every = itertools.product(*choices)
    count = len(spec.operands)
    found = [TileMapping(row[:count], row[count:], ways) for row in every]
    found = [m for m in found if any(d != WHOLE for d in m.operands) or any(r != SUM for r in m.results)]
    if len(found) > limit:
        found = [found[i] for i in sorted(rng.choice(len(found), limit, replace=False))]
    return found


def candidate_trials(subject: Subject, candidate: TileMapping, declared: Sequence[TileMapping]) -> list[Trial]:
    """The op on slices by an undeclared mapping: as it is, and as its rule would emit it."""
    spec, ways = subject.spec, candidate.extent
    results = tuple(sliced(t, d, ways) for t, d in zip(spec.results, candidate.results, strict=True))

    def by_clone(operands, types, positions):
        local = MlirLocalOp(
            spec, subject.op, (candidate,), [(0, 0)], operands, types, results, _Where([ways], positions)
        )
        return local.clone()

    def by_rule(operands, types, positions):
        known, nest, where = (*declared, candidate), [(0, len(declared))], _Where([ways], positions)
        return localize(MlirLocalOp(spec, subject.op, known, nest, operands, types, results, where))

    return [Trial(((candidate, ways),), results, emit) for emit in (by_clone, by_rule)]


def sound_mapping(subject: Subject, trial: Trial, runs: list[Run], number: int) -> TileMapping | None:
    """The trial's mapping with the action found for each result; None if some result cannot be put together."""
    ((candidate, _),) = trial.nest
    actions = []
    for result, guess in enumerate(candidate.results):
        tries = [guess] if guess != SUM else [ANY, *(a for a in COMBINE if _applies(a, runs[0].whole[result]))]
        fits = [a for a in tries if all(_fits(subject, trial, run, number, result, a) for run in runs)]
        if not fits:
            return None
        actions.append(fits[0])
    return replace(candidate, results=tuple(actions))


def _applies(action: int, array: np.ndarray) -> bool:
    if action in (AND, OR):
        return array.dtype.kind in "biu"
    return array.dtype.kind not in "bc" or (array.dtype.kind == "c" and action in (SUM, MUL))


def _fits(subject: Subject, trial: Trial, run: Run, number: int, result: int, action: int) -> bool:
    try:
        found = reassembled(trial, run.devices[number], result, [action])
    except Unsound:
        return False
    return same(run.whole[result], found, subject.example.tolerance)
