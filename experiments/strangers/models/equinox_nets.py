"""Nets of equinox, trained as its examples do: arrays apart from what is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from experiments.strangers.step import Step, entropy, f32, i32, released, trained, trained_with_state


def _trained(make: Callable[[jax.Array], Any], loss: Callable[..., jax.Array], batch: dict[str, Any]) -> Step:
    """A step of a module; `loss(module, batch, key)`."""
    import equinox as eqx

    made = eqx.filter_eval_shape(make, jax.random.PRNGKey(0))
    params, still = eqx.partition(made, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    return trained(lambda params, batch, key: loss(eqx.combine(params, still), batch, key), params, batch)


@released("equinox/mlp-mixer", "equinox")
def mixer() -> Step:
    """Linear layers over patches and over channels in turn."""
    import equinox as eqx

    def make(key: jax.Array) -> Any:
        keys = jax.random.split(key, 20)
        blocks = [
            (eqx.nn.MLP(196, 196, 384, 1, key=a), eqx.nn.MLP(512, 512, 2048, 1, key=b), eqx.nn.LayerNorm((512, 196)))
            for a, b in zip(keys[:8], keys[8:16], strict=True)
        ]
        return eqx.nn.Conv2d(3, 512, 16, 16, key=keys[-1]), blocks, eqx.nn.Linear(512, 1000, key=keys[-2])

    def loss(module: Any, batch: Any, key: jax.Array) -> jax.Array:
        stem, blocks, head = module

        def one(image: jax.Array) -> jax.Array:
            x = stem(image).reshape(512, 196)
            for patches, channels, norm in blocks:
                x = x + jax.vmap(patches)(norm(x))
                x = x + jax.vmap(channels, 1, 1)(norm(x))
            return head(x.mean(-1))

        return entropy(jax.vmap(one)(batch["images"]), batch["labels"])

    return _trained(make, loss, {"images": f32(128, 3, 224, 224), "labels": i32(128)})


@released("equinox/attention", "equinox")
def attention() -> Step:
    """Six blocks of attention with rotary embeddings and dropout."""
    import equinox as eqx

    def make(key: jax.Array) -> Any:
        keys = jax.random.split(key, 14)
        block = lambda a, b: (  # noqa: E731
            eqx.nn.RMSNorm(512),
            eqx.nn.MultiheadAttention(8, 512, dropout_p=0.1, key=a),
            eqx.nn.MLP(512, 512, 2048, 1, jax.nn.gelu, key=b),
        )
        blocks = [block(a, b) for a, b in zip(keys[:6], keys[6:12], strict=True)]
        rotary = eqx.nn.RotaryPositionalEmbedding(64)
        return eqx.nn.Embedding(32_000, 512, key=keys[-1]), blocks, rotary, eqx.nn.Linear(512, 32_000, key=keys[-2])

    def loss(module: Any, batch: Any, key: jax.Array) -> jax.Array:
        embed, blocks, rotary, head = module

        def turned(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
            turn = jax.vmap(rotary, 1, 1)
            return turn(q), turn(k), v

        def one(tokens: jax.Array, key: jax.Array) -> jax.Array:
            x = jax.vmap(embed)(tokens)
            seen = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
            for (norm, attend, mlp), dropped in zip(blocks, jax.random.split(key, len(blocks)), strict=True):
                y = jax.vmap(norm)(x)
                x = x + attend(y, y, y, mask=seen, process_heads=turned, key=dropped)
                x = x + jax.vmap(mlp)(jax.vmap(norm)(x))
            return jax.vmap(head)(x)

        keys = jax.random.split(key, batch["tokens"].shape[0])
        return entropy(jax.vmap(one)(batch["tokens"], keys), batch["targets"])

    return _trained(make, loss, {"tokens": i32(16, 256), "targets": i32(16, 256)})


@released("equinox/gru", "equinox")
def gru() -> Step:
    """A GRU over sequences, the last state classified."""
    import equinox as eqx

    def make(key: jax.Array) -> Any:
        a, b = jax.random.split(key)
        return eqx.nn.GRUCell(64, 512, key=a), eqx.nn.Linear(512, 10, key=b)

    def loss(module: Any, batch: Any, key: jax.Array) -> jax.Array:
        cell, head = module

        def one(xs: jax.Array) -> jax.Array:
            last, _ = jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(512), xs)
            return head(last)

        return entropy(jax.vmap(one)(batch["x"]), batch["labels"])

    return _trained(make, loss, {"x": f32(256, 128, 64), "labels": i32(256)})


@released("equinox/batch-norm", "equinox")
def batch_norm() -> Step:
    """Convolutions with running means, which equinox keeps as a state beside the module."""
    import equinox as eqx

    class Net(eqx.Module):
        convolutions: list[Any]
        norms: list[Any]
        head: Any

        def __init__(self, key: jax.Array):
            keys = jax.random.split(key, 7)
            widths = (3, 64, 128, 256, 512)
            steps = zip(widths, widths[1:], keys, strict=False)
            self.convolutions = [eqx.nn.Conv2d(a, b, 3, 2, 1, key=k) for a, b, k in steps]
            self.norms = [eqx.nn.BatchNorm(b, axis_name="batch", mode="batch") for b in widths[1:]]
            self.head = eqx.nn.Linear(512, 1000, key=keys[-1])

        def __call__(self, x: jax.Array, state: Any) -> Any:
            for convolution, norm in zip(self.convolutions, self.norms, strict=True):
                x, state = norm(convolution(x), state)
                x = jax.nn.relu(x)
            return self.head(x.mean((1, 2))), state

    made, state = eqx.filter_eval_shape(eqx.nn.make_with_state(Net), jax.random.PRNGKey(0))
    params, still = eqx.partition(made, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def loss(params: Any, state: Any, batch: Any, key: jax.Array) -> Any:
        run = jax.vmap(eqx.combine(params, still), axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        logits, state = run(batch["images"], state)
        return entropy(logits, batch["labels"]), state

    return trained_with_state(loss, params, state, {"images": f32(64, 3, 224, 224), "labels": i32(64)})
