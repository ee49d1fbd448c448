"""States where search goes, of models in bf16.

python -m experiments.mixed_precision.states             searches; writes `states.json.xz`
python -m experiments.mixed_precision.states mixer       in some of the models
"""

from __future__ import annotations

import sys
from pathlib import Path

import autopart as ap
from experiments.kept_states import KeptStates, found_by

KEPT = KeptStates(Path(__file__).with_name("states.json.xz"))

MODELS = ("t5", "llama")

SEARCHES = {
    "mcts 100": (ap.MCTS(), 100, 0),
    "annealing 60": (ap.Annealing(), 60, 1),
    "mcts unseeded 25": (ap.MCTS(seeded=False), 25, 2),
    "mcts unseeded 10": (ap.MCTS(seeded=False), 10, 3),
    "mcts unseeded 4": (ap.MCTS(seeded=False), 4, 4),
}
"""Optimizer, evaluations and seed of each search. Those that begin nowhere end, after few evaluations, on the way."""


def main() -> None:
    from experiments.mixed_precision.programs import HELD_OUT, MESH, TUNED

    for model in sys.argv[1:] or MODELS:
        program = (TUNED | HELD_OUT)[model]()
        KEPT.keep(model, found_by(SEARCHES, (), program.step, program.args, MESH))


if __name__ == "__main__":
    main()
