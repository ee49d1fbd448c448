"""Types and plans from text, for tests to read."""

from __future__ import annotations

from autopart.spmd.redistribution import DistributedType, Plan, plan


def typed(text: str, mesh: dict[str, int]) -> DistributedType:
    """The type written in the paper's notation."""
    return DistributedType.parse(text, mesh)


def planned(source: str, target: str, mesh: dict[str, int], **options) -> Plan:
    """The plan between two types written in the paper's notation."""
    return plan(typed(source, mesh), typed(target, mesh), **options)


def lines(steps: Plan) -> list[str]:
    """A step per line, as `collective  type after it`."""
    return [f"{step.text()}  {step.target}" for step in steps.steps]
