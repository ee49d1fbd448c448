"""Flax models of transformers 4: training steps at the sizes that their configurations have by default.

language   tokens -> logits of tokens; encoders, decoders, and both
vision     images -> logits of classes
sound      waves or spectra -> logits of tokens
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from experiments.strangers.step import KEY, Step, entropy, f32, i32, released, trained, trained_with_state

BATCH, LENGTH = 8, 512

MASKED = {
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "roberta-prelayernorm": "RobertaPreLayerNormForMaskedLM",
    "xlm-roberta": "XLMRobertaForMaskedLM",
    "albert": "AlbertForMaskedLM",
    "electra": "ElectraForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
    "big-bird": "BigBirdForMaskedLM",
    "roformer": "RoFormerForMaskedLM",
}
CAUSAL = {
    "gpt2": "GPT2LMHeadModel",
    "gpt-neo": "GPTNeoForCausalLM",
    "gptj": "GPTJForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "gemma": "GemmaForCausalLM",
    "opt": "OPTForCausalLM",
    "bloom": "BloomForCausalLM",
    "xglm": "XGLMForCausalLM",
}
BOTH = {
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "pegasus": "PegasusForConditionalGeneration",
    "marian": "MarianMTModel",
    "blenderbot": "BlenderbotForConditionalGeneration",
    "blenderbot-small": "BlenderbotSmallForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "longt5": "LongT5ForConditionalGeneration",
}
IMAGES = {
    "vit": "ViTForImageClassification",
    "beit": "BeitForImageClassification",
    "dinov2": "Dinov2ForImageClassification",
}
CONVOLUTIONS = {"resnet": "ResNetForImageClassification", "regnet": "RegNetForImageClassification"}
SIZES: dict[str, dict[str, Any]] = {
    "bloom": {"hidden_size": 1024, "n_layer": 24, "n_head": 16},
    "distilbert": {"max_position_embeddings": LENGTH},
    "roberta": {"max_position_embeddings": LENGTH + 2},
    "roberta-prelayernorm": {"max_position_embeddings": LENGTH + 2},
    "xlm-roberta": {"max_position_embeddings": LENGTH + 2},
    "longt5": {"encoder_attention_type": "transient-global", "num_layers": 12, "num_decoder_layers": 12},
    "big-bird": {"attention_type": "block_sparse"},
    "wav2vec2": {"do_stable_layer_norm": True, "feat_extract_norm": "layer"},
    "vit": {"num_labels": 1000},
    "beit": {"num_labels": 1000},
    "dinov2": {"num_labels": 1000},
    "resnet": {"num_labels": 1000},
    "regnet": {"num_labels": 1000},
}
"""What a configuration says by default is the base size, except of bloom. Flax has wav2vec2 with layer norms alone."""


def model_of(name: str, suffix: str, **more: Any) -> Any:
    """A model without arrays: parameters are its `params_shape_tree`."""
    import transformers

    flax_class = getattr(transformers, f"Flax{suffix}")
    _with_old_names(sys.modules[flax_class.__module__])
    return flax_class(flax_class.config_class(**SIZES.get(name, {}), **more), _do_init=False)


def _with_old_names(module: Any) -> None:
    """`jnp.clip` with the names that it had when transformers 4 was written."""

    class OldNumpy:
        def __getattr__(self, name: str) -> Any:
            return getattr(jnp, name)

        @staticmethod
        def clip(x: Any, a_min: Any = None, a_max: Any = None) -> jax.Array:
            return jnp.clip(x, a_min, a_max)

    module.jnp = OldNumpy()


def joined(name: str, encoder: Any, decoder: Any) -> tuple[Any, Any]:
    """Two models as one, which transformers makes with numbers alone: here it makes them while jax traces."""
    import transformers

    config = getattr(transformers, f"{name}Config").from_encoder_decoder_configs(encoder, decoder)
    made = list[Any]()

    def init() -> Any:
        made.append(getattr(transformers, f"Flax{name}Model")(config))
        return made[0].params

    params = jax.eval_shape(init)
    return made[0], params


def of_logits(model: Any, inputs: Mapping[str, Any], params: Any = None, drawn: tuple[str, ...] = ()) -> Step:
    """A step of a model by the cross-entropy of its logits. `drawn` are keys that it takes beside dropout's."""
    params = model.params_shape_tree if params is None else params

    def logits(params: Any, inputs: Mapping[str, Any], key: jax.Array) -> jax.Array:
        keys = dict.fromkeys(drawn, key)
        return model(**inputs, **keys, params=params, dropout_rng=key, train=True).logits

    labels = i32(*jax.eval_shape(logits, params, inputs, KEY).shape[:-1])

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        return entropy(logits(params, batch["inputs"], key), batch["labels"])

    return trained(loss, params, {"inputs": dict(inputs), "labels": labels})


def text(length: int) -> dict[str, Any]:
    """A batch of tokens."""
    return {"input_ids": i32(BATCH, length), "attention_mask": i32(BATCH, length)}


def one_stack(name: str, suffix: str) -> Step:
    """Encoders by masked tokens, decoders by the next token."""
    if name == "big-bird":  # blocks of 64 tokens, of which some are drawn
        return of_logits(model_of(name, suffix), text(1024), drawn=("indices_rng",))
    return of_logits(model_of(name, suffix), text(LENGTH))


def two_stacks(name: str, suffix: str) -> Step:
    """Encoder and decoder; blenderbot's has 128 positions."""
    length = 128 if name == "blenderbot" else LENGTH
    return of_logits(model_of(name, suffix), text(length) | {"decoder_input_ids": i32(BATCH, length)})


def classifier(name: str, suffix: str) -> Step:
    """A vision transformer."""
    model = model_of(name, suffix)
    return of_logits(model, {"pixel_values": f32(32, 3, model.config.image_size, model.config.image_size)})


def convolutional(name: str, suffix: str) -> Step:
    """A convolutional classifier with running means."""
    model = model_of(name, suffix)
    variables = model.params_shape_tree

    def loss(params: Any, state: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        given = {"params": params, "batch_stats": state}
        outputs, written = model(batch["images"], params=given, train=True)
        return entropy(outputs.logits, batch["labels"]), written["batch_stats"]

    batch = {"images": f32(64, 3, 224, 224), "labels": i32(64)}
    return trained_with_state(loss, variables["params"], variables["batch_stats"], batch)


def _add(names: Mapping[str, str], build: Callable[[str, str], Step]) -> None:
    for name, suffix in names.items():
        released(f"transformers/{name}", "transformers flax")(functools.partial(build, name, suffix))


_add(MASKED, one_stack)
_add(CAUSAL, one_stack)
_add(BOTH, two_stacks)
_add(IMAGES, classifier)
_add(CONVOLUTIONS, convolutional)


@released("transformers/clip", "transformers flax")
def clip() -> Step:
    """Images and texts in one batch, each against all others."""
    model = model_of("clip", "CLIPModel")

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        out = model(
            batch["tokens"],
            batch["images"],
            position_ids=batch["positions"],
            params=params,
            dropout_rng=key,
            train=True,
        )
        places = jnp.arange(out.logits_per_text.shape[0])
        return entropy(out.logits_per_text, places) + entropy(out.logits_per_image, places)

    tokens = i32(64, 77)
    return trained(
        loss, model.params_shape_tree, {"images": f32(64, 3, 224, 224), "tokens": tokens, "positions": tokens}
    )


@released("transformers/whisper", "transformers flax")
def whisper() -> Step:
    """Thirty seconds of sound to tokens."""
    model = model_of("whisper", "WhisperForConditionalGeneration")
    return of_logits(model, {"input_features": f32(BATCH, 80, 3000), "decoder_input_ids": i32(BATCH, 256)})


@released("transformers/wav2vec2-ctc", "transformers flax")
def wav2vec2() -> Step:
    """A second of sound to letters, by connectionist temporal classification."""
    import optax

    model = model_of("wav2vec2", "Wav2Vec2ForCTC")

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        logits = model(batch["waves"], params=params, dropout_rng=key, train=True).logits
        nothing = jnp.zeros(logits.shape[:2])
        return optax.ctc_loss(logits, nothing, batch["labels"], jnp.zeros(batch["labels"].shape)).mean()

    return trained(loss, model.params_shape_tree, {"waves": f32(BATCH, 64_000), "labels": i32(BATCH, 40)})


@released("transformers/wav2vec2-pretraining", "transformers flax")
def wav2vec2_pretraining() -> Step:
    """Masked spans of sound against codes of a Gumbel quantiser."""
    model = model_of("wav2vec2", "Wav2Vec2ForPreTraining")

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        dropped, drawn = jax.random.split(key)
        out = model(
            batch["waves"],
            mask_time_indices=batch["masked"],
            gumbel_temperature=2,
            params=params,
            dropout_rng=dropped,
            gumbel_rng=drawn,
            train=True,
        )
        predicted, codes = out.projected_states, out.projected_quantized_states
        likeness = jnp.einsum("btd,bsd->bts", predicted, codes)
        return entropy(likeness, jnp.arange(likeness.shape[-1])[None]) - 0.1 * out.codevector_perplexity

    frames = int(model._get_feat_extract_output_lengths(64_000))
    return trained(
        loss,
        model.params_shape_tree,
        {"waves": f32(BATCH, 64_000), "masked": jax.ShapeDtypeStruct((BATCH, frames), jnp.bool_)},
    )


@released("transformers/vit-gpt2", "transformers flax")
def captions() -> Step:
    """VisionEncoderDecoder: a ViT that a GPT-2 attends to."""
    import transformers as t

    model, params = joined("VisionEncoderDecoder", t.ViTConfig(), t.GPT2Config())
    inputs = {"pixel_values": f32(BATCH, 3, 224, 224), "decoder_input_ids": i32(BATCH, 128)}
    return of_logits(model, inputs, params)


@released("transformers/wav2vec2-bart", "transformers flax")
def speech_to_text() -> Step:
    """SpeechEncoderDecoder: a wav2vec2 that BART's decoder attends to."""
    import transformers as t

    bart = t.BartConfig(is_encoder_decoder=False)
    model, params = joined("SpeechEncoderDecoder", t.Wav2Vec2Config(**SIZES["wav2vec2"]), bart)
    return of_logits(model, {"inputs": f32(BATCH, 64_000), "decoder_input_ids": i32(BATCH, 128)}, params)


@released("transformers/bert-gpt2", "transformers flax")
def two_released_stacks() -> Step:
    """EncoderDecoder: a BERT that a GPT-2 attends to."""
    import transformers as t

    model, params = joined("EncoderDecoder", t.BertConfig(), t.GPT2Config())
    return of_logits(model, text(LENGTH) | {"decoder_input_ids": i32(BATCH, LENGTH)}, params)


def _generates(name: str, suffix: str, **options: Any) -> Step:
    """`generate`: a loop of tokens with its cache."""
    model = model_of(name, suffix)
    params = model.params_shape_tree
    ends = {"max_length": 128, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}

    def generate(params: Any, tokens: jax.Array, mask: jax.Array, key: jax.Array) -> Any:
        return model.generate(tokens, attention_mask=mask, params=params, prng_key=key, **ends, **options).sequences

    return Step(generate, (params, i32(BATCH, 64), i32(BATCH, 64), KEY), (), {"tokens": 0, "mask": 0})


GENERATED: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2-samples": ("GPT2LMHeadModel", {"do_sample": True, "top_k": 50, "top_p": 0.95}),
    "t5-greedy": ("T5ForConditionalGeneration", {"do_sample": False}),
    "bart-beams": ("BartForConditionalGeneration", {"num_beams": 4}),
}

for _name, (_suffix, _options) in GENERATED.items():
    _build = functools.partial(_generates, _name.split("-")[0], _suffix, **_options)
    released(f"transformers/{_name}", "transformers flax")(_build)
