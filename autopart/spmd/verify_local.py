"""Is a device-local program well-formed? What must hold of every lowering, checked op by op.

    each layout       tiles dims that exist, by sizes that divide them; no pending reduction where a use reads
    each use          receives the layout its op's nest requires
    each passing op   has a passage for what is pending on its operands, and leaves that pending on its results
    each plan         starts and ends where it says, and no step loses or invents part of the array
    each tied output  arrives in its argument's layout

The lowering does not need this to be right; tests and doubtful users do.
"""

from __future__ import annotations

import math

import numpy as np

from autopart.core.layout import LAST_TILE, axes_by_dim, pending_axes
from autopart.core.op import REDUCTION_NAMES, WHOLE
from autopart.core.ops.rule import passages_of
from autopart.spmd.device_local import DeviceLocal


class VerificationError(AssertionError):
    """A device-local program breaks an invariant: a bug in a rule or in the lowering, never in the user's program."""


def verify(local: DeviceLocal) -> None:
    """Raises `VerificationError` naming the first op or value that breaks an invariant."""
    for value in range(local.program.value_count):
        _check_layout(local, value, int(local.native[value]))
        _check_layout(local, value, int(local.settled[value]))
    for op in range(local.program.op_count):
        _check_op(local, op)
    for op in np.flatnonzero(local.passing).tolist():
        for axis in range(len(local.mesh.axis_sizes)):
            if local.passing[op] >> axis & 1:
                _check_passing(local, op, axis)
    for plan, value, _ in local.redistributions():
        position = plan.source
        for step in plan.steps:
            if step.source != position:
                raise VerificationError(
                    f"a plan for {_named(local, value)} continues from {step.source}, not {position}"
                )
            position = step.target
        if position != plan.target:
            raise VerificationError(f"a plan for {_named(local, value)} ends in {position}, not {plan.target}")
    for output, argument in local.program.ties.items():
        source = local.program.arguments[argument]
        use = local.program.operand_ptr[local.program.value_op[source]]
        if local.required[use] != local.settled[source]:
            raise VerificationError(f"output {output} does not arrive as {_named(local, source)} is kept")


def _check_passing(local: DeviceLocal, op: int, axis: int) -> None:
    program, spec, count = local.program, local.program.spec(op), len(local.mesh.axis_sizes)
    uses = range(program.operand_ptr[op], program.operand_ptr[op + 1])
    read = [dict(pending_axes(int(local.required[use]), count)).get(axis) for use in uses]
    left = {dict(pending_axes(int(local.native[value]), count)).get(axis) for value in program.results_of(op)}
    codes = set(read) - {None}
    if left != (codes or {None}):
        raise VerificationError(
            f"op {op} ({spec.kind}) passes a reduction that it does not read, or drops one it reads"
        )
    fits = any(
        {passage.code} == codes and all(part or code is None for part, code in zip(passage.parts, read, strict=True))
        for passage in passages_of(spec)
    )
    if codes and not fits:
        names = ", ".join(REDUCTION_NAMES[code] for code in sorted(code for code in codes if code is not None))
        raise VerificationError(f"op {op} ({spec.kind}) passes a pending {names}, for which it has no passage")


def _named(local: DeviceLocal, value: int) -> str:
    op = int(local.program.value_op[value])
    return f"{local.program.value_name(value)} ({local.program.spec(op).kind}: {local.program.type_of(value)})"


def _check_layout(local: DeviceLocal, value: int, layout: int) -> None:
    shape, sizes = local.program.type_of(value).shape, local.mesh.axis_sizes
    tiled = axes_by_dim(layout, len(sizes), LAST_TILE)
    for dim, axes in enumerate(tiled):
        ways = math.prod(sizes[a] for a in axes)
        if axes and (dim >= len(shape) or shape[dim] % ways):
            raise VerificationError(f"{_named(local, value)} is tiled {ways} ways on dim {dim}")


def _check_op(local: DeviceLocal, op: int) -> None:
    program, sizes = local.program, local.mesh.axis_sizes
    mappings = local.table.of[program.op_spec[op]]
    ways: dict[int, int] = {}
    for axis, number in local.nests[op]:
        ways[number] = ways.get(number, 1) * sizes[axis]
        if mappings[number].extent % ways[number]:
            raise VerificationError(
                f"op {op} ({program.spec(op).kind}) loops {ways[number]} times over {mappings[number]}"
            )
    for number in ways:
        after = mappings[number].after
        if after is not None and ways.get(mappings.index(after)) != after.extent:
            raise VerificationError(
                f"op {op} ({program.spec(op).kind}) loops over {mappings[number]}, and what comes before is not used up"
            )
    structural = op < len(program.arguments)
    for k, use in enumerate(range(program.operand_ptr[op], program.operand_ptr[op + 1])):
        value, layout = int(program.operands[use]), int(local.required[use])
        _check_layout(local, value, layout)
        expected = {a: mappings[m].operands[k] for a, m in local.nests[op] if mappings[m].operands[k] != WHOLE}
        found = {a: d for d, axes in enumerate(axes_by_dim(layout, len(sizes), LAST_TILE)) for a in axes}
        if found != expected and not structural:
            raise VerificationError(
                f"op {op} ({program.spec(op).kind}) reads operand {k} in another layout than its nest's"
            )
        for axis, code in pending_axes(layout, len(sizes)):
            if not local.passing[op] >> axis & 1:
                name = REDUCTION_NAMES[code]
                raise VerificationError(
                    f"op {op} ({program.spec(op).kind}) reads a pending {name} of {_named(local, value)}"
                )
        given = (
            local.settled[value]
            if local.placement.of_use[use] < 0
            else local.placement.target[local.placement.of_use[use]]
        )
        if int(given) != layout:
            raise VerificationError(
                f"op {op} ({program.spec(op).kind}) is not given operand {k} in the layout it reads"
            )
