"""Does an estimate depend on what was in the memory of its arrays? Every program of the tests of search, on two."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.compiled.simulator import Simulator
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.search.space import DecisionSpace
from tests.prompt import in_turn
from tests.search.programs import PROGRAMS, program

FOUND = ((np.nan, -1), (1e12, 0))
"""What reals and integers may happen to be: what spreads, and what passes for bytes and for the place of a row."""

STATES = 4


@dataclasses.dataclass(frozen=True)
class Filled:
    """Memory in which all reals are the same, and all integers."""

    real: float
    integer: int

    def begun(self):
        return self._empty

    def _empty(self, shape, dtype=np.float64):
        found = np.empty(shape, dtype)
        for field in [found[name] for name in found.dtype.names] if found.dtype.names else [found]:
            field[...] = self.real if field.dtype.kind == "f" else np.array(self.integer).astype(field.dtype)
        return found


def states(name: str, mesh: ap.Mesh):
    """The start, and what random decisions lead to."""
    random = np.random.default_rng(0)
    for _ in range(STATES):
        state = Partitioning(program(name), mesh)
        space = DecisionSpace.of(state, mesh.axis_names)
        yield lower_for_device(state)
        for _ in range(3):
            options = space.options(state)
            if options:
                space.apply(state, options[int(random.integers(len(options)))].decision)
        yield lower_for_device(state)


@pytest.mark.parametrize(("name", "device"), in_turn(PROGRAMS, ["tpu_v3", "tpu_v5e", "h100"]))
def test_estimates_do_not_depend_on_what_was_in_memory(name, device):
    mesh = ap.Mesh({"a": 4, "b": 2}, device=device)
    simulators = [Simulator.of(program(name), mesh, room=Filled(*found)) for found in FOUND]
    for local in states(name, mesh):
        first, second = (simulator.run(local) for simulator in simulators)
        assert (first.serial_s, first.peak_bytes) == (second.serial_s, second.peak_bytes)
