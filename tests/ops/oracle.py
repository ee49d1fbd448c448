"""The oracle of tile mappings is XLA: run the op whole, run it on slices, reassemble, compare.

    trial  loop by mapping 0, 2 ways             slices  x[0:2], x[2:4] -> y0, y1
           (0, WHOLE) -> tile 0                  whole   x -> y             concatenate(y0, y1) == y ?

All trials of an op are emitted into one module next to the whole op, and compiled once. Slices are cut statically; the
position of a slice is an argument, so that nothing is folded away.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import jax
import numpy as np

from autopart.core.jax_internals import device_local_call, func, ir, make_context, numpy_dtype, stablehlo
from autopart.core.op import AND, ANY, MAX, MIN, MUL, OR, SUM, WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.op_spec_import import spec_of, tensor_type
from autopart.core.registry import Example, mappings_of
from autopart.spmd.local_op import MlirLocalOp, emit_local_op, mlir_type
from tests.ops.stand_ins import replace_what_cpu_lacks

POSITIONS = 16
"""Slices are numbered up to this; an argument each."""

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
    emit: Callable[[Sequence[ir.Value], Sequence[TensorType], Sequence[ir.Value]], list[ir.Value]] = field(compare=False)

    @property
    def ways(self) -> list[int]:
        """Slices per loop."""
        return [ways for _, ways in self.nest]


def subject_of(example: Example) -> Subject:
    """Parses an example and draws its operands."""
    types = re.search(r": \(([^()]*)\) -> ([^{}]*)$", example.text)
    assert types, example.text
    operands = [t for t in re.split(r",\s*(?=tensor)", types.group(1)) if t]
    results = re.split(r",\s*(?=tensor)", types.group(2).strip("() "))
    arguments = ", ".join(f"%{i}: {t}" for i, t in enumerate(operands))
    count = f":{len(results)}" if len(results) > 1 else ""
    returned = ", ".join(f"%r#{i}" if count else "%r" for i in range(len(results)))
    text = (
        f"{example.functions} func.func public @main({arguments}) -> ({', '.join(results)}) {{\n"
        f"%r{count} = {example.text}\n return {returned} : {', '.join(results)} }}"
    )
    with make_context():
        module = ir.Module.parse(text)
        main = list(module.body.operations)[-1]
        op = main.regions[0].blocks[0].operations[0].operation
        spec = spec_of(op)
    rng = np.random.default_rng(len(example.text))
    feeds = itertools.chain(example.operands, itertools.repeat(None))
    feeds = list(itertools.islice(feeds, len(spec.operands)))
    draws = tuple(tuple(map(draw, itertools.repeat(rng), spec.operands, feeds)) for _ in range(DRAWS))
    return Subject(example, op, module, spec, draws)


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


def declared_trial(subject: Subject, nest: Sequence[tuple[int, int]]) -> Trial:
    """The op in loops over declared mappings: (mapping number, ways), outermost first, emitted as lowering does."""
    spec = subject.spec
    mappings = mappings_of(spec)
    assert mappings is not None
    results = list(spec.results)
    for number, ways in nest:
        results = [sliced(t, d, ways) for t, d in zip(results, mappings[number].results, strict=True)]
    axes = [(axis, number) for axis, (number, _) in enumerate(nest)]

    def emit(operands, types, positions):
        where = _Where([ways for _, ways in nest], positions)
        return emit_local_op(
            spec=spec,
            source=subject.op,
            mappings=mappings,
            nest=axes,
            operands=operands,
            operand_types=types,
            result_types=results,
            position=where,
        )

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
    """One module that holds an op whole and all its trials; `run` compiles and runs it."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self.trials: list[Trial] = []
        context = subject.op.context
        with context, ir.Location.unknown():
            self._module = ir.Module.create()
            for other in list(subject.module.body.operations)[:-1]:
                self._module.body.append(other.operation.clone())
            types = [*map(mlir_type, subject.spec.operands), *[mlir_type(TensorType((), "i32"))] * POSITIONS]
            with ir.InsertionPoint(self._module.body):
                self._main = func.FuncOp("main", ir.FunctionType.get(types, []), visibility="public")
                self._block = self._main.add_entry_block()
        arguments = list(self._block.arguments)
        self._operands, self._positions = arguments[:-POSITIONS], arguments[-POSITIONS:]
        self._outputs: list[ir.Value] = []
        with context, ir.Location.unknown(), ir.InsertionPoint(self._block):
            whole = subject.op.clone()
            for i, value in enumerate(self._operands):
                whole.operands[i] = value
            self._outputs += list(whole.results)

    def try_to_add(self, trial: Trial) -> int | None:
        """As `add`; None if the op cannot even be written on these slices."""
        try:
            return self.add(trial)
        except NOT_AN_OP:
            return None

    def add(self, trial: Trial) -> int:
        """Emits every device of a trial; returns its number. Raises, and emits nothing, if it does not verify."""
        before = len(list(self._block.operations))
        outputs: list[ir.Value] = []
        try:
            with self.subject.op.context, ir.Location.unknown(), ir.InsertionPoint(self._block):
                for device in itertools.product(*map(range, trial.ways)):
                    outputs += self._device(trial, device)
                for op in list(self._block.operations)[before:]:
                    op.operation.verify()
        except Exception:
            for op in reversed(list(self._block.operations)[before:]):
                op.operation.erase()
            raise
        self.trials.append(trial)
        self._outputs += outputs
        return len(self.trials) - 1

    def _device(self, trial: Trial, device: tuple[int, ...]) -> list[ir.Value]:
        values, types = [], []
        for i, (value, type_) in enumerate(zip(self._operands, self.subject.spec.operands, strict=True)):
            for (mapping, ways), position in zip(trial.nest, device, strict=True):
                dim = mapping.operands[i]
                local = sliced(type_, dim, ways)
                if dim != WHOLE:
                    start = [position * local.shape[d] if d == dim else 0 for d in range(len(local.shape))]
                    limit = [s + n for s, n in zip(start, local.shape, strict=True)]
                    value = stablehlo.slice(value, start, limit, [1] * len(start))
                type_ = local
            values.append(value)
            types.append(type_)
        results = trial.emit(values, types, [self._positions[p] for p in device])
        found = tuple(tensor_type(r.type) for r in results)
        assert found == trial.results, f"local results are {found}, not {trial.results}"
        return results

    def run(self) -> list[Run]:
        """Compiles the module and runs it on every draw."""
        with self.subject.op.context, ir.Location.unknown(), ir.InsertionPoint(self._block):
            func.ReturnOp(self._outputs)
            inputs = [a.type for a in self._block.arguments]
            self._main.attributes["function_type"] = ir.TypeAttr.get(
                ir.FunctionType.get(inputs, [v.type for v in self._outputs])
            )
            kinds = [tensor_type(v.type) for v in self._outputs]
            replace_what_cpu_lacks(self._module)
        run = compiled(self._module, kinds)
        return [self._sorted_out(run(*draw, *np.arange(POSITIONS, dtype=np.int32))) for draw in self.subject.draws]

    def _sorted_out(self, outputs: list[np.ndarray]) -> Run:
        count = len(self.subject.spec.results)
        rest = iter(outputs[count:])
        devices = [[[next(rest) for _ in range(count)] for _ in range(math.prod(t.ways))] for t in self.trials]
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
    call = jax.jit(device_local_call(module, [(t.shape, numpy_dtype(t.dtype)) for t in results]))

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
        with np.errstate(invalid="ignore"):
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


def candidate_trials(subject: Subject, candidate: TileMapping) -> list[Trial]:
    """The op on slices by an undeclared mapping: as it is, and as its rule would emit it."""
    spec, ways = subject.spec, candidate.extent
    results = tuple(sliced(t, d, ways) for t, d in zip(spec.results, candidate.results, strict=True))
    declared = mappings_of(spec) or ()

    def by_clone(operands, types, positions):
        local = MlirLocalOp(spec, subject.op, (candidate,), [(0, 0)], operands, types, results, _Where([ways], positions))
        return local.clone()

    def by_rule(operands, types, positions):
        return emit_local_op(
            spec=spec,
            source=subject.op,
            mappings=(*declared, candidate),
            nest=[(0, len(declared))],
            operands=operands,
            operand_types=types,
            result_types=results,
            position=_Where([ways], positions),
        )

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
