"""States where search goes, of models in bf16: what short searches found, kept as rows of actions.

python -m experiments.mixed_precision.states             searches; writes `states.json`
python -m experiments.mixed_precision.states mixer       in some of the models
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import autopart as ap
from experiments.simulator_accuracy.states import Kept, found_by

KEPT = Path(__file__).with_name("states.json")

MODELS = ("t5", "llama")

SEARCHES = {
    "mcts 100": (ap.MCTS(), 100, 0),
    "annealing 60": (ap.Annealing(), 60, 1),
    "mcts unseeded 25": (ap.MCTS(seeded=False), 25, 2),
    "mcts unseeded 10": (ap.MCTS(seeded=False), 10, 3),
    "mcts unseeded 4": (ap.MCTS(seeded=False), 4, 4),
}
"""Optimizer, evaluations and seed of each search. Those that begin nowhere end, after few evaluations, on the way."""


def kept_states(model: str) -> list[Kept]:
    """The states of a model that are on file."""
    kept = json.loads(KEPT.read_text()).get(model, {"ops": 0, "states": {}})
    return [Kept(name, tuple(rows), kept["ops"]) for name, rows in kept["states"].items()]


def main() -> None:
    from experiments.mixed_precision.programs import HELD_OUT, MESH, TUNED

    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for model in sys.argv[1:] or MODELS:
        kept[model] = found_by(SEARCHES, model, (TUNED | HELD_OUT)[model](), MESH)
        KEPT.write_text(json.dumps(kept) + "\n")


if __name__ == "__main__":
    main()
