"""Flax linen: a decoder whose layers are one `nn.scan` over rematerialised blocks, with a `TrainState`."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

from tests.models.case import ADAM_EPSILON, Case, training_schedules

LAYERS, WIDTH, HEADS, VOCABULARY, BATCH, LENGTH = 3, 16, 4, 32, 8, 8


class Block(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array) -> tuple[jax.Array, None]:
        attention = nn.MultiHeadDotProductAttention(HEADS, use_bias=False)
        x = x + attention(nn.LayerNorm()(x), mask=mask)
        hidden = nn.gelu(nn.Dense(4 * WIDTH, name="up")(nn.LayerNorm()(x)))
        return x + nn.Dense(WIDTH, name="down")(hidden), None


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        embed = nn.Embed(VOCABULARY, WIDTH)
        x = embed(tokens)
        blocks = nn.scan(
            nn.remat(Block, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=nn.broadcast,
            length=LAYERS,
        )(name="blocks")
        x, _ = blocks(x, nn.make_causal_mask(tokens))
        return embed.attend(nn.LayerNorm()(x))


def case() -> Case:
    model = Decoder()
    params_key, tokens_key = jax.random.split(jax.random.key(0))
    tokens = jax.random.randint(tokens_key, (BATCH, LENGTH + 1), 0, VOCABULARY)
    variables = model.init(params_key, tokens[:, :-1])
    state = TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-3, eps=ADAM_EPSILON))

    def train_step(state, tokens):
        def loss(params):
            logits = state.apply_fn({"params": params}, tokens[:, :-1])
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]))

        value, gradients = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradients), value

    model_parallel = {
        "state": {
            "params/blocks/*/query/kernel": 2,
            "params/blocks/*/key/kernel": 2,
            "params/blocks/*/value/kernel": 2,
            "params/blocks/up/kernel": 2,
        }
    }
    return Case(
        train_step,
        (state, tokens),
        state=1,
        schedules=training_schedules("tokens", model_parallel, state=("state",)),
    )
