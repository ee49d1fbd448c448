"""Partitions a transformer's training step hands-off over eight simulated devices and checks it against the whole step.

    python -m experiments.demo        or: make demo

Exits with 1 if any number differs by more than the tolerance it prints.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import jax
import jax.numpy as jnp

import autopart as ap
from experiments.demo.compare import RELATIVE, worst_difference
from experiments.models import t32
from experiments.models.tactics import BP

CONFIG = t32.Config(layers=4, model_dim=128, heads=4, vocabulary=1024, batch=16, sequence=64, adam_epsilon=1e-5)
MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
STEPS = 5
BUDGET = ap.Budget(evaluations=300)

HANDS_OFF = [
    ap.AutomaticPartition(axes=["batch", "model"], budget=BUDGET, name="Auto", cache=False, progress=True),
]
MIXED = [
    BP,
    ap.AutomaticPartition(axes=["model"], budget=BUDGET, name="AutoMP", cache=False, progress=True),
]


def main() -> int:
    train_step = t32.step(CONFIG)
    args = t32.example_args(CONFIG)
    count = sum(leaf.size for leaf in jax.tree.leaves(args[0]))
    print(f"A decoder with {CONFIG.layers} blocks and {count / 1e6:.1f} M parameters, trained with Adam.")
    print(f"Mesh {MESH}: {MESH.size} devices, simulated on this CPU. The model's code does not know of them.")
    print(f"Costs are estimated for {MESH.size} devices of a {MESH.device}.")

    same = True
    for title, code, schedule in (
        ("Hands off: search over both axes", 'auto = ap.AutomaticPartition(axes=["batch", "model"])', HANDS_OFF),
        ("Mixed: the batch by hand, the model axis by search", 'auto = ap.AutomaticPartition(axes=["model"])', MIXED),
    ):
        names = ", ".join(["BP"] * (len(schedule) - 1) + ["auto"])
        print(f"\n== {title}\n\n    {code}")
        print(f"    step = ap.jit(train_step, mesh, [{names}], donate_argnums=(0, 1))\n", flush=True)
        same &= _partition_and_check(train_step, schedule, args)
    same &= _same_in_double_precision(train_step, args)
    print(f"\n{'Every number agrees.' if same else 'NUMBERS DIFFER: this is a bug, please report it.'}")
    return 0 if same else 1


def _partition_and_check(train_step, schedule, args) -> bool:
    step = ap.jit(train_step, MESH, schedule, donate_argnums=(0, 1))
    metadata = step.lower(*args).metadata
    report = metadata.tactics[-1].report
    print(f"    {report['evaluations']} evaluations, {report['evaluations_per_s']:.0f} a second. After each tactic:\n")
    print(_indented(str(metadata)))
    print("\n    What was found, as code that gives the same result:\n")
    print(_indented(metadata.as_schedule()))
    print(f"\n    {STEPS} steps, partitioned and whole:\n")
    return _run_both(ap.jit(train_step, MESH, _replayed(metadata), donate_argnums=(0, 1)), jax.jit(train_step), args)


def _replayed(metadata: ap.Metadata) -> list[ap.Tactic]:
    """The schedule that the metadata prints, as tactics: the run below uses the printed code."""
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
        print(f"    {index + 1:4} {loss:18.7f} {whole_loss:18.7f} {worst.scaled:12.1e} in {worst.path}")
    print(f"    tolerance: {RELATIVE['float32']:g} of the root mean square of each array; integers exactly equal")
    return same


def _same_in_double_precision(train_step, args) -> bool:
    with jax.enable_x64(True):
        args = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, args)
        partitioned = ap.jit(train_step, MESH, HANDS_OFF)
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
