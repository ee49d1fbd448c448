"""Do figures that pages state in passing hold?"""

from __future__ import annotations

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from autopart.search.space import DecisionSpace
from experiments.models import t32
from tests.examples.pages import ROOT


def test_parameters_and_optimizer_state_of_32_layers_become_18_first_decisions():
    mesh = ap.Mesh({"batch": 16, "model": 2}, device="tpu_v3")
    step = ap.jit(t32.step(t32.Config()), mesh, donate_argnums=(0, 1))
    program = step.lower(*t32.abstract_args(t32.Config())).traced.program
    arrays = [v for v in program.arguments if program.value_name(v).startswith(("params", "opt_state"))]
    partitioning = Partitioning(program, mesh)
    options = DecisionSpace.of(partitioning, ["batch", "model"]).options(partitioning)
    shaped = sum(bool(program.type_of(v).shape) for v in arrays)
    page = " ".join((ROOT / "docs/inside-a-search.md").read_text().split())
    assert f"the {shaped} arrays of parameters and optimizer state of a 32-layer transformer" in page
    assert f"become {len(options)} first decisions on two mesh axes" in page
