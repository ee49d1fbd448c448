"""`acme`, imported for the length of a test module: what it registers is gone at its end."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from types import ModuleType

import pytest

from autopart.base.registry import Registry
from autopart.core.ops.rule import CUSTOM_CALLS, RULES
from autopart.costmodel.cost_models import COST_MODELS
from autopart.costmodel.hardware.devices import DEVICES
from autopart.search.execution.executor import EXECUTORS
from autopart.search.optimizers.optimizer import OPTIMIZERS
from autopart.search.space.decisions import DECISION_KINDS
from autopart.search.space.named_schedules import NAMED_SCHEDULES

collect_ignore = ["acme"]
"""Looking for doctests would import it, and so register everything for good."""

REGISTRIES: dict[str, Registry] = {
    "acme.rotate": RULES,
    "acme_attention": CUSTOM_CALLS,
    "acme_chip": DEVICES,
    "acme_climber": OPTIMIZERS,
    "acme_backwards": EXECUTORS,
    "acme_energy": COST_MODELS,
    "acme_spread": DECISION_KINDS,
    "AcmeHalves": NAMED_SCHEDULES,
}
"""Where each thing that acme adds stands."""


@pytest.fixture(scope="module")
def acme() -> Iterator[dict[str, ModuleType]]:
    """Acme's modules by name."""
    with ExitStack() as stack:
        for registry in REGISTRIES.values():
            stack.enter_context(registry.restored())
        package = importlib.import_module("acme")
        names = [f"acme.{found.name}" for found in pkgutil.iter_modules(package.__path__) if found.name != "tidy"]
        yield {name.removeprefix("acme."): importlib.import_module(name) for name in names}
    for name in ["acme", *names]:
        del sys.modules[name]
    assert not any(name in registry for name, registry in REGISTRIES.items())
