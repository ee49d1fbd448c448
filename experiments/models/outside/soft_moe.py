"""A vision transformer with soft mixtures of experts in flax linen, trained with clipped AdamW in bf16: the slots of
every second layer's experts are weighted means of all tokens, and each token is a weighted mean of all slots."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32, training_of

SMALL = {
    "layers": 2, "width": 32, "heads": 2, "experts": 8, "slots": 2, "classes": 16, "patch": 8, "batch": 8, "side": 32,
}  # fmt: skip


class SoftMoe(nn.Module):
    layers: int
    width: int
    heads: int
    experts: int
    slots: int
    """Of each expert."""
    classes: int
    patch: int

    def _mixture(self, x: jax.Array, layer: int) -> jax.Array:
        """`x` [batch m, tokens, width d] through experts e with slots p."""
        batch, length, width = x.shape
        weights = nn.initializers.lecun_normal()
        phi = self.param(f"phi_{layer}", weights, (width, self.experts, self.slots))
        logits = jnp.einsum("bmd,dep->bmep", x, phi.astype(x.dtype)).astype(jnp.float32)
        dispatch = nn.softmax(logits, 1).astype(x.dtype)
        combine = nn.softmax(logits.reshape(batch, length, -1), -1).reshape(logits.shape).astype(x.dtype)
        slots = jnp.einsum("bmd,bmep->bepd", x, dispatch)
        w_in = self.param(f"w_in_{layer}", weights, (self.experts, width, 4 * width)).astype(x.dtype)
        w_out = self.param(f"w_out_{layer}", weights, (self.experts, 4 * width, width)).astype(x.dtype)
        hidden = nn.gelu(jnp.einsum("bepd,edf->bepf", slots, w_in))
        return jnp.einsum("bmep,bepd->bmd", combine, jnp.einsum("bepf,efd->bepd", hidden, w_out))

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        dtype, patch = jnp.bfloat16, (self.patch, self.patch)
        x = nn.Conv(self.width, patch, patch, dtype=dtype)(image).reshape(image.shape[0], -1, self.width)
        positions = self.param("positions", nn.initializers.normal(0.02), (1, *x.shape[1:]))
        x = x + positions.astype(dtype)
        for layer in range(self.layers):
            y = nn.LayerNorm(dtype=dtype)(x)
            x = x + nn.MultiHeadDotProductAttention(self.heads, dtype=dtype)(y, y)
            y = nn.LayerNorm(dtype=dtype)(x)
            if layer % 2:
                x = x + self._mixture(y, layer)
            else:
                down = nn.Dense(self.width, dtype=dtype)
                x = x + down(nn.gelu(nn.Dense(4 * self.width, dtype=dtype)(y)))
        return nn.Dense(self.classes)(nn.LayerNorm()(x).mean(1))


def training(
    layers: int = 4,
    width: int = 384,
    heads: int = 6,
    experts: int = 16,
    slots: int = 4,
    classes: int = 1000,
    patch: int = 16,
    batch: int = 128,
    side: int = 224,
) -> Training:
    images = jax.ShapeDtypeStruct((batch, side, side, 3), jnp.bfloat16)

    def loss(logits, batch):
        return cross_entropy(logits, batch[1])

    model = SoftMoe(layers, width, heads, experts, slots, classes, patch)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    return training_of(model, (images,), i32(batch), loss, optimizer)
