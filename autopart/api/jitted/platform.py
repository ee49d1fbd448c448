"""A program lowered for one platform, on devices of another.

    Mesh({"a": 4}, device="tpu_v3"), on CPU devices       lu(x)

    lowered for tpu   custom_call @LuDecomposition        what estimates and texts are about
    on the devices    custom_call @lapack_sgetrf_ffi      lowered anew, the schedule's actions taken again

Most programs are the same for every platform, and run as they are. Where one calls a library of its platform, has
an op that XLA runs on some platforms only, or chooses by platform what it computes (`jax.lax.platform_dependent`), the
function is lowered for the devices that are there, and the actions are taken on the same values (`same_values.py`);
those on a value that this lowering does not have are left out.
Arguments and outputs keep the shardings that the first lowering gave them; XLA moves what comes out in another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from autopart.api.plan.same_values import SameValues
from autopart.api.tactics.schedule import Scheduled, replayed
from autopart.api.tracing.trace import Traced
from autopart.base.errors import CallError, PartitionError, ProgramError
from autopart.core.doors.host_callbacks import TARGETS
from autopart.core.op import OpSpec
from autopart.core.ops.rule import target_of, traits_of
from autopart.core.program import Program

_EVERYWHERE = TARGETS | frozenset({"mhlo.erf", "mhlo.topk", "annotate_device_placement", "LayoutConstraint"})
"""Targets that XLA knows on every platform."""

_LIBRARIES = (
    ("cpu", re.compile(r"^lapack_|_cpu(_|$)")),
    ("cuda", re.compile(r"^cu(solver|blas|dnn|fft|sparse|_|da)|^__cu|^__gpu\$|mosaic_gpu|triton")),
    ("rocm", re.compile(r"^hip|^roc")),
    ("tpu", re.compile(r"^(LuDecomposition|Eigh|Qr|ProductOfElementaryHouseholderReflectors|tpu_custom_call)$")),
)
"""Platforms, and how jax names the calls into their libraries."""


@dataclass(frozen=True)
class ForeignOp:
    """An op that may not run everywhere, a call into a library for the most part, or that runs otherwise elsewhere.

    text        how the program's text has it
    platforms   where its name or its traits say that it runs; empty if neither does
    """

    text: str
    platforms: tuple[str, ...]
    where: str


def runnable(traced: Traced, scheduled: Scheduled, platform: str) -> tuple[Traced, Scheduled]:
    """The program and its schedule, or the same for another lowering of the function, that `platform` can run.

    Raises `CallError` with the call and its source line where there is none.
    """
    if traced.platform == platform:
        return traced, scheduled
    foreign = [*_foreign_ops(traced.program, platform), *_chosen(traced, platform)]
    if traced.again is None:
        wrong = [op for op in foreign if op.platforms and platform not in op.platforms]
        if wrong:
            lowered_for = " or ".join(wrong[0].platforms)
            raise _mismatch(wrong[0], lowered_for, platform, "lower the module for the platform of the devices")
        return traced, scheduled
    if not foreign:
        return traced, scheduled
    other = _lowered_anew(traced, foreign[0], platform)
    if other.program.fingerprint == traced.program.fingerprint:
        return traced, scheduled
    try:
        same = SameValues(traced.program, other.program)
        again = replayed(other.program, scheduled, list(same.taken_again(scheduled.actions)))
    except PartitionError as error:
        raise _mismatch(foreign[0], traced.platform, platform, _HINT, error.what) from None
    return other, again


_HINT = "a mesh that names no device, or one of the platform that is here, so that the schedule is lowered for it"


def _lowered_anew(traced: Traced, foreign: ForeignOp, platform: str) -> Traced:
    assert traced.again is not None
    try:
        return traced.again(platform)
    except ProgramError as error:
        raise _mismatch(foreign, traced.platform, platform, _HINT, f"{error.what}: {error.why[:200]}") from None


def _mismatch(foreign: ForeignOp, lowered_for: str | None, platform: str, hint: str, beside: str = "") -> CallError:
    reasons = [f"{foreign.text} {foreign.where}".rstrip(), *([beside] if beside else [])]
    return CallError(
        f"the program was lowered for {lowered_for}, and the devices are {platform}",
        why="\n       ".join(reasons),
        hint=hint,
    )


def _chosen(traced: Traced, platform: str) -> Iterator[ForeignOp]:
    """Choices by platform that `platform` makes in another way than the program does."""
    lowered_for = traced.platform or ""
    for choice in traced.choices:
        if choice.differs(lowered_for, platform):
            yield ForeignOp(choice.text, (lowered_for,), choice.where)


def _foreign_ops(program: Program, platform: str) -> Iterator[ForeignOp]:
    """One op for each library function that the program uses, and for each kind that `platform` does not run."""
    seen = set()
    foreign = {n: _foreign(spec, platform) for n, spec in enumerate(program.specs)}
    for op, spec in enumerate(program.op_spec.tolist() if any(foreign.values()) else ()):
        found = foreign[spec]
        if found is not None and found[0] not in seen:
            seen.add(found[0])
            yield ForeignOp(*found, program.where(op))


def _foreign(spec: OpSpec, platform: str) -> tuple[str, tuple[str, ...]] | None:
    """(text, platforms) of an op that may not run everywhere."""
    platforms = traits_of(spec).platforms
    if platforms and platform not in platforms:
        return spec.kind, platforms
    target = target_of(spec)
    if spec.kind != "custom_call" or target in _EVERYWHERE:
        return None
    return f"custom_call @{target}", tuple(name for name, pattern in _LIBRARIES if pattern.search(target))[:1]
