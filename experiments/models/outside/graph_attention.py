"""Graph attention over molecules in plain jax, trained with Adam: softmax over the edges into an atom, by segments."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around

SMALL = {"molecules": 8, "atoms": 8, "edges": 16, "features": 8, "width": 4, "heads": 2}


def training(
    molecules: int = 1024, atoms: int = 64, edges: int = 256, features: int = 128, width: int = 32, heads: int = 8,
    layers: int = 3, classes: int = 16,
) -> Training:  # fmt: skip
    def init(key: jax.Array) -> list[dict[str, jax.Array]]:
        sizes = [features, *[heads * width] * layers]
        keys = jax.random.split(key, layers)
        return [
            {
                "w": jax.random.normal(k, (size, heads, width)) * size**-0.5,
                "to": jax.random.normal(k, (heads, width)) * width**-0.5,
                "of": jax.random.normal(k, (heads, width)) * width**-0.5,
            }
            for k, size in zip(keys, sizes, strict=False)
        ]

    def of_molecule(
        params: list[dict[str, jax.Array]], x: jax.Array, source: jax.Array, target: jax.Array
    ) -> jax.Array:
        for layer in params:
            h = jnp.einsum("nf,fhw->nhw", x, layer["w"])
            score = jax.nn.leaky_relu((h * layer["of"]).sum(-1)[source] + (h * layer["to"]).sum(-1)[target])
            most = jax.ops.segment_max(jax.lax.stop_gradient(score), target, atoms)
            weight = jnp.exp(score - most[target])
            total = jax.ops.segment_sum(weight, target, atoms)
            read = jax.ops.segment_sum(weight[..., None] * h[source], target, atoms) / (total[..., None] + 1e-9)
            x = jax.nn.elu(read).reshape(atoms, -1)
        return x.mean(0)[:classes]

    def loss(params: list[dict[str, jax.Array]], batch: dict[str, jax.Array]) -> jax.Array:
        of_each = jax.vmap(of_molecule, (None, 0, 0, 0))
        return cross_entropy(of_each(params, batch["x"], batch["source"], batch["target"]), batch["label"])

    return around(
        loss, optax.adam(1e-3), init,
        {
            "x": f32(molecules, atoms, features), "source": i32(molecules, edges), "target": i32(molecules, edges),
            "label": i32(molecules),
        },
    )  # fmt: skip
