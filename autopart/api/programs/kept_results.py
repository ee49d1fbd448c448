"""What a program that computes again could keep instead: results by kind and type, the most seconds for a byte first.

    computed again, 32 layers           seconds      bytes       seconds a byte
    dot_general bf16[64,2048,4096]       0.11        2.1 GB      most: tried first
    dot_general bf16[64,2048,11008]      0.23        5.8 GB
    convert f32[64,32,2048,2048]         0.05       34.4 GB

Ops of one kind that leave one type play one part in equal layers, so a group is kept in all of them or in none, and the
name of a group is a policy of `ap.Recompute`. Its seconds are those of the matrix unit, on all devices at their peak
rate, with those of what an op only gives another form: a narrower copy of what a matmul leaves, if it is kept, saves
the matmul. What else is computed again is mostly part of what reads it, and kept it would be read instead. Seconds
order groups; what keeping one saves is what the schedule is priced at.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from autopart.core.mesh import Mesh
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Constant, Structural, View, work
from autopart.core.passes.recompute import result_name
from autopart.core.program import Program
from autopart.costmodel.hardware.devices import Device, device

LEAST_SHARE = 0.01
"""Share of all seconds computed again that a group takes at least."""


class Group(NamedTuple):
    """Results that are computed again: the policy that keeps them, what that saves and what it takes on each device."""

    policy: str
    seconds: float
    bytes: float


def kept_instead(whole: Program, again: Program, mesh: Mesh, turns: int = 1) -> list[Group]:
    """Groups of what `again` computes more often than `whole`, the best first; one of `turns` is there at a time.

    A policy is about results of `whole`: what `again` alone has, such as rows that it stacks for a later scan, is none.
    """
    if mesh.device is None:
        return []
    seconds, known = _seconds(again, device(mesh.device)), _runs(whole)
    found = [
        Group(name, seconds[name] * more / mesh.size, bytes_ * more / mesh.size / turns)
        for name, (runs, bytes_) in _runs(again).items()
        if name in known and (more := runs - known[name][0]) > 0
    ]
    least = LEAST_SHARE * sum(group.seconds for group in found)
    return sorted((group for group in found if group.seconds > least), key=lambda group: group.bytes / group.seconds)


def _runs(program: Program) -> dict[str, tuple[float, float]]:
    """How often results of each name are made that are memory of their own, and bytes of one."""
    runs = np.bincount(program.op_spec, weights=program.scope_trips[program.op_scope], minlength=len(program.specs))
    found: dict[str, tuple[float, float]] = {}
    for spec, times in zip(program.specs, runs.tolist(), strict=True):
        if len(spec.results) == 1 and spec.operands and not _is_free(spec):
            name = result_name(spec)
            found[name] = found.get(name, (0.0, 0.0))[0] + times, spec.results[0].bytes
    return found


def _seconds(program: Program, on: Device) -> dict[str, float]:
    """Mean seconds of the ops of each name on one device, with those of what each only changes the form of."""
    own = np.array([_own_seconds(spec, on) for spec in program.specs])
    took = own[program.op_spec]
    changes_form = np.array([_changes_form(spec) for spec in program.specs], np.bool_)
    for op in np.flatnonzero(changes_form[program.op_spec]).tolist():
        took[op] += took[program.value_op[program.operands[program.operand_ptr[op]]]]
    found: dict[str, list[float]] = defaultdict(list)
    for spec, seconds in zip(program.op_spec.tolist(), took.tolist(), strict=True):
        if program.specs[spec].results:
            found[result_name(program.specs[spec])].append(seconds)
    return {name: float(np.mean(each)) for name, each in found.items()}


def _is_free(spec: OpSpec) -> bool:
    return isinstance(traits_of(spec), View | Constant | Structural)


def _changes_form(spec: OpSpec) -> bool:
    """One operand with as many elements as the one result; not what a loop or a program is made of."""
    if len(spec.operands) != 1 or len(spec.results) != 1 or isinstance(traits_of(spec), Structural):
        return False
    return math.prod(spec.operands[0].shape) == math.prod(spec.results[0].shape)


def _own_seconds(spec: OpSpec, on: Device) -> float:
    known = work(traits_of(spec), spec)
    return 0.0 if known is None else known.matrix_flop / max(on.peak_flop_per_s.values())
