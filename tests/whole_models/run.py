"""Lowers a drawn model under its schedules, runs it where it is shallow, and says what is wrong.

    python -m tests.whole_models.run 17 18 19            these models, one line each
    python -m tests.whole_models.run --from 0 --to 1000  many; ends with how many failed
    python -m tests.whole_models.run --shrink 17         as small as it fails, with what failed

A result is compared with `jax.jit` of the same function. Where they differ, the function is run once more with inputs
that differ in their last bits: if that moves the result about as far, then the model amplifies rounding (a sign of a
gradient near zero, a choice between two equal scores), and nothing can be said.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np

import autopart as ap
from autopart.api.jitted.jit import platform_of
from autopart.api.tactics.tactic import Tactic
from tests.whole_models.drawn import Drawn, smaller
from tests.whole_models.steps import Step, values

TOLERANCE = {"bfloat16": 8e-2, "mixed": 8e-2}
"""Of the largest element; 2e-3 for others."""
REFUSALS = (TypeError, ValueError, ZeroDivisionError, NotImplementedError, AttributeError, IndexError)
"""What jax and the frameworks raise for a model that is none."""

EVALUATIONS = 6
"""Of a search: what is tested is that it ends, and that what it finds is right."""

LEGAL = (ap.TileError, ap.BlockedError)
"""What a schedule may be refused with: a dim that the axis does not divide, a loss that is no sum over microbatches."""


NO_MODEL = "jax refuses it: "
"""How it is said that the function is none that jax lowers and, where it is run, runs."""


def failure(drawn: Drawn) -> str:
    """What is wrong with a model, in a line; empty if nothing is. Begins with `NO_MODEL` where it is no model."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(_failure, drawn)
        error = done.exception()
    if error is None:
        return done.result()
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "site-packages" not in f.filename]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{where}"


def _failure(drawn: Drawn) -> str:
    with jax.enable_x64(drawn.dtype == "float64"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", ap.PassWarning)
        try:
            step = Step.of(drawn)
            whole = jax.jit(step.function, keep_unused=True)
            platforms = {"cpu", platform_of(ap.Mesh(dict(drawn.mesh), device=drawn.device))}
            for platform in platforms:
                whole.trace(*step.arguments).lower(lowering_platforms=(platform,))
            if drawn.runs:  # initial values are computed op by op, which some ops refuse that jax lowers
                values(drawn, step)
        except REFUSALS as error:
            return f"{NO_MODEL}{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        expected: Any = None
        for name in drawn.schedules:
            lowered = lowered_under(drawn, step, name)
            if lowered is None or not drawn.runs:
                continue
            given = values(drawn, step)
            expected = expected or (jax.tree.map(np.asarray, _numbers(whole(*given))),)
            found = _numbers(lowered.compile()(*jax.tree.map(jnp.copy, given)))
            wrong = difference(expected[0], jax.tree.map(np.asarray, found), TOLERANCE.get(drawn.dtype, 2e-3))
            if wrong and not _amplified(whole, drawn, step, expected[0]):
                return f"under {name}: {wrong}"
    return ""


def lowered_under(drawn: Drawn, step: Step, name: str) -> ap.Lowered | None:
    """The step under a schedule; None where the schedule is legally refused."""
    mesh = ap.Mesh(dict(drawn.mesh), device=drawn.device)
    try:
        tactics = schedule(drawn, step, name, mesh)
        lowered = ap.jit(step.function, mesh, tactics, donate_argnums=step.donated).lower(*step.arguments)
        if name == "plan":
            lowered = _by_its_plan(lowered, step, mesh)
    except LEGAL:
        return None
    except ap.ArgumentError:
        if drawn.zero and name == "microbatch":  # nothing is there to be cut
            return None
        raise
    if name == "none":
        str(lowered.metadata), lowered.as_text("hlo")
    return lowered


def _by_its_plan(lowered: ap.Lowered, step: Step, mesh: ap.Mesh) -> ap.Lowered:
    """The same by a plan that was saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        lowered.plan.save(path)
        plan = ap.Plan.load(path)
    again = ap.jit(step.function, mesh, plan, donate_argnums=step.donated).lower(*step.arguments)
    if again.in_shardings != lowered.in_shardings:
        raise AssertionError("the plan gives other shardings than the schedule it was made of")
    return again


def schedule(drawn: Drawn, step: Step, name: str, mesh: ap.Mesh) -> list[Tactic]:
    """The tactics of a name from `SCHEDULES`."""
    axis, *others = dict(drawn.mesh)
    batched = {n: 0 for n in step.batched}
    batch = ap.ManualPartition(batched, axis=axis)
    model = [ap.ManualPartition({_parameters(drawn): ap.LARGEST_DIVISIBLE_DIM}, axis=a) for a in others[:1]]
    if name == "none":
        return []
    if name == "batch+model":
        return [batch, *model]
    if name == "zero3":
        return [batch, ap.ManualPartition({_parameters(drawn): ap.FIRST_DIVISIBLE_DIM}, axis=axis)]
    if name == "padded":
        return [ap.ManualPartition(batched, axis=axis, uneven="pad")]
    if name == "microbatch":
        return [ap.Microbatch(batched, 2), batch]
    if name == "recompute":
        return [ap.Recompute("blocks"), batch]
    if name == "named":
        rows = ap.named_schedules(step.function, mesh, step.arguments, donate_argnums=step.donated)
        return [*list(rows)[drawn.seed % len(rows)].schedule] if len(rows) else []
    if name == "search":
        return [ap.AutomaticPartition(list(dict(drawn.mesh)), budget=ap.Budget(EVALUATIONS), seed=drawn.seed)]
    return [batch]


def _parameters(drawn: Drawn) -> str:
    if drawn.step in ("decode", "beam"):
        return "weights"
    return "train_state" if drawn.step == "train" and drawn.ema else "params"


def _numbers(tree: Any) -> list[jax.Array]:
    """The arrays of a result that hold numbers."""
    return [x for x in jax.tree.leaves(tree) if not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)]


def difference(expected: Sequence[np.ndarray], found: Sequence[np.ndarray], tolerance: float) -> str:
    """The first result that differs, as text; empty if none does."""
    for index, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {index}: {b.dtype}{b.shape} instead of {a.dtype}{a.shape}"
        a, b = (x if x.dtype.kind in "biuc" else x.astype(np.float64) for x in (a, b))
        if a.size and not np.allclose(b, a, rtol=tolerance, atol=tolerance * _size(a), equal_nan=True):
            return f"result {index} of {a.dtype}{a.shape}: off by {_size(b - a):.3g} of {_size(a):.3g}"
    return ""


def _size(a: np.ndarray) -> float:
    if a.dtype == bool:
        return float(a.any())
    finite = np.abs(a[np.isfinite(a)])
    return float(finite.max(initial=0))


def _amplified(whole: Callable, drawn: Drawn, step: Step, expected: Sequence[np.ndarray]) -> bool:
    """True if inputs that differ in their last bits move the unpartitioned result beyond the tolerance, too."""
    rng = np.random.default_rng(0)
    last_bits = {"bfloat16": 4e-3, "mixed": 4e-3, "float64": 1e-14}.get(drawn.dtype, 3e-7)
    if drawn.native:  # frameworks' own layers compute in f32 what is given in f64
        last_bits = max(last_bits, 3e-7)

    def moved(x: Any) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return (x * (1 + last_bits * rng.choice([-1.0, 1.0], x.shape))).astype(x.dtype)

    tolerance = TOLERANCE.get(drawn.dtype, 2e-3) / 3
    for _ in range(3):
        found = _numbers(whole(*jax.tree.map(moved, values(drawn, step))))
        if difference(expected, jax.tree.map(np.asarray, found), tolerance):
            return True
    return False


def shrunk(drawn: Drawn, wrong: Callable[[Drawn], str] = failure) -> tuple[Drawn, str]:
    """The smallest model found that still fails, and what fails."""
    found, smaller_found = wrong(drawn), True
    while smaller_found:
        smaller_found = False
        for attempt in smaller(drawn):
            said = wrong(attempt)
            if said:
                drawn, found, smaller_found = attempt, said, True
                break
    return drawn, found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tests.whole_models.run")
    parser.add_argument("seeds", type=int, nargs="*")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", dest="end", type=int, default=0)
    parser.add_argument("--shrink", action="store_true")
    options = parser.parse_args()
    failed = refused = 0
    for seed in [*options.seeds, *range(options.first, options.end)]:
        drawn, began = Drawn.of(seed), time.process_time()
        said = failure(drawn)
        refused += said.startswith(NO_MODEL)
        failed += bool(said) and not said.startswith(NO_MODEL)
        print(f"{seed}: {said or 'right'}, {time.process_time() - began:.1f} CPU s", flush=True)
        if said or options.seeds:
            print(f"  {drawn}", flush=True)
        if said and options.shrink:
            print("  as small as it fails: {!r}\n  {}".format(*shrunk(drawn)), flush=True)
    count = len(options.seeds) + max(options.end - options.first, 0)
    print(f"{failed} of {count} failed, {refused} are none that jax lowers")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
