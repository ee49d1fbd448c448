"""Losses of rlax, flows of distrax, and graph nets of jraph, each around a small network."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from experiments.strangers.perceptron import layers, mlp
from experiments.strangers.step import Step, f32, i32, released, trained

BATCH, TIME, SEEN, ACTIONS, WIDTH = 64, 32, 128, 18, 512


@released("rlax/impala", "rlax")
def impala() -> Step:
    """V-trace over unrolled trajectories, an actor and a critic."""
    import rlax

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        def one(seen: Any, actions: Any, rewards: Any, discounts: Any, behaviour: Any) -> jax.Array:
            out = mlp(params, seen)
            logits, values = out[:, :ACTIONS], out[:, -1]
            rhos = rlax.categorical_importance_sampling_ratios(logits[:-1], behaviour[:-1], actions[:-1])
            found = rlax.vtrace_td_error_and_advantage(values[:-1], values[1:], rewards[:-1], discounts[:-1], rhos)
            weights = jnp.ones_like(rewards[:-1])
            policy = rlax.policy_gradient_loss(logits[:-1], actions[:-1], found.pg_advantage, weights)
            return policy + jnp.mean(found.errors**2) + 0.01 * rlax.entropy_loss(logits[:-1], weights)

        fields = ("seen", "actions", "rewards", "discounts", "behaviour")
        return jnp.mean(jax.vmap(one)(*(batch[f] for f in fields)))

    batch = {
        "seen": f32(BATCH, TIME, SEEN),
        "actions": i32(BATCH, TIME),
        "rewards": f32(BATCH, TIME),
        "discounts": f32(BATCH, TIME),
        "behaviour": f32(BATCH, TIME, ACTIONS),
    }
    return trained(loss, layers(SEEN, WIDTH, WIDTH, ACTIONS + 1), batch)


def _of_transitions(kind: str) -> Step:
    """Losses of one transition: quantiles, categories, double Q-learning."""
    import rlax

    atoms = 51

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        online, target = params["online"], jax.lax.stop_gradient(params["target"])

        def one(seen: Any, action: Any, reward: Any, discount: Any, after: Any) -> jax.Array:
            if kind == "double-q":
                now, then, chosen = mlp(online, seen), mlp(target, after), mlp(online, after)
                now, then, chosen = (x[:ACTIONS] for x in (now, then, chosen))
                return rlax.double_q_learning(now, action, reward, discount, then, chosen) ** 2
            now = mlp(online, seen).reshape(ACTIONS, atoms)
            then = mlp(target, after).reshape(ACTIONS, atoms)
            if kind == "categorical":
                support = jnp.linspace(-10.0, 10.0, atoms)
                chosen = jax.nn.softmax(then) @ support
                return rlax.categorical_double_q_learning(support, now, action, reward, discount, support, then, chosen)
            taus = (jnp.arange(atoms) + 0.5) / atoms
            return rlax.quantile_q_learning(now.T, taus, action, reward, discount, then.T, then.T, 1.0)

        fields = ("seen", "action", "reward", "discount", "after")
        return jnp.mean(jax.vmap(one)(*(batch[f] for f in fields)))

    net = layers(SEEN, WIDTH, WIDTH, ACTIONS * atoms)
    batch = {
        "seen": f32(1024, SEEN),
        "action": i32(1024),
        "reward": f32(1024),
        "discount": f32(1024),
        "after": f32(1024, SEEN),
    }
    return trained(loss, {"online": net, "target": net}, batch)


for _kind in ("double-q", "categorical", "quantile"):
    released(f"rlax/{_kind}", "rlax")(functools.partial(_of_transitions, _kind))


@released("distrax/neural-spline-flow", "distrax")
def spline_flow() -> Step:
    """Eight masked couplings of rational quadratic splines."""
    import distrax

    size, bins, depth = 64, 8, 8
    outputs = size * (3 * bins + 1)

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        mask, couplings = jnp.arange(size) % 2 == 0, list[Any]()

        for net in params:
            conditioner = lambda x, net=net: mlp(net, x).reshape(*x.shape[:-1], size, 3 * bins + 1)  # noqa: E731
            bijector = lambda p: distrax.RationalQuadraticSpline(p, range_min=-5.0, range_max=5.0)  # noqa: E731
            couplings.append(distrax.MaskedCoupling(mask=mask, bijector=bijector, conditioner=conditioner))
            mask = ~mask
        flow = distrax.Inverse(distrax.Chain(couplings))
        base = distrax.Independent(distrax.Normal(jnp.zeros(size), jnp.ones(size)), 1)
        return -jnp.mean(distrax.Transformed(base, flow).log_prob(batch["x"]))

    return trained(loss, [layers(size, WIDTH, WIDTH, outputs) for _ in range(depth)], {"x": f32(1024, size)})


@released("distrax/hmm", "distrax")
def hidden_markov() -> Step:
    """The gradient of what a hidden Markov model says of sequences, by the forward algorithm."""
    import distrax

    states = 128

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        model = distrax.HMM(
            trans_dist=distrax.Categorical(logits=params["moves"]),
            init_dist=distrax.Categorical(logits=params["start"]),
            obs_dist=distrax.Normal(params["mean"], jnp.exp(params["spread"])),
        )
        return -jnp.mean(jax.vmap(lambda x: model.forward_backward(x)[3])(batch["x"]))

    params = {"moves": f32(states, states), "start": f32(states), "mean": f32(states), "spread": f32(states)}
    return trained(loss, params, {"x": f32(64, 256)})


def _graph(net: str) -> Step:
    """Messages along edges, a label for each node."""
    import jraph

    nodes, edges, width, rounds = 16_384, 131_072, 128, 3

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        graph = jraph.GraphsTuple(
            nodes=batch["nodes"] @ params["in"],
            edges=batch["edges"],
            senders=batch["senders"],
            receivers=batch["receivers"],
            n_node=jnp.array([nodes]),
            n_edge=jnp.array([edges]),
            globals=None,
        )
        for layer in params["layers"]:
            graph = _nets(layer)[net](graph)
        return jnp.mean((graph.nodes @ params["out"] - batch["labels"]) ** 2)

    def _nets(layer: Any) -> dict[str, Any]:
        joined = lambda net: lambda *inputs: mlp(net, jnp.concatenate([x for x in inputs if x is not None], -1))  # noqa: E731
        query = lambda x: x @ layer["query"]  # noqa: E731
        score = lambda s, r, e: jax.nn.leaky_relu(jnp.sum(s * r, -1, keepdims=True))  # noqa: E731
        return {
            "GraphNetwork": jraph.InteractionNetwork(
                joined(layer["edge"]), joined(layer["node"]), include_sent_messages_in_node_update=True
            ),
            "GAT": jraph.GAT(query, score, jax.nn.elu),
            "GCN": jraph.GraphConvolution(query, add_self_edges=True, symmetric_normalization=True),
        }

    layer = {
        "edge": layers(3 * width, width, width),
        "node": layers(3 * width, width, width),
        "query": f32(width, width),
    }
    params = {"in": f32(64, width), "out": f32(width, 16), "layers": [layer] * rounds}
    batch = {
        "nodes": f32(nodes, 64),
        "edges": f32(edges, width),
        "senders": i32(edges),
        "receivers": i32(edges),
        "labels": f32(nodes, 16),
    }
    return trained(loss, params, batch)


for _net in ("GraphNetwork", "GAT", "GCN"):
    released(f"jraph/{_net}", "jraph")(functools.partial(_graph, _net))
