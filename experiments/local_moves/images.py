"""Collectives of images between two convolutions, as they come and in the order in which convolutions have images.

python -m experiments.local_moves.images            pip install libtpu; ten minutes: images.json
python -m experiments.local_moves.images summary    from images.json alone

Cycles of the whole program by libtpu on {b:2, m:2}: a convolution, a gather or a reduce_scatter along a dim of space
over "m", another convolution. What images.json has is not compiled again.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

RESULTS = Path(__file__).with_name("images.json")
TOPOLOGIES = {"tpu_v3": "v3:2x2", "tpu_v5e": "v5e:2x2"}
DTYPES = {"bf16": jnp.bfloat16, "f32": jnp.float32}
SIZES = (
    (1, 56, 64, 1), (2, 56, 64, 1), (2, 56, 64, 2), (8, 56, 64, 1), (8, 28, 128, 2), (16, 28, 128, 1), (16, 28, 128, 2),
    (32, 14, 256, 1), (64, 32, 32, 1), (128, 16, 64, 2),
)  # fmt: skip
"""Images of a device, places a side, features, and the dim of the collective."""

PLACES = ("NHWC", "HWIO", "NHWC")
TURN, BACK = (1, 2, 0, 3), (2, 0, 1, 3)


def main(names: list[str]) -> None:
    if set(names) - {"summary"}:
        raise SystemExit(f"no part is called {sorted(set(names) - {'summary'})}; known: summary")
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for case in itertools.product(TOPOLOGIES, DTYPES, ("all_gather", "reduce_scatter"), SIZES) if not names else ():
        device, dtype, kind, size = case
        name = f"{device} {dtype} {kind} {' '.join(map(str, size))}"
        if name not in found:
            found[name] = [cycles(device, DTYPES[dtype], kind, *size, turned) for turned in (False, True)]
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    shares = {name: turned / plain for name, (plain, turned) in found.items()}
    for name, share in shares.items():
        if share != 1:
            print(f"{name}: {share:.3f}")
    print(f"{len(shares)} programs, in the order of convolutions over as they come: at most {max(shares.values()):.3f}")


def cycles(
    device: str, dtype: jnp.dtype, kind: str, images: int, side: int, features: int, dim: int, turned: bool
) -> float:
    """Estimated cycles of one program."""
    from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
    from autopart.costmodel.xla.topologies import topology_devices

    def moved(x: jax.Array, move: Callable[[jax.Array, int], jax.Array]) -> jax.Array:
        return move(x.transpose(TURN), TURN.index(dim)).transpose(BACK) if turned else move(x, dim)

    def gathered(x: jax.Array) -> jax.Array:
        tile = jax.lax.dynamic_slice_in_dim(x, jax.lax.axis_index("m") * (side // 2), side // 2, dim)
        return moved(jnp.tanh(tile), lambda y, d: jax.lax.all_gather(y, "m", axis=d, tiled=True))

    def scattered(x: jax.Array) -> jax.Array:
        return jnp.tanh(moved(x, lambda y, d: jax.lax.psum_scatter(y, "m", scatter_dimension=d, tiled=True)))

    def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=PLACES)

    def program(x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        y = jax.nn.relu(convolved(x, first) * 2 + 1)
        y = gathered(y) if kind == "all_gather" else scattered(y)
        return convolved(y, second).astype(jnp.float32).sum((0, 1, 2))

    mesh = Mesh(np.array(topology_devices(TOPOLOGIES[device])[:4]).reshape(2, 2), ("b", "m"))
    specs = PartitionSpec("b"), PartitionSpec(), PartitionSpec()
    shapes = (2 * images, side, side, features), (3, 3, features, features), (3, 3, features, features)
    given = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
        for shape, spec in zip(shapes, specs, strict=True)
    ]
    run = jax.shard_map(program, mesh=mesh, in_specs=specs, out_specs=PartitionSpec("b"), check_vma=False)
    return OptimisedHlo(str(jax.jit(run).lower(*given).compile().as_text())).cycles


if __name__ == "__main__":
    main(sys.argv[1:])
