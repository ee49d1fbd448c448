"""Runs on GPUs that others have published, nodes of eight.

JAX-Toolbox     NVIDIA, READMEs of rosetta: MaxText on one node of H100; Pax with Transformer Engine in bf16
fms-fsdp        foundation-model-stack, README: PyTorch FSDP; 400 Gb/s to a node of A100, 800 Gb/s to a node of H100
dgxc            NVIDIA/dgxc-benchmarking: maxtext/README_70b.md (25.01; kept names in its configure.sh) and
                nemotron/README.md (Megatron, sequence parallelism, distributed optimizer, virtual stages)
torchtitan      pytorch/torchtitan: benchmarks/llama3_h100_202412_torchtitan.md, asyncTP_llama3_h100_2025-06 (without
                asynchronous tensor parallelism) and llama3-8b_h200_202506; its H100 are limited to 500 W and have
                memory of 2.4 TB/s; docs/performance.md of 2024 for 64 A100
llm-foundry     mosaicml/llm-foundry, scripts/train/benchmarking/README.md: MPT by PyTorch FSDP
Megatron-Bridge NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md, 25.11
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.published_runs.decoder import Config
from experiments.published_runs.run import L8, L70, PRODUCTS, Run

L7: dict[str, Any] = dict(emb=4096, heads=32, kv=32, mlp=11008, layers=32, vocab=32000, tokens=4096, one_hot=False)
L13: dict[str, Any] = L7 | dict(emb=5120, heads=40, kv=40, mlp=13824, layers=40)
LLAMA2: dict[str, Any] = L70 | dict(vocab=32000, tokens=4096, one_hot=False)
LLAMA3: dict[str, Any] = dict(vocab=128256, tokens=8192, one_hot=False)
GPT: dict[str, Any] = dict(vocab=50304, tokens=2048, one_hot=False, gated=False)
MPT7: dict[str, Any] = GPT | dict(emb=4096, heads=32, kv=32, mlp=16384, layers=32)
MPT13: dict[str, Any] = GPT | dict(emb=5120, heads=40, kv=40, mlp=20480, layers=40)
MPT30: dict[str, Any] = GPT | dict(emb=7168, heads=64, kv=64, width=112, mlp=28672, layers=48)
NEMOTRON: dict[str, Any] = dict(vocab=256000, tokens=4096, one_hot=False, gated=False, kv=8, weights="bfloat16")
N15: dict[str, Any] = NEMOTRON | dict(emb=6144, heads=48, mlp=24576, layers=32)
N340: dict[str, Any] = NEMOTRON | dict(emb=18432, heads=96, width=192, mlp=73728, layers=96)

EVERY_SECOND = ("query_proj", "value_proj", "mlpwi0", "mlpwo", "context")
"""What torchtitan keeps by its option "op": attention, and every second product."""

A100, H100, H200, B200, GB200 = "a100_80gb", "h100", "h200", "b200", "gb200"
FP8 = "float8_e4m3fn"
WATTS = "GPUs limited to 500 W, memory of 2.4 TB/s"


def _nodes(count: int) -> dict[str, int]:
    return {"node": count, "gpu": 8}


def _run(name: str, source: str, device: str, mesh: dict[str, int], published: float, batch: int, of: dict[str, Any],
         sharded: tuple[str, ...] | None = None, **how: Any) -> Run:  # fmt: skip
    """By default parts are stored over all axes of the batch, and gathered a layer ahead, as XLA's flags or FSDP do."""
    settings = {key: how.pop(key) for key in ("kept", "products", "weights") if key in how}
    sharded = sharded or tuple(axis for axis in mesh if axis not in ("tensor", "pipe"))
    how = {"pipelined": True} | how
    return Run(name, source, device, mesh, sharded, published, Config(batch=batch, **of, **settings), **how)


def runs() -> Iterator[Run]:
    """All of them."""
    yield from _first()
    yield from _maxtext()
    yield from _megatron()
    yield from _torchtitan()
    yield from _mpt()


def _first() -> Iterator[Run]:
    """Those by which the latency between nodes was found to be too long."""
    kept = (*PRODUCTS, "context")
    yield _run("Llama-2-7B, 8 H100", "JAX-Toolbox", H100, {"gpu": 8}, 4096 * 22.19 / 8, 16, L7, kept=kept)
    for name, rate, batch, sizes in (
        ("GPT-5B", 598.83, 2048, dict(emb=4096, heads=32, kv=32, mlp=16384, layers=24)),
        ("GPT-175B", 19.62, 1536, dict(emb=12288, heads=96, kv=96, mlp=49152, layers=96)),
    ):
        published = 2048 * rate / 256
        yield _run(f"{name}, 256 A100", "JAX-Toolbox", A100, _nodes(32), published, batch, GPT | sizes)
    for device, short, few, small, large in ((A100, "A100", 16, 4550, 410), (H100, "H100", 12, 9600, 890)):
        name = f"Llama-2-7B, {8 * few} {short}"
        yield _run(name, "fms-fsdp", device, _nodes(few), small, 16 * few, L7, ("gpu",), kept=None)
        note = "" if few == 16 else "published of 96 GPUs, which do not divide 8,192 rows of weights; estimated for 128"
        yield _run(f"Llama-2-70B, 128 {short}", "fms-fsdp", device, _nodes(16), large, 256, LLAMA2, note=note)


def _maxtext() -> Iterator[Run]:
    kept = ("query_proj", "key_proj", "value_proj")
    yield _run("Llama-2-70B, 64 H100", "dgxc", H100, _nodes(8), 74908.99 / 64, 128, LLAMA2, kept=kept)
    mesh = {"replica": 4, "node": 16, "gpu": 8}
    yield _run(
        "Llama-2-70B, 512 H100", "dgxc", H100, mesh, 591496.83 / 512, 1024, LLAMA2, ("node", "gpu"), kept=kept
    )  # fmt: skip


def _megatron() -> Iterator[Run]:
    """Parameters whole over the batch's axes, state of the optimizer in parts."""
    how: dict[str, Any] = dict(stored="opt_state", stream=1, kept=None)
    yield _run(
        "Nemotron-15B, 16 H100", "dgxc", H100, {"data": 8, "tensor": 2}, 95463 / 16, 64, N15, microbatches=4, **how
    )  # fmt: skip
    for name, device, pipe, batch, rate, many in (
        ("Nemotron-340B, 256 H100", H100, 8, 64, 56913 / 256, 16),
        ("Nemotron-340B, 128 GB200", GB200, 4, 32, 59877 / 128, 8),
    ):
        mesh = {"pipe": pipe, "data": 4, "tensor": 8}
        yield _run(name, "dgxc", device, mesh, rate, batch, N340, microbatches=many, repeats=12, **how)
    for device, short, rate in ((B200, "B200", 30624), (GB200, "GB200", 31508)):
        yield _run(
            f"Llama-3-8B fp8, 8 {short}", "Megatron-Bridge", device, {"data": 8}, rate, 128, L8 | LLAMA3,
            microbatches=8, products=FP8, weights="bfloat16", stored="opt_state", kept=None,
        )  # fmt: skip


def _torchtitan() -> Iterator[Run]:
    def run(
        name: str, device: str, mesh: dict[str, int], rate: float, batch: int, of: dict[str, Any], **how: Any
    ) -> Run:
        return _run(name, "torchtitan", device, mesh, rate, batch, of, **how)

    half: dict[str, Any] = dict(kept=EVERY_SECOND)
    on_h100: dict[str, Any] = dict(note=WATTS)
    eight, seventy, tensor = L8 | LLAMA3, L70 | LLAMA3, dict(stream=1)
    yield run("Llama-3.1-8B, 8 H100", H100, {"gpu": 8}, 6667, 16, eight, **half, **on_h100)
    yield run("Llama-3.1-8B, 128 H100", H100, _nodes(16), 6514, 256, eight, **half, **on_h100)
    mesh = {"node": 8, "tensor": 8}
    yield run("Llama-3.1-8B, 64 H100", H100, mesh, 4378, 96, eight, **half, **tensor, **on_h100)
    mesh = {"node": 32, "tensor": 8}
    yield run("Llama-3.1-70B, 256 H100", H100, mesh, 597.3, 512, seventy, **tensor, **on_h100)
    yield run("Llama-3.1-8B fp8, 32 H200", H200, _nodes(4), 10938, 64, eight, **half, products=FP8)
    yield run("Llama-3-8B, 64 A100", A100, _nodes(8), 2973, 64, eight, **half)
    yield run("Llama-3-70B, 64 A100", A100, _nodes(8), 331, 64, seventy)
    yield run("Llama-2-13B, 64 A100", A100, _nodes(8), 2162, 128, L13, kept=None)


def _mpt() -> Iterator[Run]:
    source = "llm-foundry"
    yield _run("MPT-7B, 8 H100", source, H100, {"gpu": 8}, 10643, 48, MPT7, kept=None)
    yield _run("MPT-13B, 64 H100", source, H100, _nodes(8), 4800, 128, MPT13, kept=None)
    yield _run("MPT-7B, 8 A100", source, A100, {"gpu": 8}, 4641, 96, MPT7, kept=None, microbatches=2)
    yield _run("MPT-30B, 8 A100", source, A100, {"gpu": 8}, 916, 504, MPT30, microbatches=21)
