"""States where search goes in programs from outside.

python -m experiments.simulator_accuracy.states             searches; writes `states.json.xz`
python -m experiments.simulator_accuracy.states vit mixer   in some of the programs
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import jax.numpy as jnp

import autopart as ap
from experiments.kept_states import KeptStates, found_by
from experiments.models.outside.training import Training

KEPT = KeptStates(Path(__file__).with_name("states.json.xz"))

SEARCHES = {
    "mcts 300": (ap.MCTS(), 300, 0),
    "annealing 200": (ap.Annealing(), 200, 1),
    "annealing 60": (ap.Annealing(), 60, 2),
    "mcts unseeded 60": (ap.MCTS(seeded=False), 60, 3),
    "random 60": (ap.RandomSearch(), 60, 4),
}
"""Optimizer, evaluations and seed of each search; the first two are long enough to be called found."""

PASSED = (1.1, 1.25, 1.5, 2.0)
"""Steps of states that a search passes, over the step of what it found."""

OTHER_SEARCHES = {"mcts 200": (ap.MCTS(), 200, 0)}
"""The one search of each program of `OTHER_KINDS`."""


def outside(model: str) -> Training:
    """The training step of a model of `experiments/models/outside`, "vit", or "vit bf16" for one computed in that."""
    name, _, narrow = model.partition(" ")
    build = importlib.import_module(f"experiments.models.outside.{name}").training
    return build(dtype=jnp.bfloat16) if narrow else build()


def main() -> None:
    from experiments.simulator_accuracy.outside_pairs import MODELS, OTHER_KINDS

    asked = sys.argv[1:]
    for searches, passed, models in ((SEARCHES, PASSED, MODELS), (OTHER_SEARCHES, (), OTHER_KINDS)):
        for model, (_, mesh) in models.items():
            if not asked or model in asked:
                program = outside(model)
                KEPT.keep(model, found_by(searches, passed, program.step, program.args, mesh))


if __name__ == "__main__":
    main()
