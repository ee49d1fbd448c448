"""GNS: training step of a graph network simulator with 24 message-passing steps (PartIR paper, appendix A.3).

One step, with latents of the edges e, the nodes v and the whole graph u; edges are summed where they leave and reach:

    e += MLP([e, v[senders], v[receivers], u])
    v += MLP([v, sum of e sent, sum of e received, u])           residual, 5-layer MLPs of 1,024, latents of 512
    u += MLP([u, sum of v, sum of e])

Where Table 2's 423 all_reduces of ES (edges tiled, nodes replicated) come from:

    encoder    12   gradients of the edge MLP: 5 weights, 5 biases, 2 of its layer norm
                2   edges summed at their senders and receivers
    a step     12   gradients of the edge MLP
                3   edges summed at senders, at receivers, and over the graph
                2   backward: gradients of v (one gather reads both ends) and of u
    decoder     1   edges summed over the graph

    15 + 24 * 17 = 423
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

Params = dict[str, Any]
Graph = dict[str, jax.Array]


@dataclass(frozen=True)
class Config:
    """Sizes of the graph (`nodes`, `edges`, features of each) and of the network."""

    steps: int = 24
    mlp_layers: int = 5
    hidden: int = 1024
    latent: int = 512
    nodes: int = 2048
    edges: int = 8192
    node_features: int = 32
    edge_features: int = 16
    targets: int = 16
    learning_rate: float = 1e-4
    adam_epsilon: float = 1e-8


SMALL = Config(
    steps=2, mlp_layers=2, hidden=16, latent=8, nodes=16, edges=64, node_features=8, edge_features=4, adam_epsilon=1e-5
)


def init(config: Config, key: jax.Array) -> Params:
    """Parameters, f32: an encoder, `steps` processors and a decoder, each an MLP per kind of latent."""
    encoder, decoder, *steps = jax.random.split(key, config.steps + 2)
    latent = config.latent
    return {
        "encoder": _init_mlps(
            config, encoder, {"edges": config.edge_features, "nodes": config.node_features + 2 * latent}, latent
        ),
        "steps": [
            _init_mlps(config, k, {"edges": 4 * latent, "nodes": 4 * latent, "globals": 3 * latent}, latent)
            for k in steps
        ],
        "decoder": _init_mlps(config, decoder, {"globals": 2 * latent}, config.targets),
    }


def _init_mlps(config: Config, key: jax.Array, inputs: dict[str, int], outputs: int) -> Params:
    keys = jax.random.split(key, len(inputs))
    return {name: _init_mlp(config, k, inputs[name], outputs) for name, k in zip(inputs, keys, strict=True)}


def _init_mlp(config: Config, key: jax.Array, inputs: int, outputs: int) -> Params:
    sizes = [inputs, *[config.hidden] * (config.mlp_layers - 1), outputs]
    keys = jax.random.split(key, config.mlp_layers)
    layers = [
        {"weight": jax.random.normal(k, (fan_in, fan_out)) / math.sqrt(fan_in), "bias": jnp.zeros(fan_out)}
        for k, fan_in, fan_out in zip(keys, sizes, sizes[1:], strict=False)
    ]
    return {"layers": layers, "scale": jnp.ones(outputs), "offset": jnp.zeros(outputs)}


def mlp(params: Params, inputs: Sequence[jax.Array]) -> jax.Array:
    """The inputs [n, ...] side by side through relu layers; the result is layer-normalised."""
    x = jnp.concatenate(inputs, axis=-1)
    for layer in params["layers"][:-1]:
        x = jax.nn.relu(x @ layer["weight"] + layer["bias"])
    x = x @ params["layers"][-1]["weight"] + params["layers"][-1]["bias"]
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    normal = centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + 1e-6)
    return normal * params["scale"] + params["offset"]


def predict(params: Params, graph: Graph) -> jax.Array:
    """Properties [targets] of the whole graph."""
    senders, receivers, count = graph["senders"], graph["receivers"], graph["nodes"].shape[0]

    def at_nodes(edges: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.ops.segment_sum(edges, senders, count), jax.ops.segment_sum(edges, receivers, count)

    edges = mlp(params["encoder"]["edges"], [graph["edges"]])
    nodes = mlp(params["encoder"]["nodes"], [graph["nodes"], *at_nodes(edges)])
    whole = jnp.mean(nodes, axis=0)
    for step in params["steps"]:
        inputs = [edges, *nodes[jnp.stack([senders, receivers])], jnp.broadcast_to(whole, edges.shape)]
        edges = edges + mlp(step["edges"], inputs)
        nodes = nodes + mlp(step["nodes"], [nodes, *at_nodes(edges), jnp.broadcast_to(whole, nodes.shape)])
        whole = whole + mlp(step["globals"], [whole, jnp.sum(nodes, axis=0), jnp.sum(edges, axis=0)])
    return mlp(params["decoder"]["globals"], [whole, jnp.sum(edges, axis=0)])


def loss(params: Params, graph: Graph) -> jax.Array:
    """Mean squared error of the predicted properties."""
    return jnp.mean(jnp.square(predict(params, graph) - graph["targets"]))


def optimizer(config: Config) -> optax.GradientTransformation:
    """Adam."""
    return optax.adam(config.learning_rate, eps=config.adam_epsilon)


def step(config: Config) -> Callable[[Params, optax.OptState, Graph], tuple[Params, optax.OptState, jax.Array]]:
    """`train_step(params, opt_state, graph) -> (params, opt_state, loss)`."""

    def train_step(params: Params, opt_state: optax.OptState, graph: Graph):
        value, gradients = jax.value_and_grad(loss)(params, graph)
        updates, opt_state = optimizer(config).update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return train_step


def example_args(config: Config, seed: int = 0) -> tuple[Params, optax.OptState, Graph]:
    """Random parameters, fresh Adam state and a random graph."""
    params_key, nodes, edges, senders, receivers, targets = jax.random.split(jax.random.key(seed), 6)
    params = init(config, params_key)
    graph = {
        "nodes": jax.random.normal(nodes, (config.nodes, config.node_features)),
        "edges": jax.random.normal(edges, (config.edges, config.edge_features)),
        "senders": jax.random.randint(senders, (config.edges,), 0, config.nodes),
        "receivers": jax.random.randint(receivers, (config.edges,), 0, config.nodes),
        "targets": jax.random.normal(targets, (config.targets,)),
    }
    return params, optimizer(config).init(params), graph


def abstract_args(config: Config) -> tuple[Params, optax.OptState, Graph]:
    """The arguments of the step as shapes and types."""
    return jax.eval_shape(lambda: example_args(config))
