"""One model on one device, in a process of its own: what jax and autopart do with it, a line for each stage.

    python -m experiments.strangers.process transformers/bert tpu_v5e

    {"stage": "built"}
    {"stage": "jax", "trace_cpu_s": 3.1, "lower_cpu_s": 2.0}   or "refused"
    {"stage": "import", "cpu_s": 4.5, "ops": 21034}
    {"stage": "none", "cpu_s": 0.6, "collectives": 0}          then "batch" and "search"

A line is written as soon as its stage ends, so that a process that is stopped has said how far it came. All seconds are
the process's own on the CPU: they depend less on what else the machine does than those of a clock.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

import autopart as ap
from autopart.api.jitted.jit import platform_of
from autopart.api.tactics.tactic import Tactic
from autopart.api.tracing.trace import LoadedProgram
from experiments.strangers.step import Step, table

PACKAGE = Path(ap.__file__).parent
AXES = {"data": 4, "model": 2}
EVALUATIONS = 20
"""Of the search: what is asked is that it ends."""


def schedules(step: Step) -> dict[str, list[Tactic]]:
    """Nothing; the batch over the data axis, where there is one; and a short search over both axes."""
    batch: list[Tactic] = [ap.ManualPartition(dict(step.batch), axis="data")]
    search: list[Tactic] = [
        ap.AutomaticPartition(list(AXES), budget=ap.Budget(EVALUATIONS), cache=False, progress=False)
    ]
    return {"none": [], **({"batch": batch} if step.batch else {}), "search": search}


def main(name: str, device: str) -> None:
    """All stages, up to the first that fails."""
    for stage in stages(name, device):
        print(json.dumps(stage), flush=True)


def stages(name: str, device: str) -> Iterator[dict[str, Any]]:
    """The same as values. `left_out` of a stage are passes of autopart that failed in it, `error` is what ended it."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ap.PassWarning)
        for stage in _stages(name, device):
            failed = [str(w.message) for w in seen if issubclass(w.category, ap.PassWarning)]
            seen.clear()
            yield stage | ({"left_out": failed} if failed else {})


def _stages(name: str, device: str) -> Iterator[dict[str, Any]]:
    mesh, row = ap.Mesh(AXES, device=device), table()[name]
    if row.missing():
        yield {"stage": "built", "missing": row.missing()}
        return
    try:
        step = row.build()
    except Exception as error:  # whatever is wrong between two packages is a row's result
        yield {"stage": "built", "error": told(error)}
        return
    yield {"stage": "built"}
    yield {"stage": "jax", **_by_jax(step, platform_of(mesh))}
    jax.clear_caches()
    stage = "import"
    try:
        with _timed() as taken:
            function = ap.jit(step.function, mesh, donate_argnums=step.donated)
            traced = function.traced(step.args, {})
        yield {"stage": "import", "cpu_s": taken(), "ops": traced.program.op_count}
        program = LoadedProgram(traced, name)
        for stage, tactics in schedules(step).items():
            with _timed() as taken:
                lowered = ap.jit(program, mesh, tactics).lower()
            collectives = sum(lowered.program.collectives().values())
            yield {"stage": stage, "cpu_s": taken(), "collectives": collectives, "step_s": _step_s(lowered)}
    except Exception as error:  # an error is what this is here to find
        yield {"stage": stage, "error": told(error)}


def _step_s(lowered: ap.Lowered) -> float | None:
    return lowered.estimate and lowered.estimate.step_s


def _by_jax(step: Step, platform: str) -> dict[str, Any]:
    """Seconds of `jax.jit` alone, lowered for the same platform; or how it refuses, and whether it lowers for the CPU.

    jax lowers callbacks to the host only for a platform that is there, and autopart for any: so it is asked after jax.
    """
    jitted = jax.jit(step.function, donate_argnums=step.donated, keep_unused=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _timed() as trace_s:
                traced = jitted.trace(*step.args)
            with _timed() as lower_s:
                traced.lower(lowering_platforms=(platform,))
        except Exception as error:  # jax refuses in as many ways as there are functions
            return {"refused": told(error), "lowers_for_cpu": _lowers(jitted, step)}
    return {"trace_cpu_s": trace_s(), "lower_cpu_s": lower_s()}


def _lowers(jitted: Any, step: Step) -> bool:
    try:
        jitted.lower(*step.args)
    except Exception:  # the same
        return False
    return True


@contextmanager
def _timed() -> Generator[Callable[[], float]]:
    """Seconds of this process on the CPU in the block, once it is over."""
    taken = list[float]()
    began = time.process_time()
    yield lambda: taken[0]
    taken.append(round(time.process_time() - began, 2))


def told(error: Exception) -> str:
    """An error in a line, with the innermost line that it came from, and that of autopart where it is another."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    places = dict.fromkeys(f"{Path(f.filename).name}:{f.lineno}" for f in [*ours[-1:], frames[-1]])
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]} ({', '.join(places)})"


if __name__ == "__main__":
    main(*sys.argv[1:])
