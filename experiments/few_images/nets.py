"""Training steps of small nets with few images, on one device: no constant was chosen on them.

resnet      7 x 7 by steps of two, max pooling, four bottlenecks, batch norm     classifier
basic       3 x 3 at 32 x 32, two blocks, batch norm                              classifier
deeplab     dilations of 1, 2 and 4 side by side, group norm                      segmentation
convnext    windows of 7 x 7 for each feature, layer norm, products               classifier
wavenet     dilations of 1 to 8 along 2,048 places, gates                         sound
unet3d      two levels of 3 x 3 x 3, group norm                                   volumes
diffusion   residual blocks with group norm on two levels                         images from noise
vgg         3 x 3 and max pooling                                                 classifier
segmenter   three levels by steps of two and back, skips, batch norm              segmentation; volumes
restyler    the same with a norm of each image                                    images from images

What rewrites their parts was found on the last two (`image_uses.py`, arrays that are cut again).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from experiments.few_images.cases import conv, normal

Params = Callable[..., jax.Array]
"""`params(*shape)` is the next parameter, of that shape."""


def _scaled(params: Params, x: jax.Array) -> jax.Array:
    scale = params(2, x.shape[-1])
    return x * scale[0] + scale[1]


def _batch_norm(params: Params, x: jax.Array) -> jax.Array:
    return _scaled(params, normal(x, tuple(range(x.ndim - 1))))


def _layer_norm(params: Params, x: jax.Array) -> jax.Array:
    return _scaled(params, normal(x, (x.ndim - 1,)))


def _group_norm(params: Params, x: jax.Array) -> jax.Array:
    grouped = x.reshape(*x.shape[:-1], 8, -1)
    return _scaled(params, normal(grouped, (*range(1, x.ndim - 1), x.ndim)).reshape(x.shape))


def _conv(
    params: Params, x: jax.Array, features: int, window: int = 3, stride: int = 1, dilation: int = 1
) -> jax.Array:
    return conv(x, params(*(window,) * (x.ndim - 2), x.shape[-1], features), stride, dilation)


def _pooled(x: jax.Array, window: int) -> jax.Array:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, window, window, 1), (1, 2, 2, 1), "SAME")


def _twice_as_large(x: jax.Array) -> jax.Array:
    for dim in range(1, x.ndim - 1):
        x = jnp.repeat(x, 2, dim)
    return x


def resnet(params: Params, x: jax.Array) -> jax.Array:
    x = _pooled(jax.nn.relu(_batch_norm(params, _conv(params, x, 64, 7, 2))), 3)
    for features, stride in ((64, 1), (64, 1), (128, 2), (256, 2)):
        y = jax.nn.relu(_batch_norm(params, _conv(params, x, features, 1)))
        y = jax.nn.relu(_batch_norm(params, _conv(params, y, features, 3, stride)))
        y = _batch_norm(params, _conv(params, y, 4 * features, 1))
        skip = x if x.shape == y.shape else _batch_norm(params, _conv(params, x, 4 * features, 1, stride))
        x = jax.nn.relu(skip + y)
    return x.mean((1, 2)) @ params(x.shape[-1], 1000)


def resnet18(params: Params, x: jax.Array) -> jax.Array:
    """With pools that pad both sides of an image, as a port of PyTorch's."""
    x = jax.nn.relu(_batch_norm(params, _conv(params, x, 64, 7, 2)))
    x = jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    )  # fmt: skip
    for features, stride in ((64, 1), (128, 2), (256, 2)):
        y = jax.nn.relu(_batch_norm(params, _conv(params, x, features, 3, stride)))
        y = _batch_norm(params, _conv(params, y, features))
        x = jax.nn.relu(y + (x if x.shape == y.shape else _batch_norm(params, _conv(params, x, features, 1, stride))))
    return x.mean((1, 2)) @ params(x.shape[-1], 1000)


def mobilenet(params: Params, x: jax.Array) -> jax.Array:
    x = jax.nn.relu6(_batch_norm(params, _conv(params, x, 32, 3, 2)))
    for features, stride in ((16, 1), (24, 2), (24, 1), (32, 2), (32, 1)):
        wide = 6 * x.shape[-1]
        y = jax.nn.relu6(_batch_norm(params, _conv(params, x, wide, 1)))
        y = jax.nn.relu6(_batch_norm(params, conv(y, params(3, 3, 1, wide), stride, groups=wide)))
        y = _batch_norm(params, _conv(params, y, features, 1))
        x = x + y if x.shape == y.shape else y
    return x.mean((1, 2)) @ params(x.shape[-1], 1000)


def squeezing(params: Params, x: jax.Array) -> jax.Array:
    """Blocks of which each feature is weighed by what all places of an image say."""
    x = jax.nn.silu(_batch_norm(params, _conv(params, x, 32, 3, 2)))
    for features, stride in ((48, 2), (48, 1), (96, 2), (96, 1)):
        y = jax.nn.silu(_batch_norm(params, _conv(params, x, 4 * x.shape[-1], 3, stride)))
        seen = jax.nn.silu(y.mean((1, 2)) @ params(y.shape[-1], 16))
        y = y * jax.nn.sigmoid(seen @ params(16, y.shape[-1]))[:, None, None]
        y = _batch_norm(params, _conv(params, y, features, 1))
        x = x + y if x.shape == y.shape else y
    return x.mean((1, 2)) @ params(x.shape[-1], 1000)


def basic(params: Params, x: jax.Array) -> jax.Array:
    x = jax.nn.relu(_batch_norm(params, _conv(params, x, 64)))
    for features, stride in ((64, 1), (128, 2)):
        y = jax.nn.relu(_batch_norm(params, _conv(params, x, features, 3, stride)))
        y = _batch_norm(params, _conv(params, y, features))
        x = jax.nn.relu(y + (x if x.shape == y.shape else _conv(params, x, features, 1, stride)))
    return x.mean((1, 2)) @ params(x.shape[-1], 10)


def deeplab(params: Params, x: jax.Array) -> jax.Array:
    for features in (64, 128):
        x = jax.nn.relu(_group_norm(params, _conv(params, x, features, 3, 2)))
    sides = [jax.nn.relu(_group_norm(params, _conv(params, x, 64, 3, 1, d))) for d in (1, 2, 4)]
    x = jax.nn.relu(_conv(params, jnp.concatenate(sides, -1), 128, 1))
    return _conv(params, x, 21, 1).mean((1, 2))


def convnext(params: Params, x: jax.Array) -> jax.Array:
    for features, patch in ((96, 4), (192, 2)):
        x = _layer_norm(params, _conv(params, x, features, patch, patch))
        for _ in range(2):
            y = _layer_norm(params, conv(x, params(7, 7, 1, features), groups=features))
            x = x + jax.nn.gelu(y @ params(features, 4 * features)) @ params(4 * features, features)
    return x.mean((1, 2)) @ params(x.shape[-1], 1000)


def wavenet(params: Params, x: jax.Array) -> jax.Array:
    x = _conv(params, x, 64, 1)
    for dilation in (1, 2, 4, 8):
        y = _conv(params, x, 128, 3, 1, dilation)
        x = x + _conv(params, jnp.tanh(y[..., :64]) * jax.nn.sigmoid(y[..., 64:]), 64, 1)
    return _conv(params, jax.nn.relu(x), 32, 1).mean(1)


def unet3d(params: Params, x: jax.Array) -> jax.Array:
    def pair(x: jax.Array, features: int, stride: int) -> jax.Array:
        x = jax.nn.relu(_group_norm(params, _conv(params, x, features, 3, stride)))
        return jax.nn.relu(_group_norm(params, _conv(params, x, features)))

    high = pair(x, 32, 1)
    x = jnp.concatenate([high, _twice_as_large(pair(high, 64, 2))], -1)
    return _conv(params, pair(x, 32, 1), 4, 1).mean((1, 2, 3))


def diffusion(params: Params, x: jax.Array) -> jax.Array:
    def block(x: jax.Array, features: int) -> jax.Array:
        y = _conv(params, jax.nn.silu(_group_norm(params, x)), features)
        y = _conv(params, jax.nn.silu(_group_norm(params, y)), features)
        return y + (x if x.shape == y.shape else _conv(params, x, features, 1))

    high = block(_conv(params, x, 128), 128)
    low = block(_conv(params, high, 128, 3, 2), 256)
    x = block(jnp.concatenate([_twice_as_large(low), high], -1), 128)
    return _conv(params, jax.nn.silu(_group_norm(params, x)), 3).mean((1, 2))


def vgg(params: Params, x: jax.Array) -> jax.Array:
    for features in (64, 128):
        for _ in range(2):
            x = jax.nn.relu(_conv(params, x, features) + params(features))
        x = _pooled(x, 2)
    return x.mean((1, 2)) @ params(x.shape[-1], 10)


def segmenter(params: Params, x: jax.Array, norm: Callable[[Params, jax.Array], jax.Array] = _batch_norm) -> jax.Array:
    features = 64 if x.ndim == 4 else 32

    def up(x: jax.Array, features: int) -> jax.Array:
        space = "DHW"[-(x.ndim - 2) :]
        form = f"N{space}C", f"{space}IO", f"N{space}C"
        kernel = params(*(2,) * (x.ndim - 2), x.shape[-1], features)
        return jax.lax.conv_transpose(x, kernel, (2,) * (x.ndim - 2), "SAME", dimension_numbers=form)

    first = jax.nn.relu(norm(params, _conv(params, x, features)))
    high = jax.nn.relu(norm(params, _conv(params, first, features)))
    down = _conv(params, high, 2 * features, 2, 2)
    middle = jax.nn.relu(norm(params, _conv(params, down, 2 * features)))
    down = _conv(params, middle, 4 * features, 2, 2)
    x = jax.nn.relu(norm(params, _conv(params, down, 4 * features)))
    x = up(up(x, 2 * features) + middle, features) + high
    return _conv(params, x, 2, 1).mean(tuple(range(1, x.ndim - 1)))


def restyler(params: Params, x: jax.Array) -> jax.Array:
    return segmenter(params, x, lambda params, x: _scaled(params, normal(x, tuple(range(1, x.ndim - 1)))))


@dataclass(frozen=True)
class Net:
    """A net, and how many images of which size it is given."""

    model: Callable[[Params, jax.Array], jax.Array]
    size: tuple[int, ...]
    batch: int
    forward: bool = False
    topology: str = "v5e:2x4"

    @property
    def name(self) -> str:
        forward = ", forward" if self.forward else ""
        return f"{self.model.__name__}, {self.batch} of {'x'.join(map(str, self.size))}{forward}, {self.topology}"

    def program(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A step of gradient descent, or what the net says; the shapes of its parameters, and of the images."""
        images = jax.ShapeDtypeStruct((self.batch, *self.size), jnp.float32)
        shapes: list[jax.ShapeDtypeStruct] = []

        def noted(*shape: int) -> jax.Array:
            shapes.append(jax.ShapeDtypeStruct(shape, jnp.float32))
            return jnp.zeros(shape)

        jax.eval_shape(lambda x: self.model(noted, x), images)

        def said(params: list[jax.Array], x: jax.Array) -> jax.Array:
            rest = iter(params)
            return self.model(lambda *_: next(rest), x)

        def step(params: list[jax.Array], x: jax.Array) -> list[jax.Array]:
            gradients = jax.grad(lambda params: (jax.nn.log_softmax(said(params, x)) ** 2).mean())(params)
            return [p - 1e-3 * g for p, g in zip(params, gradients, strict=True)]

        return said if self.forward else step, (shapes, images)


NETS = [
    Net(model, size, batch)
    for model, size, batches in (
        (basic, (32, 32, 3), (1, 4)),
        (wavenet, (2048, 1), (1, 4)),
        (diffusion, (32, 32, 3), (1,)),
        (deeplab, (128, 128, 3), (2,)),
        (convnext, (128, 128, 3), (2,)),
        (resnet, (128, 128, 3), (2,)),
        (unet3d, (32, 32, 32, 1), (2,)),
        (vgg, (64, 64, 3), (2,)),
        (segmenter, (128, 128, 3), (2, 4)),
        (segmenter, (256, 256, 3), (2,)),
        (segmenter, (32, 32, 32, 1), (2,)),
        (restyler, (128, 128, 3), (2,)),
        (restyler, (256, 256, 3), (4,)),
        (resnet, (224, 224, 3), (4,)),
        (resnet18, (160, 160, 3), (2, 5)),
        (mobilenet, (128, 128, 3), (3,)),
        (squeezing, (192, 192, 3), (3,)),
    )
    for batch in batches
]

FORWARD = [
    Net(model, size, batch, forward=True)
    for model, size, batch in (
        (resnet, (224, 224, 3), 2),
        (resnet18, (224, 224, 3), 1),
        (mobilenet, (224, 224, 3), 1),
        (squeezing, (224, 224, 3), 4),
        (vgg, (224, 224, 3), 4),
        (segmenter, (256, 256, 3), 1),
        (deeplab, (512, 512, 3), 1),
    )
]
