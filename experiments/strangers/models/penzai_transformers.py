"""Transformers of penzai: named axes, and parameters taken out of a model and put back, whose rest has constants."""

from __future__ import annotations

import functools
from typing import Any

import jax
import optax

from experiments.strangers.step import KEY, Step, entropy, i32, released, trained_with_state

GEMMA = {
    "num_kv_heads": 1,
    "query_head_multiplier": 8,
    "embedding_dim": 2048,
    "projection_dim": 256,
    "mlp_hidden_dim": 16_384,
    "num_decoder_blocks": 18,
    "vocab_size": 256_128,
    "mlp_variant": "geglu_approx",
    "tie_embedder_and_logits": True,
}
MISTRAL = {
    "num_kv_heads": 8,
    "query_head_multiplier": 4,
    "embedding_dim": 4096,
    "projection_dim": 128,
    "mlp_hidden_dim": 14_336,
    "num_decoder_blocks": 32,
    "vocab_size": 32_000,
    "mlp_variant": "swiglu",
    "tie_embedder_and_logits": False,
    "use_layer_stack": True,
}


def _trained(sizes: dict[str, Any]) -> Step:
    from penzai import pz
    from penzai.models.transformer.variants import llamalike_common as common

    config = common.LlamalikeTransformerConfig(**sizes)

    def init(key: jax.Array) -> Any:
        return pz.unbind_params(common.build_llamalike_transformer(config, key), freeze=True)

    empty, params = jax.eval_shape(init, KEY)

    def loss(params: Any, empty: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        tokens = pz.nx.wrap(batch["tokens"]).tag("batch", "seq")
        logits = pz.bind_variables(empty, params)(tokens).untag("batch", "seq", "vocabulary").unwrap()
        return entropy(logits, batch["targets"]), empty

    batch = {"tokens": i32(8, 1024), "targets": i32(8, 1024)}
    return trained_with_state(loss, params, empty, batch, optax.adamw(1e-4))


released("penzai/gemma", "penzai")(functools.partial(_trained, GEMMA))
released("penzai/mistral-stacked", "penzai")(functools.partial(_trained, MISTRAL))
