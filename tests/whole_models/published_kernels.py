"""Kernels of the published runs, known while a test of these runs is on: the registry of ops is everybody's."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from autopart.core.ops.rule import CUSTOM_CALLS

with CUSTOM_CALLS.restored():
    BEFORE = set(CUSTOM_CALLS)
    from experiments.published_runs import kernels

    OWN = {name: CUSTOM_CALLS.get(name) for name in CUSTOM_CALLS if name not in BEFORE}


@pytest.fixture(scope="module", autouse=True)
def published_kernels() -> Generator[None]:
    """Registers them for the tests of a module."""
    with CUSTOM_CALLS.restored():
        for name, rule in OWN.items():
            CUSTOM_CALLS.add(name, rule, kernels.__name__)
        yield
