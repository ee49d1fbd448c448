"""Applications of keras on jax: a training step by `stateless_call`, weights drawn and not read."""

from __future__ import annotations

import functools
from typing import Any

import jax

from experiments.strangers.step import Step, entropy, f32, i32, released, trained_with_state

NETS = {
    "ResNet50V2": 224,
    "EfficientNetB0": 224,
    "EfficientNetV2S": 224,
    "MobileNetV3Small": 224,
    "ConvNeXtTiny": 224,
    "Xception": 299,
    "DenseNet121": 224,
    "InceptionV3": 299,
    "NASNetMobile": 224,
    "VGG16": 224,
}


def shapes(values: Any) -> Any:
    """Arrays as their shapes."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), values)


def _application(net: str, side: int) -> Step:
    import keras

    model = getattr(keras.applications, net)(weights=None, classifier_activation=None)
    return of_keras(model, {"images": f32(32, side, side, 3), "labels": i32(32)})


def of_keras(model: Any, batch: dict[str, Any]) -> Step:
    """A training step of a keras model that classifies images."""
    params = [shapes(v.value) for v in model.trainable_variables]
    state = [shapes(v.value) for v in model.non_trainable_variables]

    def loss(params: Any, state: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        logits, state = model.stateless_call(params, state, batch["images"], training=True)
        return entropy(logits, batch["labels"]), state

    return trained_with_state(loss, params, state, batch)


for _net, _side in NETS.items():
    released(f"keras/{_net}", "keras")(functools.partial(_application, _net, _side))
