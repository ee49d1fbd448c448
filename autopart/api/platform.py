"""A program lowered for one platform, on devices of another.

    Mesh({"a": 4}, device="tpu_v3"), on CPU devices       lu(x)

    lowered for tpu   custom_call @LuDecomposition        what estimates and texts are about
    on the devices    custom_call @lapack_sgetrf_ffi      lowered anew, the schedule's actions taken again

Most programs are the same for every platform, and run as they are. Where one calls a library of its platform, the
function is lowered for the devices that are there, and the actions are taken on the values of the same names. Arguments
and outputs keep the shardings that the first lowering gave them; XLA moves what comes out in another.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from autopart.api.names import named_values
from autopart.api.schedule import Scheduled, replayed
from autopart.api.trace import Traced
from autopart.core.errors import CallError, PartitionError
from autopart.core.host_callbacks import TARGET
from autopart.core.ops.rule import target_of
from autopart.core.partitioning import Action, Atomic, Propagate, ShareGathers, Tile
from autopart.core.program import Program

_EVERYWHERE = frozenset({TARGET, "mhlo.erf", "mhlo.topk", "annotate_device_placement", "LayoutConstraint"})
"""Targets that XLA knows on every platform."""

_LIBRARIES = (
    ("cpu", re.compile(r"^lapack_|_cpu(_|$)")),
    ("cuda", re.compile(r"^cu(solver|blas|dnn|fft|sparse|_|da)|^__cu|^__gpu\$|mosaic_gpu|triton")),
    ("rocm", re.compile(r"^hip|^roc")),
    ("tpu", re.compile(r"^(LuDecomposition|Eigh|Qr|ProductOfElementaryHouseholderReflectors|tpu_custom_call)$")),
)
"""Platforms, and how jax names the calls into their libraries."""


@dataclass(frozen=True)
class ForeignCall:
    """A call into a library that may not be there; `platform` is where its name says that it runs, if it does."""

    target: str
    platform: str | None
    where: str


def runnable(traced: Traced, scheduled: Scheduled, platform: str) -> tuple[Traced, Scheduled]:
    """The program and its schedule, or the same for another lowering of the function, that `platform` can run.

    Raises `CallError` with the call and its source line where there is none.
    """
    if traced.platform == platform:
        return traced, scheduled
    calls = list(_foreign_calls(traced.program))
    if traced.again is None:
        wrong = [call for call in calls if call.platform not in (None, platform)]
        if wrong:
            raise _mismatch(wrong[0], wrong[0].platform, platform, "lower the module for the platform of the devices")
        return traced, scheduled
    if not calls:
        return traced, scheduled
    other = _lowered_anew(traced, calls[0], platform)
    if other.program.fingerprint == traced.program.fingerprint:
        return traced, scheduled
    try:
        actions = [_on(action, traced.program, other.program) for action in scheduled.actions]
        again = replayed(other.program, scheduled, actions)
    except PartitionError as error:
        raise _mismatch(calls[0], traced.platform, platform, f"{_HINT}; {error.what}") from None
    return other, again


_HINT = "a mesh that names no device, or one of the platform that is here, to lower the schedule for it"


def _lowered_anew(traced: Traced, call: ForeignCall, platform: str) -> Traced:
    assert traced.again is not None
    try:
        return traced.again(platform)
    except NotImplementedError as error:
        raise _mismatch(call, traced.platform, platform, f"{_HINT}; jax says: {str(error)[:200]}") from None


def _mismatch(call: ForeignCall, lowered_for: str | None, platform: str, hint: str) -> CallError:
    return CallError(
        f"the program was lowered for {lowered_for}, and the devices are {platform}",
        why=f"custom_call @{call.target} {call.where}".rstrip(),
        hint=hint,
    )


def _foreign_calls(program: Program) -> Iterator[ForeignCall]:
    """One call for each library function that the program uses."""
    targets = {n: target_of(spec) for n, spec in enumerate(program.specs) if spec.kind == "custom_call"}
    seen = set()
    for op, spec in enumerate(program.op_spec.tolist() if targets else ()):
        target = targets.get(spec)
        if target is not None and target not in _EVERYWHERE and target not in seen:
            seen.add(target)
            platform = next((name for name, pattern in _LIBRARIES if pattern.search(target)), None)
            yield ForeignCall(target, platform, program.where(op))


def _on(action: Action, before: Program, after: Program) -> Action:
    """The action on the value of the same name. Raises `CallError` where the value has none."""
    match action:
        case Propagate() | ShareGathers():
            return action
        case Tile(value, dim, axis):
            return Tile(_same(value, before, after), dim, axis)
        case Atomic(value, axis):
            return Atomic(_same(value, before, after), axis)


def _same(value: int, before: Program, after: Program) -> int:
    old, new = _places(before), _places(after)
    found = [place for place, other in old.items() if other == value and place in new]
    if not found or before.type_of(value) != after.type_of(new[found[0]]):
        raise CallError(f"{before.value_name(value)}, which the schedule decides about, has no name to find it by")
    return new[found[0]]


def _places(program: Program) -> dict[tuple[str, int], int]:
    """(name, how many values before it have that name) -> value. Tags that occur at another number of places differ."""
    named = named_values(program)
    total, count = Counter(entry.name for entry in named), Counter[str]()
    places: dict[tuple[str, int], int] = {}
    for entry in named:
        key = f"{entry.name} of {total[entry.name]}"
        places[key, count[key]] = entry.value
        count[key] += 1
    return places
