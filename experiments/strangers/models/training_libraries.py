"""Steps of libraries that train language models on many devices: layers, configurations and kernels as they are."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.strangers.step import KEY, Step, entropy, i32, released, trained, trained_with_state

BATCH, LENGTH = 8, 512


def bf16(*shape: int) -> jax.ShapeDtypeStruct:
    """An abstract array of activations."""
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def _tunix(module: str, model: str, size: str) -> Step:
    """A step of AdamW of one of tunix's nnx models, packed sequences with positions."""
    from flax import nnx

    family = importlib.import_module(f"tunix.models.{module}.model")
    config = getattr(family.ModelConfig, size)()
    abstract = nnx.eval_shape(lambda: getattr(family, model)(config, rngs=nnx.Rngs(0)))
    graph, params, rest = nnx.split(abstract, nnx.Param, ...)

    def loss(params: Any, rest: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        causal = jnp.tril(jnp.ones((1, LENGTH, LENGTH), bool))
        logits, _ = nnx.merge(graph, params, rest)(batch["tokens"], batch["positions"], None, causal)
        return entropy(logits, batch["targets"]), rest

    batch = {name: i32(BATCH, LENGTH) for name in ("tokens", "positions", "targets")}
    return trained_with_state(loss, params, rest, batch, optax.adamw(1e-4))


released("tunix/qwen3-0.6b", "tunix flax")(functools.partial(_tunix, "qwen3", "Qwen3", "qwen3_0p6b"))
released("tunix/llama3-1b", "tunix flax")(functools.partial(_tunix, "llama3", "Llama3", "llama3p2_1b"))


def _levanter(module: str, config: str, **sizes: Any) -> Step:
    """A step of AdamW of one of levanter's models: named axes, layers stacked and recomputed, its own fused loss."""
    import equinox as eqx
    import haliax as hax

    family = importlib.import_module(f"levanter.models.{module}")
    lm = importlib.import_module("levanter.models.lm_model")
    made = getattr(family, config)(max_seq_len=LENGTH, **sizes)
    vocab = hax.Axis("vocab", 32_000)
    model = eqx.filter_eval_shape(made.model_type.init, vocab, made, key=KEY)
    params, rest = eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        tokens = hax.named(batch["tokens"], (hax.Axis("batch", BATCH), made.max_Pos))
        example = hax.vmap(lm.LmExample.causal, "batch")(tokens)
        return eqx.combine(params, rest).compute_next_token_loss(example, key=key).scalar()

    return trained(loss, params, {"tokens": i32(BATCH, LENGTH)})


released("levanter/llama", "levanter haliax")(
    functools.partial(
        _levanter,
        "llama",
        "LlamaConfig",
        hidden_dim=2048,
        intermediate_dim=5504,
        num_layers=16,
        num_heads=16,
        num_kv_heads=8,
    )
)
released("levanter/gpt2", "levanter haliax")(
    functools.partial(_levanter, "gpt2", "Gpt2Config", hidden_dim=768, num_layers=12, num_heads=12)
)


def _maxtext(model: str, **options: Any) -> Step:
    """A step of AdamW around MaxText's transformer, with its logical constraints, over a mesh of one device."""
    import maxtext
    import tokamax  # noqa: F401 (it defines the flag)
    from absl import flags
    from flax import linen as nn
    from maxtext.configs import pyconfig
    from maxtext.models.models import transformer_as_linen
    from maxtext.utils.maxtext_utils import get_mesh_from_config

    file = f"{maxtext.__path__[0]}/configs/base.yml"
    given = {"model_name": model, "per_device_batch_size": BATCH, "max_target_length": LENGTH, "run_name": "step"}
    more = {
        "enable_checkpointing": False,
        "skip_jax_distributed_system": True,
        "hardware": "cpu",
        "attention": "dot_product",
    }
    flags.FLAGS(["step", "--tokamax_cross_compile"], known_only=True)  # its kernels, where no TPU is there
    config = pyconfig.initialize(["train", file], **given, **more | options)
    mesh = get_mesh_from_config(config, jax.devices()[:1])
    module = transformer_as_linen(config, mesh, None)

    def init(key: jax.Array) -> Any:
        zeros = np.zeros((BATCH, LENGTH), np.int32)
        return module.init({"params": key, "dropout": key, "aqt": key}, zeros, zeros, enable_dropout=False)

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        with mesh, nn.logical_axis_rules(config.logical_axis_rules):
            logits = module.apply(params, batch["tokens"], batch["positions"], enable_dropout=False)
        return entropy(logits.astype(jnp.float32), batch["targets"])

    with mesh, nn.logical_axis_rules(config.logical_axis_rules):
        params = nn.unbox(jax.eval_shape(init, KEY))
    return trained(loss, params, {name: i32(BATCH, LENGTH) for name in ("tokens", "positions", "targets")})


released("maxtext/llama2-7b", "maxtext")(functools.partial(_maxtext, "llama2-7b"))
released("maxtext/llama2-7b-flash", "maxtext")(
    functools.partial(_maxtext, "llama2-7b", attention="flash", hardware="tpu")
)
released("maxtext/mixtral-8x7b-megablox", "maxtext")(
    functools.partial(_maxtext, "mixtral-8x7b", attention="flash", hardware="tpu", megablox=True, sparse_matmul=True)
)
released("maxtext/gemma2-2b", "maxtext")(functools.partial(_maxtext, "gemma2-2b"))
released("maxtext/mixtral-8x7b", "maxtext")(
    functools.partial(_maxtext, "mixtral-8x7b", megablox=False, sparse_matmul=False, capacity_factor=1.25)
)


def _tokamax(loss: Callable[[Any, Any, Any], jax.Array], params: dict[str, Any], x: Any) -> Step:
    """A step of AdamW around one of tokamax's ops, in its form for any device."""

    def of_batch(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        import tokamax

        return loss(tokamax, params, batch["x"])

    return trained(of_batch, params, {"x": x})


def _attention(tokamax: Any, p: Any, x: jax.Array) -> jax.Array:
    normed = tokamax.layer_norm(x, p["scale"], None)
    q, k, v = (jnp.einsum("btd,dhe->bthe", normed, p[name]) for name in "qkv")
    mixed = tokamax.dot_product_attention(q, k, v, is_causal=True, implementation="xla")
    return jnp.square(jnp.einsum("bthe,hed->btd", mixed, p["o"]).astype(jnp.float32)).mean()


def _gated(tokamax: Any, p: Any, x: jax.Array) -> jax.Array:
    hidden = tokamax.gated_linear_unit(x, p["up"], activation=jax.nn.silu, implementation="xla")
    return jnp.square((hidden @ p["down"]).astype(jnp.float32)).mean()


def _ragged(tokamax: Any, p: Any, x: jax.Array) -> jax.Array:
    rows = x.reshape(-1, x.shape[-1])
    expert = jnp.argmax(rows @ p["router"], -1)
    order = jnp.argsort(expert)
    sizes = jnp.bincount(expert, length=p["up"].shape[0]).astype(jnp.int32)
    return jnp.square(tokamax.ragged_dot(rows[order], p["up"], sizes, implementation="xla").astype(jnp.float32)).mean()


HEADS = {
    "scale": bf16(1024),
    "q": bf16(1024, 16, 64),
    "k": bf16(1024, 4, 64),
    "v": bf16(1024, 4, 64),
    "o": bf16(16, 64, 1024),
}
released("tokamax/attention", "tokamax")(functools.partial(_tokamax, _attention, HEADS, bf16(BATCH, LENGTH, 1024)))
released("tokamax/gated", "tokamax")(
    functools.partial(
        _tokamax, _gated, {"up": bf16(1024, 2, 4096), "down": bf16(4096, 1024)}, bf16(BATCH, LENGTH, 1024)
    )
)
released("tokamax/ragged", "tokamax")(
    functools.partial(
        _tokamax, _ragged, {"router": bf16(1024, 16), "up": bf16(16, 1024, 2048)}, bf16(BATCH, LENGTH, 1024)
    )
)


def _splash(tokamax: Any, p: Any, x: jax.Array) -> jax.Array:
    """Splash attention in Pallas."""
    kernels, masks = (
        importlib.import_module(f"tokamax._src.ops.experimental.tpu.splash_attention.splash_attention_{name}")
        for name in ("kernel", "mask")
    )
    q, k, v = (jnp.einsum("btd,dhe->bhte", x, p[name]) for name in "qkv")
    made = kernels.make_splash_mha(
        masks.CausalMask((LENGTH, LENGTH)), config=kernels.SplashConfig.get_default(), q_seq_shards=1
    )
    return jnp.square(jnp.einsum("bhte,hed->btd", jax.vmap(made)(q, k, v), p["o"]).astype(jnp.float32)).mean()


WIDE = {"q": bf16(1024, 8, 128), "k": bf16(1024, 4, 128), "v": bf16(1024, 4, 128), "o": bf16(8, 128, 1024)}
released("tokamax/splash", "tokamax")(functools.partial(_tokamax, _splash, WIDE, bf16(BATCH, LENGTH, 1024)))


@released("recurrentgemma/2b-pallas", "recurrentgemma")
def _recurrentgemma() -> Step:
    """A step of AdamW around Griffin, whose recurrence is a Pallas kernel."""
    common, griffin = (importlib.import_module(f"recurrentgemma.{name}") for name in ("common", "jax.griffin"))
    preset = common.GriffinConfig.from_preset(common.Preset.RECURRENT_GEMMA_2B_V1)
    config = preset._replace(scan_type=common.ScanType.LINEAR_PALLAS)
    module = griffin.Griffin(config, dtype=jnp.bfloat16)

    def init(key: jax.Array) -> Any:
        zeros = jnp.zeros((BATCH, LENGTH), jnp.int32)
        return module.init(key, zeros, zeros)

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        logits, _ = module.apply(params, batch["tokens"], batch["positions"])
        return entropy(logits.astype(jnp.float32), batch["targets"])

    params = jax.eval_shape(init, KEY)
    return trained(loss, params, {name: i32(BATCH, LENGTH) for name in ("tokens", "positions", "targets")})
