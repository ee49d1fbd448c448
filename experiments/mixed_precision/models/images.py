"""ViT, CLIP, Swin, a Mixer and a diffusion transformer."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.mixed_precision.models.layers import BF16, MEGATRON, Fused, Mlp, Separate, Stacked, attend, dense, norm
from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around


def patches(image: jax.Array, width: int, patch: int) -> jax.Array:
    x = nn.Conv(width, (patch, patch), (patch, patch), padding="VALID", dtype=BF16, name="patch")(image)
    return x.reshape(x.shape[0], -1, width)


class Vit(nn.Module):
    """A class token, 197 tokens in all; `stacked`: the projection of timm."""

    layers: int
    width: int
    heads: int
    stacked: bool

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = patches(image, self.width, 16)
        token = self.param("class", nn.initializers.zeros, (1, 1, self.width)).astype(BF16)
        x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, self.width)), x], axis=1)
        x = x + self.param("positions", nn.initializers.normal(0.02), x.shape[1:]).astype(BF16)
        for _ in range(self.layers):
            x = x + (Stacked(self.heads) if self.stacked else Separate(self.heads))(norm()(x))
            x = x + Mlp(4 * self.width)(norm()(x))
        return dense(1000, "head")(norm()(x)[:, 0]).astype(jnp.float32)


class Clip(nn.Module):
    """An image of 50 tokens and a text of 77, each in a tower with heads of 64."""

    layers: int = 1

    @nn.compact
    def __call__(self, image: jax.Array, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, y = patches(image, 768, 32), nn.Embed(49_408, 512, dtype=BF16, name="embedding")(tokens)
        x = x + self.param("image_positions", nn.initializers.normal(0.02), x.shape[1:]).astype(BF16)
        y = y + self.param("text_positions", nn.initializers.normal(0.02), y.shape[1:]).astype(BF16)
        for _ in range(self.layers):
            x = x + Fused(12)(norm()(x))
            x = x + Mlp(3072)(norm()(x))
            y = y + Fused(8, causal=True)(norm()(y))
            y = y + Mlp(2048)(norm()(y))
        x = dense(512, "image_head", False)(norm()(x).mean(axis=1)).astype(jnp.float32)
        y = dense(512, "text_head", False)(norm()(y)[:, -1]).astype(jnp.float32)
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True), y / jnp.linalg.norm(y, axis=-1, keepdims=True)


class Windows(nn.Module):
    """Attention in windows of 7 x 7, every second block shifted by 3; heads of 32."""

    heads: int
    shift: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        b, h, w, width = x.shape
        x = jnp.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x
        x = x.reshape(b, h // 7, 7, w // 7, 7, width).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 49, width)
        q, k, v = jnp.split(dense(3 * width, "qkv")(x), 3, axis=-1)
        q, k, v = (y.reshape(-1, 49, self.heads, width // self.heads) for y in (q, k, v))
        bias = self.param("bias", nn.initializers.normal(0.02), (self.heads, 49, 49))
        x = dense(width, "out")(attend(q, k, v, bias=bias).reshape(-1, 49, width))
        x = x.reshape(b, h // 7, w // 7, 7, 7, width).transpose(0, 1, 3, 2, 4, 5).reshape(b, h, w, width)
        return jnp.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class Swin(nn.Module):
    """Two stages of two blocks, 96 and 192 features."""

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = nn.Conv(96, (4, 4), (4, 4), padding="VALID", dtype=BF16, name="patch")(image)
        for stage in range(2):
            if stage:
                b, h, w, c = x.shape
                x = x.reshape(b, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 4, 2, 5).reshape(b, h // 2, w // 2, 4 * c)
                x = dense(2 * c, f"merge_{stage}", False)(norm()(x))
            for shift in (0, 3):
                x = x + Windows(3 * 2**stage, shift)(norm()(x))
                x = x + Mlp(4 * x.shape[-1])(norm()(x))
        return dense(1000, "head")(norm()(x).mean(axis=(1, 2))).astype(jnp.float32)


class Mixer(nn.Module):
    """Mixer-B/16."""

    layers: int = 2

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = patches(image, 768, 16)
        for _ in range(self.layers):
            x = x + Mlp(384, name=None)(norm()(x).swapaxes(1, 2)).swapaxes(1, 2)
            x = x + Mlp(3072, name=None)(norm()(x))
        return dense(1000, "head")(norm()(x).mean(axis=1)).astype(jnp.float32)


class DitBlock(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, c: jax.Array) -> jax.Array:
        width = x.shape[-1]
        shift, scale, gate, shift2, scale2, gate2 = jnp.split(dense(6 * width, "ada")(nn.silu(c))[:, None], 6, axis=-1)
        plain = nn.LayerNorm(use_bias=False, use_scale=False, dtype=BF16)
        x = x + gate * Fused(self.heads)(plain(x) * (1 + scale) + shift)
        return x + gate2 * Mlp(4 * width)(plain(x) * (1 + scale2) + shift2)


class Dit(nn.Module):
    """DiT-L/2 on latents of 32 x 32 x 4: 256 tokens, adaLN from time and label."""

    layers: int = 2
    width: int = 1024
    heads: int = 16

    @nn.compact
    def __call__(self, latent: jax.Array, time: jax.Array, label: jax.Array) -> jax.Array:
        b, h, w, channels = latent.shape
        x = patches(latent, self.width, 2)
        x = x + self.param("positions", nn.initializers.normal(0.02), x.shape[1:]).astype(BF16)
        waves = time[:, None] * jnp.exp(-jnp.arange(128) / 128 * jnp.log(1e4))
        c = dense(self.width, "time")(jnp.concatenate([jnp.cos(waves), jnp.sin(waves)], axis=-1).astype(BF16))
        c = c + nn.Embed(1001, self.width, dtype=BF16, name="label")(label)
        for _ in range(self.layers):
            x = DitBlock(self.heads)(x, c)
        x = dense(4 * channels, "last")(norm()(x)).reshape(b, h // 2, w // 2, 2, 2, channels)
        return x.transpose(0, 1, 3, 2, 4, 5).reshape(b, h, w, channels)


def _of_images(model: nn.Module, batch: int, optimizer: Any) -> Training:
    def loss(params: Any, batch: Any) -> jax.Array:
        return cross_entropy(model.apply(params, batch["image"]), batch["label"])

    return around(
        loss,
        optimizer,
        lambda key: model.init(key, jnp.zeros((1, 224, 224, 3))),
        {"image": f32(batch, 224, 224, 3), "label": i32(batch)},
        MEGATRON,
    )


def vit_s() -> Training:
    return _of_images(Vit(2, 384, 6, stacked=True), 256, optax.adamw(1e-3))


def vit_b() -> Training:
    return _of_images(Vit(2, 768, 12, stacked=False), 256, optax.adamw(1e-3))


def swin() -> Training:
    return _of_images(Swin(), 128, optax.adamw(1e-3))


def mixer() -> Training:
    return _of_images(Mixer(), 256, optax.adamw(1e-3))


def clip() -> Training:
    model = Clip()

    def loss(params: Any, batch: Any) -> jax.Array:
        image, text = model.apply(params, batch["image"], batch["tokens"])
        logits, labels = 100.0 * image @ text.T, jnp.arange(image.shape[0])
        return (cross_entropy(logits, labels) + cross_entropy(logits.T, labels)) / 2

    return around(
        loss,
        optax.adamw(1e-3),
        lambda key: model.init(key, jnp.zeros((1, 224, 224, 3)), jnp.zeros((1, 77), jnp.int32)),
        {"image": f32(512, 224, 224, 3), "tokens": i32(512, 77)},
        MEGATRON,
    )


def dit() -> Training:
    model = Dit()

    def loss(params: Any, batch: Any) -> jax.Array:
        noisy = batch["latent"] + batch["noise"] * batch["time"][:, None, None, None]
        guess = model.apply(params, noisy, batch["time"], batch["label"]).astype(jnp.float32)
        return jnp.mean((guess - batch["noise"]) ** 2)

    latent = f32(256, 32, 32, 4)
    return around(
        loss,
        optax.adamw(1e-4),
        lambda key: model.init(key, jnp.zeros((1, 32, 32, 4)), jnp.zeros(1), jnp.zeros(1, jnp.int32)),
        {"latent": latent, "noise": latent, "time": f32(256), "label": i32(256)},
        MEGATRON,
    )
