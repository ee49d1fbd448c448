"""Tree searches of mctx, over a network of two layers of its own."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from experiments.strangers.step import KEY, Step, f32, released

ROOTS, WIDTH, ACTIONS, SIMULATIONS = 256, 512, 64, 32
WEIGHTS = {
    "dynamics": f32(WIDTH + ACTIONS, WIDTH),
    "policy": f32(WIDTH, ACTIONS),
    "value": f32(WIDTH, 1),
    "reward": f32(WIDTH, 1),
}


def _searched(policy: str, **options: Any) -> Step:
    import mctx

    def recurrent(params: Any, key: jax.Array, action: jax.Array, state: jax.Array) -> Any:
        chosen = jax.nn.one_hot(action, ACTIONS)
        state = jnp.tanh(jnp.concatenate([state, chosen], -1) @ params["dynamics"])
        out = mctx.RecurrentFnOutput(
            reward=(state @ params["reward"])[:, 0],
            discount=jnp.full(state.shape[:1], 0.99),
            prior_logits=state @ params["policy"],
            value=(state @ params["value"])[:, 0],
        )
        return out, state

    def search(params: Any, key: jax.Array, states: jax.Array) -> Any:
        logits, value = states @ params["policy"], (states @ params["value"])[:, 0]
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=states)
        found = getattr(mctx, policy)(params, key, root, recurrent, SIMULATIONS, **options)
        return found.action, found.action_weights

    return Step(search, (WEIGHTS, KEY, f32(ROOTS, WIDTH)), (), {"states": 0})


released("mctx/muzero", "mctx")(functools.partial(_searched, "muzero_policy"))
released("mctx/gumbel-muzero", "mctx")(
    functools.partial(_searched, "gumbel_muzero_policy", max_num_considered_actions=16)
)
