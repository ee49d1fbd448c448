"""Steps as files that a machine with a device can run with jax alone.

    python -m experiments.on_device.export STEPS              all of `STEPS`; writes NN-NAME.bin and NN-NAME.json

A step is a StableHLO program for CUDA and CPU, as jax serialises it (by flatbuffers); beside it, which
arguments it may overwrite, and which are the state of an optimizer.
"""

from __future__ import annotations

import gzip
import json
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import jax
import jax.export  # not brought by `import jax`

from experiments.on_device.steps import STEPS, Step


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for place, (name, build) in enumerate(STEPS.items()):
        step = build()
        leaves, tree = jax.tree.flatten(jax.eval_shape(lambda *a: a, *step.arguments))

        def flat(*arrays: Any, of: Step = step, tree: Any = tree) -> list[Any]:
            return jax.tree.leaves(of.function(*jax.tree.unflatten(tree, arrays)))

        exported = jax.export.export(jax.jit(flat), platforms=("cpu", "cuda"))(*leaves)
        ends = list(accumulate((len(jax.tree.leaves(a)) for a in step.arguments), initial=0))
        donated = [i for of in step.donated for i in range(ends[of], ends[of + 1])]
        states = list(range(ends[1], ends[2]))
        written = gzip.compress(exported.serialize())
        (folder / f"{place:02}-{name}.bin").write_bytes(written)
        (folder / f"{place:02}-{name}.json").write_text(json.dumps({"donated": donated, "states": states}) + "\n")
        print(name, len(written) >> 10, "KiB", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
