"""Before XLA compiles: do all hosts have the plan that this one has?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from autopart.api.plan.hosts import check_same, processes_of
from autopart.api.plan.plan import Plan
from autopart.base.errors import PlanError


def check_hosts(mesh: Any, plan: Callable[[], Plan], text: Callable[[], str]) -> None:
    """Raises `PlanError` on every process of a `jax.sharding.Mesh` unless all partitioned the program alike.

    plan   makes the plan; text: the device-local program, which is compared where no plan can be written
    """
    processes = processes_of(mesh)
    if processes is None:
        return
    try:
        mine = plan()
    except PlanError:
        check_same(processes, hashlib.sha256(text().encode()).hexdigest(), "", lambda _: [])
        return
    check_same(processes, mine.hash, mine.to_json(), lambda theirs: str(Plan.from_json(theirs).diff(mine)).splitlines())
