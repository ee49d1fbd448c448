"""A training step that does not fit under data parallelism: what people do, what search finds, and is it right?

    python -m experiments.demo        or: make demo

    1  the step of a large decoder, costed on its device under data parallelism, Megatron, ZeRO-3, and as search found
    2  what was found, as code and in parts: why one parameter lies where it does
    3  the same code on a decoder of the same structure and small sizes, run on eight simulated devices: every number is
       compared with the whole step
    4  four times as many sequences, which no tiling makes fit: a search that chooses microbatches and recomputation,
       and one step of what it found in double precision beside the whole step
    5  a report to open in a browser

Exits with 1 if any number differs by more than the tolerance it prints, or if nothing that was found fits.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import jax
import jax.numpy as jnp

import autopart as ap
from autopart.costmodel import device
from experiments.demo.compare import RELATIVE, worst_difference
from experiments.models import t32

LARGE = t32.Config(layers=8, model_dim=4096, heads=32, vocabulary=32_000, batch=32, sequence=1024)
SMALL = t32.Config(
    layers=8, model_dim=64, heads=8, vocabulary=512, batch=16, sequence=32, learning_rate=1e-3, adam_epsilon=1e-5
)
MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
STEPS = 5
BUDGET = ap.Budget(evaluations=200)
FEW = ap.Budget(evaluations=60)
MORE = dataclasses.replace(LARGE, batch=4 * LARGE.batch)
MORE_SMALL = dataclasses.replace(SMALL, batch=4 * SMALL.batch)
PROGRAMS = {"microbatch": (1, 4), "recompute": ["blocks"]}
"""What a search may choose from where nothing fits as it is."""

REPORT = Path("demo-report.html")

KNOWN = (
    ("data parallelism", "DP(batch,model)"),
    ("Megatron", "DP(batch)+Megatron(model)"),
    ("ZeRO-3", "FSDP(batch,model)"),
)
"""What people do by hand, and its name here."""


def main() -> int:
    memory = device(str(MESH.device)).hbm_bytes
    count = sum(leaf.size for leaf in jax.tree.leaves(t32.abstract_args(LARGE)[0]))
    print(f"A decoder with {LARGE.layers} blocks and {count / 1e9:.2f} billion parameters, trained with Adam in f32.")
    print(f"Mesh {MESH}: {MESH.size} devices of a {MESH.device}, with {memory / 1e9:.1f} GB each.")
    print("The model's code does not know of them. Seconds and bytes are estimated for one device.\n", flush=True)
    found = _lowered(LARGE, [ap.AutomaticPartition(["batch", "model"], budget=BUDGET, name="search", cache=False)])
    _compare(found)
    print("\nWhat search found, as code:\n")
    print(_indented(found.metadata.as_schedule()))
    print("\nWhy one parameter lies where it does:\n")
    print(_indented(str(found.explain("params/blocks/3/up"))))
    same = _is_right(found.metadata)
    fitting = _with_more_sequences()
    same &= _same_in_double_precision(fitting.metadata)
    print(f"\n{'Every number agrees.' if same else 'NUMBERS DIFFER: this is a bug, please report it.'}")
    print(f"The whole story, to open in a browser: {found.report(REPORT)}")
    return 0 if same and all(low.estimate is not None and low.estimate.fits for low in (found, fitting)) else 1


def _lowered(config: t32.Config, schedule) -> ap.Lowered:
    return ap.jit(t32.step(config), MESH, schedule, donate_argnums=(0, 1)).lower(*t32.abstract_args(config))


def _compare(found: ap.Lowered) -> None:
    """A line per schedule: seconds, memory, whether that fits, collectives."""
    rows = [(name, schedule, _lowered(LARGE, [ap.Parallelism(schedule)])) for name, schedule in KNOWN]
    report = found.metadata.tactics[0].report
    rows.append(("search found", report["named"] or "a mix of its own", found))
    print(f"    {'':20}{'step':>10}{'memory':>11}   {'':14}{'collectives':>12}")
    for name, schedule, low in rows:
        print(_figures(name, low, schedule))
    print(f"\n    {report['evaluations']} schedules costed, {report['evaluations_per_s']:.0f} a second.", flush=True)


def _figures(name: str, low: ap.Lowered, schedule: str) -> str:
    """A line: seconds, memory, whether that fits, collectives."""
    cost, total = low.estimate, sum(low.metadata.tactics[0].collectives.values())
    assert cost is not None
    fits = "fits" if cost.fits else "DOES NOT FIT"
    return f"    {name:20}{cost.step_s:8.3f} s{cost.peak_bytes / 1e9:8.1f} GB   {fits:14}{total:12}   {schedule}"


def _with_more_sequences() -> ap.Lowered:
    """Searches with four times the batch: over tilings alone, and over programs and tilings together."""
    print(f"\nThe same decoder with {MORE.batch} sequences:\n")
    for what, programs in (("search over tilings", {}), ("and over programs", PROGRAMS)):
        auto = ap.AutomaticPartition(["batch", "model"], budget=FEW, name="search", cache=False, **programs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ap.SearchWarning)  # that nothing fits is what the first line shows
            found = _lowered(MORE, [auto])
        report = found.metadata.tactics[0].report
        print(_figures(what, found, report["named"] or "a mix of its own"), flush=True)
    print(f"\n    the program is {report['program']}; what was found, as code:\n")
    print(_indented(found.metadata.as_schedule()))
    return found


def _is_right(metadata: ap.Metadata) -> bool:
    """Runs what was found on small sizes, and compares every number with the whole step."""
    train_step, args = t32.step(SMALL), t32.example_args(SMALL)
    step = ap.jit(train_step, MESH, _schedule(metadata), donate_argnums=(0, 1))
    count = sum(leaf.size for leaf in jax.tree.leaves(args[0]))
    found = step.lower(*args).metadata.tactics[-1].collectives
    print(f"\nIs it right? The same code and the same {sum(found.values())} collectives on the same decoder with")
    print(
        f"{count / 1e6:.1f} M parameters, {STEPS} steps on {MESH.size} devices that this CPU simulates:\n", flush=True
    )
    if dict(found) != dict(metadata.tactics[-1].collectives):
        print(
            f"    the small decoder has other collectives: {dict(found)}, not {dict(metadata.tactics[-1].collectives)}"
        )
        return False
    return _run_both(step, jax.jit(train_step), args)


def _schedule(metadata: ap.Metadata) -> list[ap.Tactic]:
    """The tactics that the code of what was found makes."""
    scope: dict[str, Any] = {"ap": ap}
    exec(metadata.as_schedule(), scope)
    return scope["schedule"]


def _run_both(step, whole_step, args) -> bool:
    whole, parts = (jax.tree.map(jnp.copy, args[:2]) for _ in range(2))
    batch = args[2]
    same = True
    print(f"    {'step':>4} {'loss, 8 devices':>18} {'loss, whole':>18} {'worst difference of any number':>34}")
    for index in range(STEPS):
        *parts, loss = step(*parts, batch)
        *whole, whole_loss = whole_step(*whole, batch)
        worst = worst_difference(_named(*parts, loss), _named(*whole, whole_loss))
        same &= worst.scaled <= RELATIVE["float32"]
        print(f"    {index + 1:4} {loss:18.7f} {whole_loss:18.7f} {worst.scaled:12.1e} in {worst.path}", flush=True)
    print(f"    tolerance: {RELATIVE['float32']:g} of the root mean square of each array; integers exactly equal")
    return same


def _same_in_double_precision(metadata: ap.Metadata) -> bool:
    """One step of what was found on small sizes, where rounding hides nothing."""
    train_step, args = t32.step(MORE_SMALL), t32.example_args(MORE_SMALL)
    with jax.enable_x64(True):
        args = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, args)
        partitioned = ap.jit(train_step, MESH, _schedule(metadata))
        worst = worst_difference(_named(*partitioned(*args)), _named(*jax.jit(train_step)(*args)))
    print(f"\n    one step in double precision, where rounding hides nothing: {worst.scaled:.1e} in {worst.path}")
    print(f"    tolerance: {RELATIVE['float64']:g}")
    return worst.scaled <= RELATIVE["float64"]


def _named(params, opt_state, loss) -> dict[str, Any]:
    return {"params": params, "opt_state": opt_state, "loss": loss}


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


if __name__ == "__main__":
    sys.exit(main())
