"""What a lowered program could do better, beside its layouts: lines at the end of the metadata.

params, ema come back with the same types and are not donated: donate_argnames=('params', 'ema') saves up to 1.9 GB ...
in_shardings of x: memory_kind 'pinned_host' is kept; estimates count the array in the devices' memory, and no move
Recompute(keep='blocks', ...): nothing is computed twice ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from autopart.api.tactics.flax_shardings import boxes, unread
from autopart.api.tactics.schedule import Scheduled
from autopart.api.tracing.trace import Traced
from autopart.base.quoting import short_place
from autopart.base.units import bytes_text
from autopart.core.kernel_calls.kernel_body import KernelBody
from autopart.core.program import Program
from autopart.spmd.run import input_layouts

LEAST_SHARE = 0.01
"""Share of a step's memory that donation saves at least to be worth a remark."""


MOST_DIFFERENCES = 4
"""What differs from a plan's program, as far as a remark lists it."""


def remarks(traced: Traced, scheduled: Scheduled) -> Iterator[str]:
    """The lines, in this order."""
    yield from _not_donated(traced, scheduled)
    yield from _donated_in_vain(traced.program)
    given = [text for tactic in scheduled.reports for text in tactic.report.get("shardings", ())]
    named = {traced.program.argument_names[n]: dims for n, (dims, _) in boxes(traced).items() if any(dims)}
    if named and not any(text.startswith("flax names of") for text in given):
        yield unread(named)
    for tactic in scheduled.reports:
        differs = tactic.report.get("plan", {}).get("differs", ())
        if differs and tactic is next(t for t in scheduled.reports if t.report.get("plan", {}).get("differs")):
            more = f", and {len(differs) - MOST_DIFFERENCES} more" if len(differs) > MOST_DIFFERENCES else ""
            yield f"the plan was made for another program: {', '.join(differs[:MOST_DIFFERENCES])}{more}"
        for what, kind in tactic.report.get("memory_kinds", {}).items():
            yield f"{what}: memory_kind {kind!r} is kept; estimates count the array in the devices' memory, and no move"
    yield from _twins(traced)
    yield from _in_host_memory(traced.program)
    yield from _assumed_trips(traced.program)
    yield from (f"{report.name}: {remark}" for report in traced.passes for remark in report.remarks)


def _twins(traced: Traced) -> Iterator[str]:
    """Kernels that are said to run on other platforms than the mesh's."""
    bodies = traced.program.source.bodies if traced.platform else ()
    elsewhere = (b for b in bodies if isinstance(b, KernelBody) and b.twin and not b.is_said_to_run_on(traced.platform))
    for name, platforms in dict.fromkeys((body.name, body.platforms or ()) for body in elsewhere):
        yield (
            f"kernel {name}: its twin in plain jax runs in its place on {traced.platform}, since it is said to run on "
            f"{' and '.join(platforms)}; estimates are of the kernel"
        )


def _donated_in_vain(program: Program) -> Iterator[str]:
    """Donated arguments whose memory no result takes."""
    names = [program.argument_names[n] for n in sorted(program.donated.difference(program.ties.values()))]
    if names:
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        which = ", ".join(names[:2]) + more
        yield f"{which} {'are' if len(names) > 1 else 'is'} donated, and no result has the type: nothing is saved"


def _assumed_trips(program: Program) -> Iterator[str]:
    """How often each loop is counted whose length the data decide."""
    bodies = [scope for scope in program.scopes if scope.kind == "body" and not scope.trips_known]
    yield from (
        f"loop at {program.where(scope.op) or f'op {scope.op}'}: the data decide how often it runs, and estimates "
        f"count {scope.trips} (ap.ExpectedTrips says another number)"
        for scope in bodies
    )


def _in_host_memory(program: Program) -> Iterator[str]:
    """Values that the model places in the host's memory (`jax.device_put(x, jax.memory.Space.Host)`)."""
    is_put = [str(spec.attributes.get("mhlo.frontend_attributes", "")).find("_host'") >= 0 for spec in program.specs]
    ops = np.flatnonzero(np.array(is_put, np.bool_)[program.op_spec])
    if len(ops):
        total = sum(program.type_of(int(program.result_ptr[op])).bytes for op in ops.tolist())
        where = short_place(program.where(int(ops[0])))
        what = (
            f"{len(ops)} value{'s' if len(ops) > 1 else ''} ({bytes_text(total)}) that the model puts into host memory"
        )
        yield f"{what} count{'' if len(ops) > 1 else 's'} in the devices' memory" + (f"  at {where}" if where else "")


def _not_donated(traced: Traced, scheduled: Scheduled) -> Iterator[str]:
    """State that comes back while the old one is kept: memory for both."""
    local = scheduled.device_local
    program, layouts = local.program, input_layouts(local)

    def held(positions: Sequence[int]) -> float:
        return sum(local.local_type(program.arguments[n], layouts[n]).bytes for n in positions)

    saved = {name: held(positions) for name, positions in traced.kept_state.items()}
    total = sum(saved.values())
    peak = scheduled.estimate.peak_bytes if scheduled.estimate else held(range(len(layouts)))
    if total > LEAST_SHARE * peak > 0:
        names, many = tuple(sorted(saved, key=lambda name: -saved[name])), len(saved) > 1
        what = f"{', '.join(names)} {'come' if many else 'comes'} back with the same types and"
        option = f"donate_argnames={names if many else names[0]!r}"
        yield f"{what} {'are' if many else 'is'} not donated: {option} saves up to {bytes_text(total)} on a device"
