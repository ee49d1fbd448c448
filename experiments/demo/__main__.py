"""Partitions a transformer's training step over eight simulated devices and checks it against the whole step.

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
from experiments.models.tactics import BP, MP, Z3

CONFIG = t32.Config(layers=4, model_dim=128, heads=4, vocabulary=1024, batch=16, sequence=64, adam_epsilon=1e-6)
MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
STEPS = 5

SCHEDULE = [BP, MP, Z3]
WRITTEN = """\
    BP = ap.ManualPartition({"batch": 0}, axis="batch")                     each device gets a part of the batch
    MP = ap.ManualPartition({"params": {"*/qkv": 2, "*/up": 1}}, "model")   attention heads and MLP columns (Megatron)
    Z3 = ap.ManualPartition({"params": ..., "opt_state": ...}, "batch")     every matrix stored in parts (ZeRO-3)

    step = ap.jit(train_step, mesh, [BP, MP, Z3], donate_argnums=(0, 1))"""


def main() -> int:
    train_step = t32.step(CONFIG)
    args = t32.example_args(CONFIG)
    count = sum(leaf.size for leaf in jax.tree.leaves(args[0]))
    print(f"A decoder with {CONFIG.layers} blocks and {count / 1e6:.1f} M parameters, trained with Adam.")
    print(f"Mesh {MESH}: {MESH.size} devices, simulated on this CPU. The model's code does not know of them.\n")
    print(WRITTEN)

    step = ap.jit(train_step, MESH, SCHEDULE, donate_argnums=(0, 1))
    lowered = step.lower(*args)
    print("\nThe program after each tactic (collectives in one step):\n")
    print(_indented(str(lowered.metadata)))
    print(_explained(lowered.metadata, len(jax.tree.leaves(args[0]))))

    print(f"\n{STEPS} steps, partitioned and whole:\n")
    same = _run_both(step, jax.jit(train_step), args) and _same_in_double_precision(train_step, args)
    print(f"\n{'Every number agrees.' if same else 'NUMBERS DIFFER: this is a bug, please report it.'}")
    return 0 if same else 1


def _explained(metadata: ap.Metadata, tensors: int) -> str:
    bp, mp, z3 = (tactic.collectives for tactic in metadata.tactics)
    megatron = mp["all_reduce"] - bp["all_reduce"]
    return f"""
    BP  {bp["all_reduce"]} all_reduces: the gradients of {tensors} parameter tensors, and the loss
    MP  {megatron} more: {megatron // CONFIG.layers} a block, two forward and two backward
    Z3  {z3["reduce_scatter"]} gradients become reduce_scatters: each device keeps the part that it stores;
        {z3["all_gather"]} all_gathers: a stored part is gathered where it is used, and dropped again"""


def _run_both(step, whole_step, args) -> bool:
    whole, parts, batch = args[:2], jax.tree.map(lambda x: x.copy(), args[:2]), args[2]
    same = True
    print(f"    {'step':>4} {'loss, 8 devices':>18} {'loss, whole':>18} {'worst difference of any number':>34}")
    for index in range(STEPS):
        *parts, loss = step(*parts, batch)
        *whole, whole_loss = whole_step(*whole, batch)
        worst = worst_difference(_named(*parts, loss), _named(*whole, whole_loss))
        same &= worst.scaled <= RELATIVE["float32"]
        print(f"    {index + 1:4} {loss:18.7f} {whole_loss:18.7f} {worst.scaled:12.1e} in {worst.path}")
    qkv = parts[0]["blocks"][0]["qkv"]
    local = qkv.addressable_shards[0].data.shape
    print(f"\n    params/blocks/0/qkv is {qkv.shape} in all and {local} on each device: {qkv.sharding.spec}")
    print(f"    tolerance: {RELATIVE['float32']:g} of the root mean square of each array; integers exactly equal")
    return same


def _same_in_double_precision(train_step, args) -> bool:
    with jax.enable_x64(True):
        args = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, args)
        partitioned = ap.jit(train_step, MESH, SCHEDULE)
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
