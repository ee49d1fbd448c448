"""python two_hosts.py CASE NUMBER PORT: one of two processes, with two simulated devices each."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

import autopart as ap
from autopart.api.tactics import automatic


def model(x, w):
    return jnp.tanh(x @ w)


def main(case: str, number: int, port: str) -> None:
    """Partitions, compiles and runs a program as process `number`."""
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=number)
    mesh = ap.Mesh({"batch": 4}, device="tpu_v3")
    x, w = np.ones((8, 16), "f4"), np.full((16, 16), 0.01, "f4")
    schedule: list = [ap.ManualPartition({"x": 0}, axis="batch")]
    if case == "different" and number == 1:
        schedule = [ap.ManualPartition({"w": 1}, axis="batch")]
    if case == "search":
        search = automatic.search

        def shown(*args):
            print("searched here")
            return search(*args)

        automatic.search = shown
        budget = ap.Budget(evaluations=20, seconds=5 if number == 0 else 0.001)
        schedule = [ap.AutomaticPartition("batch", budget=budget, seed=number, cache=False, progress=False)]
    try:
        low = ap.jit(model, mesh, schedule).lower(x, w)
        print("plan", low.plan.hash)
        out = low.compile()(x, w)
    except ap.PlanError as error:
        print(error)
        return
    found = np.concatenate([np.asarray(shard.data).ravel() for shard in out.addressable_shards])
    assert np.allclose(found, np.tanh(0.16), atol=1e-5), found
    print("computed")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
