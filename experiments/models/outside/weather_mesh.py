"""GraphCast on the grid of WeatherBench in plain jax, trained with clipped AdamW: messages from a grid to a mesh, along
the edges of the mesh, and back, summed over the edges of each node; the graph is a part of the batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32
from experiments.models.outside.training import training as around

SMALL = {
    "latent": 16, "layers": 2, "variables": 8, "rows": 8, "columns": 8, "mesh": 64,
    "edges": (96, 128, 192), "batch": 8,
}  # fmt: skip

Params = dict[str, Any]


def _mlp(params: Params, x: jax.Array) -> jax.Array:
    x = jax.nn.silu(x @ params["up"] + params["up_bias"]) @ params["down"] + params["down_bias"]
    if "scale" not in params:
        return x
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * params["scale"] + params["shift"]


def _passed(
    params: Params, edges: jax.Array, senders: jax.Array, receivers: jax.Array, graph: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Messages along `graph` [2, edges], from the rows of `senders` to those of `receivers`."""
    origin, target = graph
    edges = edges + _mlp(params["edge"], jnp.concatenate([edges, senders[origin], receivers[target]], -1))
    received = jax.ops.segment_sum(edges, target, num_segments=len(receivers))
    return edges, receivers + _mlp(params["node"], jnp.concatenate([receivers, received], -1))


def training(
    latent: int = 512,
    layers: int = 4,
    variables: int = 78,
    rows: int = 32,
    columns: int = 64,
    mesh: int = 642,
    edges: tuple[int, int, int] = (3114, 5100, 6144),
    batch: int = 32,
) -> Training:
    """`edges`: from the grid to the mesh, within the mesh, and from the mesh to the grid."""
    grid = rows * columns

    def init(key: jax.Array) -> Params:
        keys = iter(jax.random.split(key, 64))

        def mlp(read: int, written: int = latent, norm: bool = True) -> Params:
            he = jax.nn.initializers.he_normal()
            params = {
                "up": he(next(keys), (read, latent)),
                "up_bias": jnp.zeros(latent),
                "down": he(next(keys), (latent, written)),
                "down_bias": jnp.zeros(written),
            }
            return params | ({"scale": jnp.ones(written), "shift": jnp.zeros(written)} if norm else {})

        def passes() -> Params:
            return {"edge": mlp(3 * latent), "node": mlp(2 * latent)}

        return {
            "embed": {"grid": mlp(2 * variables), "mesh": mlp(3), "edges": [mlp(4) for _ in edges]},
            "into": passes(),
            "mesh": jax.tree.map(lambda *each: jnp.stack(each), *(passes() for _ in range(layers))),
            "back": passes(),
            "out": mlp(latent, variables, norm=False),
        }

    def forecast(params: Params, now: jax.Array, before: jax.Array, batch: dict[str, Any]) -> jax.Array:
        """The next state of a grid, from two."""
        embed = params["embed"]
        of_grid = _mlp(embed["grid"], jnp.concatenate([now, before], -1))
        of_mesh = _mlp(embed["mesh"], batch["places"])
        into, within, back = (_mlp(p, x) for p, x in zip(embed["edges"], batch["edges"], strict=True))
        _, of_mesh = _passed(params["into"], into, of_grid, of_mesh, batch["graphs"][0])

        @jax.checkpoint
        def layer(state: tuple[jax.Array, jax.Array], p: Params) -> tuple[tuple[jax.Array, jax.Array], None]:
            edges, nodes = state
            return _passed(p, edges, nodes, nodes, batch["graphs"][1]), None

        (_, of_mesh), _ = jax.lax.scan(layer, (within, of_mesh), params["mesh"])
        _, of_grid = _passed(params["back"], back, of_mesh, of_grid, batch["graphs"][2])
        return now + _mlp(params["out"], of_grid)

    def loss(params: Params, batch: dict[str, Any]) -> jax.Array:
        made = jax.vmap(lambda now, before: forecast(params, now, before, batch))(batch["now"], batch["before"])
        latitude = (jnp.arange(rows) + 0.5) / rows * jnp.pi - jnp.pi / 2
        area = jnp.repeat(jnp.cos(latitude) / jnp.cos(latitude).mean(), columns)
        return jnp.mean(area[:, None] * (made - batch["next"]) ** 2)

    optimizer = optax.chain(
        optax.clip_by_global_norm(32.0),
        optax.adamw(optax.warmup_cosine_decay_schedule(1e-6, 1e-3, 1000, 300_000), b2=0.95, weight_decay=0.1),
    )
    states = f32(batch, grid, variables)
    inputs = {
        "before": states,
        "now": states,
        "next": states,
        "places": f32(mesh, 3),
        "edges": [f32(count, 4) for count in edges],
        "graphs": [i32(2, count) for count in edges],
    }
    return around(loss, optimizer, init, inputs)
