"""The constants of TPU entries that come from the compiler: vector rate, shares of HBM and matmul peak, op weights.

    python -m experiments.simulator_accuracy.tpu_constants [v5e:2x2 ...]      pip install libtpu; a minute a topology

Each is a ratio of `estimated_cycles` of one compiled kernel, at the clock in `xla_compile.CLOCK_HZ`:

    HBM share      x + 1 on 256 MB
    stream share   the sum of 256 MB, which only reads, against x + 1
    matmul share   bf16 products of the sizes that models have, the geometric mean; of 8192-cubed, whose operands do not
                   fit on the chip, v5e reaches 0.88 of its peak, and 0.98 of [16384, 2048] . [2048, 8192]
    vector rate    256 against 128 multiply-adds on each element
    sums alone     the largest of each row, against the largest of twice each number, which hides it
    weights        32 against 16 applications on each element, in units of an add
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autopart.costmodel import devices
from autopart.costmodel.xla.optimised_hlo import estimated_cycles
from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.xla_compile import CLOCK_HZ

TOPOLOGIES = {
    "tpu_v2": "v2:2x2", "tpu_v3": "v3:2x2", "tpu_v4": "v4:2x2x1", "tpu_v5e": "v5e:2x2", "tpu_v5p": "v5p:2x2x1",
    "tpu_v6e": "v6e:2x2", "tpu_v7": "tpu7x:2x2x1",
}  # fmt: skip

SIDE = 8192
PRODUCTS = ((16384, 2048, 8192), (8192, 4096, 1024), (1024, 8192, 4096), (4096, 4096, 4096))
"""Rows, summed dim and columns: a layer forward and back, the gradient of its weights, a square."""

FUNCTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "exponential": lambda x: jnp.exp(-x),
    "tanh": jnp.tanh,
    "log": lambda x: jnp.log(x + 2),
    "divide": lambda x: 1 / (x + 1),
    "rsqrt": lambda x: jax.lax.rsqrt(x + 1),
    "logistic": jax.lax.logistic,
}


ROWS = jax.ShapeDtypeStruct((4096, 1024), jnp.float32)


def largest(x: jax.Array) -> jax.Array:
    return x.max(-1)


def of_twice(x: jax.Array) -> jax.Array:
    return largest(2 * x)


def cycles(device: Any, function: Callable, *shapes: jax.ShapeDtypeStruct) -> float:
    """Estimated cycles of `function` on one device."""
    mesh = jax.sharding.Mesh(np.array([device]), ("x",))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    arguments = [jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=whole) for s in shapes]
    return estimated_cycles(jax.jit(function).lower(*arguments).compile().as_text())


def chain(function: Callable, times: int) -> Callable:
    def run(x: jax.Array) -> jax.Array:
        for _ in range(times):
            x = function(x)
        return x

    return run


def constants(name: str, topology: str) -> dict[str, float]:
    """Rates in SI units, shares of the entry's nominal figures, weights in adds."""
    device, entry = topology_devices(topology)[0], devices()[name]
    clock, square = CLOCK_HZ[device.device_kind.lower()], jax.ShapeDtypeStruct((SIDE, SIDE), jnp.float32)
    elements = SIDE**2

    def per_element(function: Callable, few: int) -> float:
        """Cycles per element and application, by the difference of two chains."""
        return (cycles(device, chain(function, 2 * few), square) - cycles(device, chain(function, few), square)) / (
            few * elements
        )

    def product_share(rows: int, summed: int, columns: int) -> float:
        """Of the peak, by one product in bf16."""
        sides = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((rows, summed), (summed, columns)))
        return 2 * rows * summed * columns / cycles(device, jnp.matmul, *sides) * clock / entry.peak("bf16")

    streaming = cycles(device, lambda x: x + 1, square)
    add = per_element(lambda x: x * x + 1, 128) / 2
    found = {
        "hbm_efficiency": 8 * elements / streaming * clock / entry.hbm_bytes_per_s,
        "stream_share": streaming / 2 / cycles(device, lambda x: jnp.exp(x).sum(axis=0), square),
        "matmul_efficiency": float(np.exp(np.mean(np.log([product_share(*sizes) for sizes in PRODUCTS])))),
        "vector_flop_per_s": clock / add,
        "alone_per_s": ROWS.size * clock / (cycles(device, largest, ROWS) - cycles(device, of_twice, ROWS)),
    }
    return found | {f"weight of {n}": per_element(f, 16) / add for n, f in FUNCTIONS.items()}


def main() -> None:
    wanted = sys.argv[1:]
    for name, topology in TOPOLOGIES.items():
        if not wanted or topology in wanted:
            print(name, {key: float(f"{value:.3g}") for key, value in constants(name, topology).items()}, flush=True)


if __name__ == "__main__":
    main()
