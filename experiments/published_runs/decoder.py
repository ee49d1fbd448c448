"""A decoder's training step, as the published runs have it: MaxText's and others' configurations in a few lines.

    step(config)(state, tokens, targets) -> state, loss        abstract_args(config): state and [batch, tokens] of both

A scan over layers, grouped queries, a gated MLP or experts, named values that are kept between the passes, AdamW
after clipping by the global norm. Weights are stored as `weights` says, and computed with in bf16.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import optax

import autopart as ap
from experiments.published_runs.kernels import attention, grouped_product

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Config:
    """Sizes of the model and of a step; `batch` counts the sequences of all devices."""

    emb: int
    heads: int
    kv: int
    mlp: int
    layers: int
    vocab: int
    tokens: int
    batch: int
    width: int = 128
    experts: int = 0
    chosen: int = 2
    capacity: float | None = 1.25
    """Rows of an expert over an even share; None drops no row and sorts them."""
    gated: bool = True
    one_hot: bool = True
    """Whether the embedding is a product with a one-hot matrix, as MaxText has it, or a look-up."""
    weights: str = "float32"
    kept: tuple[str, ...] | None = ()
    """Names that are kept for the backward pass; None recomputes nothing."""
    products: str | None = None
    """The type to which operands of a layer's products are rounded, forwards and backwards; None: none."""

    def _weights_per_layer(self, experts: int) -> int:
        attention_ = self.emb * self.width * (2 * self.heads + 2 * self.kv)
        return attention_ + (3 if self.gated else 2) * self.emb * self.mlp * experts + self.emb * self.experts

    @property
    def parameters(self) -> int:
        """How many parameters the model has."""
        layer_ = self._weights_per_layer(max(1, self.experts)) + 2 * self.emb
        return self.layers * layer_ + 2 * self.vocab * self.emb + self.emb

    @property
    def flop_per_token(self) -> float:
        """As MaxText counts them: six per weight that a token meets, and all scores of attention."""
        weights = self.layers * self._weights_per_layer(self.chosen if self.experts else 1) + self.vocab * self.emb
        return 6 * weights + 12 * self.layers * self.heads * self.width * self.tokens


def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5)
    return y.astype(x.dtype) * scale.astype(x.dtype)


def rotated(x: jax.Array) -> jax.Array:
    """Rotary positions of [..., tokens, width]."""
    tokens, width = x.shape[-2:]
    frequency = 1.0 / (500000.0 ** (jnp.arange(0, width, 2, dtype=jnp.float32) / width))
    angle = jnp.arange(tokens, dtype=jnp.float32)[:, None] * frequency
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    a, b = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


named = jax.ad_checkpoint.checkpoint_name


def product(config: Config, spec: str, x: jax.Array, w: jax.Array) -> jax.Array:
    """An einsum of a layer."""
    return jnp.einsum(spec, x, w) if config.products is None else _rounded(spec, config.products, x, w)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _rounded(spec: str, dtype: str, x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.einsum(spec, x.astype(dtype), w.astype(dtype), preferred_element_type=x.dtype)


def _rounded_back(spec: str, dtype: str, kept: tuple[jax.Array, ...], flowing: jax.Array) -> tuple[jax.Array, ...]:
    (x, w), (operands, result) = kept, spec.split("->")
    left, right = operands.split(",")
    return _rounded(f"{result},{right}->{left}", dtype, flowing, w), _rounded(
        f"{left},{result}->{right}", dtype, x, flowing
    )


_rounded.defvjp(lambda spec, dtype, x, w: (_rounded(spec, dtype, x, w), (x, w)), _rounded_back)


def attend(config: Config, x: jax.Array, w: Arrays) -> jax.Array:
    batch, tokens, _ = x.shape
    q, k, v = (product(config, "btm,mhd->bhtd", x, w[name]) for name in "qkv")
    q = q.reshape(batch, config.kv, -1, tokens, config.width)
    q, k, v = named(rotated(q), "query_proj"), named(rotated(k), "key_proj"), named(v, "value_proj")
    out = named(attention(q, k, v), "context").reshape(batch, config.heads, tokens, config.width)
    return named(product(config, "bhtd,hdm->btm", out, w["o"]), "out_proj")


def dense(config: Config, x: jax.Array, w: Arrays) -> jax.Array:
    multiply = functools.partial(product, config, "btm,mh->bth")
    if config.gated:
        h = jax.nn.silu(named(multiply(x, w["wi0"]), "mlpwi0")) * named(multiply(x, w["wi1"]), "mlpwi1")
    else:
        h = jax.nn.relu(multiply(x, w["wi0"]))
    return named(multiply(h, w["wo"]), "mlpwo")


def routed(config: Config, x: jax.Array, w: Arrays) -> tuple[jax.Array, jax.Array]:
    """The experts of each token and their weights, [batch, tokens, chosen]."""
    top, index = jax.lax.top_k((x @ w["gate"]).astype(jnp.float32), config.chosen)
    return index, jax.nn.softmax(top, -1).astype(x.dtype)


def sorted_experts(config: Config, x: jax.Array, w: Arrays) -> jax.Array:
    """Every row, sorted by its expert: grouped products."""
    (batch, tokens, width), (index, weight) = x.shape, routed(config, x, w)
    index = index.reshape(batch, -1)
    order = jnp.argsort(index, axis=-1)
    rows = jnp.take_along_axis(x, (order // config.chosen)[..., None], 1)
    sizes = jnp.sum(jax.nn.one_hot(index, config.experts, dtype=jnp.int32), 1)
    h = jax.nn.silu(grouped_product(rows, w["wi0"], sizes)) * grouped_product(rows, w["wi1"], sizes)
    out = jnp.take_along_axis(grouped_product(h, w["wo"], sizes), jnp.argsort(order, axis=-1)[..., None], 1)
    return jnp.einsum("bskm,bsk->bsm", out.reshape(batch, tokens, config.chosen, width), weight)


def full_experts(config: Config, x: jax.Array, w: Arrays) -> jax.Array:
    """As many rows as an expert has room for; the others are dropped."""
    (batch, tokens, _), (index, weight) = x.shape, routed(config, x, w)
    assert config.capacity is not None
    room = int(tokens * config.chosen * config.capacity / config.experts)
    chosen = jax.nn.one_hot(index, config.experts, dtype=jnp.int32)
    count = jnp.cumsum(chosen.reshape(batch, -1, config.experts), axis=1).reshape(chosen.shape)
    kept = (chosen * (count <= room)).sum(2)
    place = (chosen * count).sum(2) * kept
    share = (jax.nn.one_hot(index, config.experts, dtype=x.dtype) * weight[..., None]).sum(2) * kept.astype(x.dtype)
    combine = share[..., None] * jax.nn.one_hot(place, room + 1, dtype=x.dtype)[..., 1:]
    rows = jnp.einsum("bsm,bsec->ebcm", x, (combine != 0).astype(x.dtype))
    h = jnp.einsum("ebcm,emh->ebch", rows, w["wi0"]), jnp.einsum("ebcm,emh->ebch", rows, w["wi1"])
    out = named(jnp.einsum("ebch,ehm->ebcm", jax.nn.silu(h[0]) * h[1], w["wo"]), "mlpwo")
    return jnp.einsum("ebcm,bsec->bsm", out, combine)


def layer(config: Config, x: jax.Array, w: Arrays) -> jax.Array:
    x = named(ap.tag("stream", x), "decoder_layer_input")
    w = jax.tree.map(lambda p: p.astype(jnp.bfloat16), w)
    x = x + attend(config, norm(x, w["norm1"]), w)
    mlp = dense if not config.experts else sorted_experts if config.capacity is None else full_experts
    return x + mlp(config, norm(x, w["norm2"]), w)


def loss(config: Config, params: Arrays, tokens: jax.Array, targets: jax.Array) -> jax.Array:
    table = params["embed"].astype(jnp.bfloat16)
    x = jax.nn.one_hot(tokens, config.vocab, dtype=jnp.bfloat16) @ table if config.one_hot else table[tokens]
    body = functools.partial(layer, config)
    if config.kept is not None:
        policy = jax.checkpoint_policies.save_only_these_names(*config.kept)
        body = jax.checkpoint(body, policy=policy, prevent_cse=False)
    x, _ = jax.lax.scan(lambda x, w: (body(x, w), None), x, params["layers"])
    logits = (norm(x, params["norm"]) @ params["head"].astype(jnp.bfloat16)).astype(jnp.float32)
    hot = jax.nn.one_hot(targets, config.vocab, dtype=jnp.float32)
    return jnp.mean(-jnp.sum(hot * jax.nn.log_softmax(logits, -1), -1))


def optimizer() -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-5, 0.9, 0.95, weight_decay=0.1))


def step(config: Config) -> Callable[..., tuple[Arrays, jax.Array]]:
    """The training step."""

    def train_step(state: Arrays, tokens: jax.Array, targets: jax.Array) -> tuple[Arrays, jax.Array]:
        params, opt_state = state["params"], state["opt_state"]
        value, gradients = jax.value_and_grad(functools.partial(loss, config))(params, tokens, targets)
        updates, opt_state = optimizer().update(gradients, opt_state, params)
        return {"params": optax.apply_updates(params, updates), "opt_state": opt_state}, value

    return train_step


def abstract_args(config: Config) -> tuple[Arrays, jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """State, tokens and targets, as shapes."""

    def array(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, config.weights)

    layers, emb, width = config.layers, config.emb, config.width
    experts = (config.experts,) if config.experts else ()
    heads = {"q": config.heads, "k": config.kv, "v": config.kv}
    blocks = {name: array(layers, emb, h, width) for name, h in heads.items()}
    blocks |= {"o": array(layers, config.heads, width, emb), "norm1": array(layers, emb), "norm2": array(layers, emb)}
    blocks |= {"wi0": array(layers, *experts, emb, config.mlp), "wo": array(layers, *experts, config.mlp, emb)}
    blocks |= {"wi1": array(layers, *experts, emb, config.mlp)} if config.gated else {}
    blocks |= {"gate": array(layers, emb, config.experts)} if experts else {}
    params = {
        "embed": array(config.vocab, emb), "head": array(emb, config.vocab), "norm": array(emb), "layers": blocks,
    }  # fmt: skip
    ids = jax.ShapeDtypeStruct((config.batch, config.tokens), "int32")
    return {"params": params, "opt_state": jax.eval_shape(optimizer().init, params)}, ids, ids
