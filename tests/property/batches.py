"""Batches: several independent random programs in one module, partitioned, run, and compared with plain jax.

    Batch.numbered(3)   programs 30..39 on mesh number 3, with schedules of their own
    run_batch(batch)    -> [Finding(seed=34, what="mismatch", message="result 2: ...")]

Programs are compiled together because compiling is what costs time. Where jax.jit of the unpartitioned batch and the
partitioned batch differ, the program is run op by op too: if that agrees with the partitioned one, then XLA compiled
the unpartitioned one wrongly (its CPU backend updates some arrays in place that the update still reads), and the
finding is an exception, not a failure.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

import autopart as ap
from autopart.api.tactics.tactic import Tactic
from autopart.spmd.verify_local import verify
from tests.property.pool import Rounding
from tests.property.random_programs import RandomProgram
from tests.property.random_schedules import MESHES, Recorded, schedule

PROGRAMS_PER_MODULE = 10

TOLERANCE = {Rounding.ROUGH: 2e-3, Rounding.COARSE: 6e-2}
"""Relative to each element and to the largest one."""

EXCEPTED = "jax.jit of the unpartitioned program differs from op by op"


@dataclass(frozen=True)
class Batch:
    """Programs of one module, and the mesh they are partitioned over."""

    programs: tuple[RandomProgram, ...]
    mesh: Mapping[str, int]

    @staticmethod
    def numbered(number: int, by_hand: bool = False) -> Batch:
        """Batch number `number`: ten seeds, a mesh in turn; `by_hand` lets programs have parts that are."""
        first, mesh = number * PROGRAMS_PER_MODULE, MESHES[number % len(MESHES)]
        written = tuple(mesh.items()) if by_hand else ()
        return Batch(tuple(RandomProgram(first + i, mesh=written) for i in range(PROGRAMS_PER_MODULE)), mesh)

    def inputs(self) -> dict[str, dict[str, np.ndarray]]:
        return {p.name: p.inputs() for p in self.programs}

    def __call__(self, inputs: Mapping[str, Mapping[str, jax.Array]]) -> dict[str, list[jax.Array]]:
        return {p.name: p(inputs[p.name]) for p in self.programs}

    def schedule(self) -> list[Recorded]:
        """The batch's random schedule; each tactic keeps what it did."""
        return [Recorded(tactic) for tactic in schedule(self.programs, list(self.mesh))]


@dataclass(frozen=True)
class Finding:
    """One program whose partitioned results are not those of plain jax; `excepted` is a reason why that is not ours."""

    seed: int
    message: str
    excepted: str = ""


def run_batch(batch: Batch, tactics: Sequence[Tactic]) -> list[Finding]:
    """Every program of the batch whose partitioned results differ; raises what partitioning or running raises."""
    run = batch.__call__
    inputs = batch.inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ap.SearchWarning)  # searches of one evaluation find nothing, and say so
        lowered = ap.jit(run, ap.Mesh(dict(batch.mesh)), tactics).lower(inputs)
    verify(lowered.program)
    parts = lowered.compile()(inputs)
    whole = jax.jit(run)(inputs)
    judged = (judge(p, inputs[p.name], whole[p.name], parts[p.name]) for p in batch.programs)
    return [finding for finding in judged if finding is not None]


def wrong(batch: Batch, lowered: ap.Lowered) -> list[str]:
    """The programs of a batch whose results, as lowered, are not those of plain jax, and how they differ."""
    inputs = batch.inputs()
    found, whole = lowered.compile()(inputs), jax.jit(batch.__call__)(inputs)
    judged = {p.name: judge(p, inputs[p.name], whole[p.name], found[p.name]) for p in batch.programs}
    return [f"{name}: {finding.message}" for name, finding in judged.items() if finding and not finding.excepted]


def judge(
    program: RandomProgram, inputs: Mapping[str, np.ndarray], whole: Sequence[jax.Array], parts: Sequence[jax.Array]
) -> Finding | None:
    """A finding where the partitioned results differ from the unpartitioned ones."""
    roundings = program.roundings()
    message = difference(roundings, whole, parts)
    if not message:
        return None
    by_op = program({k: jax.numpy.asarray(v) for k, v in inputs.items()})
    excepted = "" if difference(roundings, by_op, parts) else EXCEPTED
    return Finding(program.seed, message, excepted)


def difference(roundings: Sequence[Rounding], expected: Sequence[jax.Array], found: Sequence[jax.Array]) -> str:
    """The first result that differs, as text; empty if none does."""
    for index, (rounding, a, b) in enumerate(zip(roundings, expected, found, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {index}: {b.dtype}{b.shape} instead of {a.dtype}{a.shape}"
        a, b = (x.astype("f4") if x.dtype.kind in "Vf" else x for x in (a, b))
        if not _same(rounding, a, b):
            wrong = int(np.sum(~((a == b) | ((a != a) & (b != b)))))
            return f"result {index} ({rounding.name.lower()}): {wrong} of {a.size} elements differ\n{a}\n{b}"
    return ""


def _same(rounding: Rounding, a: np.ndarray, b: np.ndarray) -> bool:
    if rounding is Rounding.EXACT or a.dtype.kind in "iub":
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    finite = np.abs(a[np.isfinite(a)])
    tolerance = TOLERANCE[rounding]
    return np.allclose(b, a, rtol=tolerance, atol=tolerance * max(1.0, float(finite.max(initial=0))), equal_nan=True)
