"""TPU v2 to v7: entries per JAX device, a core where a chip has two.

Sources, and what each is trusted for:

    [G]  docs.cloud.google.com/tpu/docs/{v3,v4,v5e,v5p,v6e,tpu7x}: flop, HBM, pods, ICI per chip
    [S]  jax-ml scaling-book, tpus.md: one-way ICI per link (0.9 of nominal), 1 us per hop, DCN per chip
    [P]  PartIR paper, A.2: v2 and v3
    [L]  libtpu 0.0.51, `estimated_cycles` of compiled programs at the clock named in the entry, by
         `python -m experiments.simulator_accuracy.tpu_constants`: HBM and matmul efficiency, vector rate
    [M]  from memory, not verified

All-reduces are combined up to 120 MiB, and from v4 on VMEM of 128 MiB holds what was just written (v4 counts CMEM):
seen in programs compiled by [L]. In those for v3 no array stays on the chip between kernels. There a kernel that only
sums an array takes as long as one that also writes it: half the rate for one stream. v2 is taken to be alike.
Collectives are asynchronous on v5e, not on v2 and v3 [L].
Of two products [320, 320], reduced and scattered over 4 devices, v5e and v6e run two reduce_scatters, v5p one;
all_reduces with slices are run as one on all three [L].

The units work in turn, by kernels of six programs for v3: a matmul of 0.87 ms that also makes 0.33 ms of GELU of its
result takes 1.27 ms [L]. Most matmuls take longer than that sum, by 0.1 to 0.4 of their HBM time: `unhidden_share` is
0.1, the low end, chosen by the totals of those programs. On v5e the vector unit works beside the matrix unit, before a
product as after it [L]: of BERT in bf16, [4096, 768] . [768, 3072] takes 153,600 cycles of the matrix unit, and 159,664
with 92,000 of a GELU's gradient after it; the logits' gradient, 305,000 before 1,526,000, takes 1,543,000 in all. A v4
makes a GELU after such a product in turn [L].

A place of a window that each feature has for itself takes 2 cycles for 8 x 128 elements on v3 as on v5e [L]: there it
is half a tile of the matrix unit.

A copy into another layout takes as long in bf16 as in f32: both ways through HBM where rows of tiles change alone, and
`turned_per_s` elements where another dim comes along the lanes, v2 as v3, by transposes of 64 M elements [L].

The vector unit is fed at HBM's rate, and a kernel without an f32 result takes as long as if it wrote one, on v3 and
v5e [L]; the others are taken to be alike.

A dimension closes to a ring on 16 (v5e, v6e) or every multiple of 4 (v4, v5p, v7) [G]; on v2 and v3 only where it
spans the pod [M]. Two cores of a chip reach each other at half their HBM bandwidth: an assumption, no figure is
published, except v7 whose die-to-die link is six ICI links [M].
"""

from __future__ import annotations

from dataclasses import replace

from autopart.costmodel.hardware.devices import XLA_TPU, Device, register_device
from autopart.costmodel.hardware.fabric import Network, Switch, Torus

GIB, MIB = 2**30, 2**20
HOP_S = 1e-6
"""ICI latency per hop [S]."""

DCN_LATENCY_S = 50e-6
"""A message between slices: as XLA's round trip between GPU nodes (46.67 and 68.89 us); no figure for TPUs."""

TPU_TILE = (32, 128, 128)
"""Rows of the left operand that pass while a tile of the right one, 128 x 128, is brought into the matrix unit [L].

A v5e takes 8.5 cycles for a tile and 8, 16 or 32 rows, 14 for 48 and 18 for 64: loops of products [rows, 2048] .
[2048, 2048] from the chip, without 2,200 cycles for each."""

TOKAMAX = (
    ": medians of flash attention in tokamax 0.0.17 (Apache-2.0), forward in bf16, of 4096 tokens and more, by seconds "
    "in tokamax/data/autotuning; flop are those of blocks that a causal mask leaves, with tiles filled"
)
"""Where rates of kernels come from."""

EARLY_TPU_TILE = (128, 128, 128)
"""Of v2, v3 and v4: convolutions of 128 images into 64 or 80 features take as long as into 128 [L]."""

SPREAD_CYCLES = 8.3 / 8
"""To put a number along a row of lanes: 8.3 cycles for 8 of them on v3, v4, v5e and v6e, half that on a v5p [L].

`(x - m) r + b`, each row with its own m, r and b, takes 167,483 cycles for 50,176 rows of 128 on a v5e, where 1.3 times
the bytes of HBM and the vector operations alone take 118,000; 8192 rows of 768 take 120,716."""

ALONE_TILE = 8 * 128
"""Numbers that are added to a sum at once, or compared. If its kernel computes nothing else, a reduction takes besides
its bytes, for so many, 0.9 cycles on v2, 1.2 on v3, 3.6 on v4, 7.0 on v5p, 12.2 on v5e, 10.4 on v6e [L], along either
dim; as long in bf16, but 12.2 on v6e; v7 is taken to be as v6e. So does an elementwise op, within 5 %, but 14.4 on v6e.
The maximum of 4096 x 1024 numbers takes 126,368 cycles on a v5e, the maximum of twice the numbers 76,516."""

_ICI = "ICI per link, 1 us per hop, DCN [S]; rings [G]"
_FITS = "vector rate, HBM and matmul efficiency [L]"

BASE_TPU = Device(
    "a TPU",
    peak_flop_per_s={"bf16": 1.0},
    hbm_bytes=1.0,
    hbm_bytes_per_s=1.0,
    matmul_tile=TPU_TILE,
    layout_tile=(8, 128),
    on_chip_bytes=128 * MIB,
    assigns_on_chip=True,
    compiler="xla_tpu",
    around_matmul=XLA_TPU,
    strided_collectives=True,
    units_in_turn=True,
    unhidden_share=0.1,
    fed_at_hbm_rate=True,
    combine_bytes=120 * MIB,
    source="what the entries below share [L]; each has rates and sizes of its own",
)
"""What all TPUs have alike, but for what an entry says."""

register_device(
    replace(
        BASE_TPU,
        name="tpu_v2",
        peak_flop_per_s={"bf16": 22.8e12, "f32": 22.8e12},
        hbm_bytes=8 * GIB,
        hbm_bytes_per_s=350e9,
        fast=Torus(pod=(16, 16), bytes_per_s=62e9, hop_s=HOP_S, wrap_multiple=16),
        network=Network(3.125e9, DCN_LATENCY_S),
        cores=2,
        chip=Switch(2, 175e9, 1e-6),
        vector_flop_per_s=1.43e12,
        spreads_per_s=0.70e9 / SPREAD_CYCLES,
        alone_per_s=0.70e9 * ALONE_TILE / 0.9,
        hbm_efficiency=0.89,
        stream_share=0.5,
        matmul_efficiency={"": 0.98},
        matmul_tile=EARLY_TPU_TILE,
        turned_per_s=44e9,
        on_chip_bytes=0.0,
        columns_together=False,
        assigns_on_chip=False,
        source={
            "peak_flop_per_s": "45 TFLOP/s a chip [P], 22.8 a core [L]; f32 runs as one bf16 pass",
            "hbm_bytes": "16 GiB a chip [P]",
            "hbm_bytes_per_s": "700 GB/s a chip [M]",
            "fast": "496 Gbit/s per link [M], 1 us per hop [S]",
            "network": "25 Gbit/s a core, as v5e [S]",
            "fits": _FITS + ", 0.70 GHz",
        },
    )
)

register_device(
    replace(
        BASE_TPU,
        name="tpu_v3",
        peak_flop_per_s={"bf16": 61.5e12, "f32": 61.5e12},
        hbm_bytes=16 * GIB,
        hbm_bytes_per_s=450e9,
        fast=Torus(pod=(32, 32), bytes_per_s=70e9, hop_s=HOP_S, wrap_multiple=32),
        network=Network(3.125e9, DCN_LATENCY_S),
        cores=2,
        chip=Switch(2, 225e9, 1e-6),
        vector_flop_per_s=1.925e12,
        spreads_per_s=0.94e9 / SPREAD_CYCLES,
        alone_per_s=0.94e9 * ALONE_TILE / 1.2,
        hbm_efficiency=0.936,
        stream_share=0.5,
        matmul_efficiency={"": 0.96},
        matmul_tile=EARLY_TPU_TILE,
        turned_per_s=44e9,
        on_chip_bytes=0.0,
        reduces_whole=True,
        columns_together=False,
        assigns_on_chip=False,
        source={
            "peak_flop_per_s": "123 TFLOP/s a chip [G][P], 61.4 a core [L]; f32 runs as one bf16 pass",
            "hbm_bytes": "32 GiB a chip [G]",
            "hbm_bytes_per_s": "900 GB/s a chip [G]",
            "fast": "70 GB/s per link [P]; 82 [M] and 100 [S] disagree, the lowest is taken; 1 us per hop [S]",
            "network": "25 Gbit/s a core, as v5e [S]",
            "fits": _FITS + ", 0.94 GHz",
        },
    )
)


def _tpu_v4(name: str, cores: int) -> Device:
    """A v4 core, or with megacore (`cores` = 1) a whole chip as one device."""
    share = 1 / cores
    return replace(
        BASE_TPU,
        name=name,
        peak_flop_per_s={"bf16": 275e12 * share, "f32": 275e12 * share, "i8": 275e12 * share},
        hbm_bytes=32 * GIB * share,
        hbm_bytes_per_s=1200e9 * share,
        fast=Torus(pod=(16, 16, 16), bytes_per_s=45e9, hop_s=HOP_S, wrap_multiple=4),
        network=Network(6.25e9 * share, DCN_LATENCY_S),
        cores=cores,
        chip=Switch(2, 300e9, 1e-6) if cores > 1 else None,
        vector_flop_per_s=4.3e12 * share,
        spreads_per_s=1.05e9 * 2 * share / SPREAD_CYCLES,
        turned_per_s=100e9 * share,
        alone_per_s=1.05e9 * 2 * share * ALONE_TILE / 3.6,
        hbm_efficiency=0.79,
        matmul_efficiency={"": 0.91},
        matmul_tile=EARLY_TPU_TILE,
        on_chip_bytes=128 * MIB * share,
        columns_together=False,
        source={
            "peak_flop_per_s": "275 T a chip in bf16 and int8 [G], 137 a core [L]",
            "hbm_bytes": "32 GiB a chip [G]",
            "hbm_bytes_per_s": "1200 GB/s a chip [G]",
            "fast": _ICI,
            "network": "50 Gbit/s a chip [S]",
            "fits": _FITS + ", 1.05 GHz",
        },
    )


register_device(_tpu_v4("tpu_v4", cores=2))
register_device(_tpu_v4("tpu_v4_megacore", cores=1))

register_device(
    replace(
        BASE_TPU,
        name="tpu_v5e",
        peak_flop_per_s={"bf16": 197e12, "f32": 197e12, "i8": 393e12},
        hbm_bytes=16 * GIB,
        hbm_bytes_per_s=819e9,
        fast=Torus(pod=(16, 16), bytes_per_s=45e9, hop_s=HOP_S, wrap_multiple=16),
        network=Network(3.125e9, DCN_LATENCY_S),
        vector_flop_per_s=6.14e12,
        spreads_per_s=1.5e9 / SPREAD_CYCLES,
        units_in_turn=False,
        turned_per_s=57e9,
        alone_per_s=1.5e9 * ALONE_TILE / 12.2,
        hbm_efficiency=0.80,
        matmul_efficiency={"": 0.96},
        scatters_apart=True,
        source={
            "peak_flop_per_s": "197 bf16, 393 int8 T [G]",
            "hbm_bytes": "16 GB [G], binary as the runtime counts it [M]",
            "hbm_bytes_per_s": "819 GB/s [G]",
            "fast": _ICI,
            "network": "25 Gbit/s a chip [S]",
            "fits": _FITS + ", 1.5 GHz",
        },
    )
)

register_device(
    replace(
        BASE_TPU,
        name="tpu_v5p",
        peak_flop_per_s={"bf16": 459e12, "f32": 459e12, "i8": 918e12, "f8": 459e12},
        hbm_bytes=95 * GIB,
        hbm_bytes_per_s=2765e9,
        fast=Torus(pod=(16, 20, 28), bytes_per_s=90e9, hop_s=HOP_S, wrap_multiple=4),
        network=Network(6.25e9, DCN_LATENCY_S),
        vector_flop_per_s=14.3e12,
        spreads_per_s=1.75e9 * 2 / SPREAD_CYCLES,
        turned_per_s=149e9,
        alone_per_s=1.75e9 * ALONE_TILE / 7.0,
        hbm_efficiency=0.71,
        matmul_efficiency={"": 0.96},
        kernel_efficiency=0.78,
        source={
            "peak_flop_per_s": "459 bf16 and fp8 [G], 918 int8 [S]",
            "hbm_bytes": "95 GiB [G]",
            "hbm_bytes_per_s": "2765 GB/s [G]",
            "fast": _ICI,
            "kernel_efficiency": "0.76 at 128 features, 0.78 at 256, 0.83 at 64" + TOKAMAX,
            "network": "50 Gbit/s a chip [G][S]",
            "fits": _FITS + ", 1.75 GHz",
        },
    )
)

register_device(
    replace(
        BASE_TPU,
        name="tpu_v6e",
        peak_flop_per_s={"bf16": 918e12, "f32": 918e12, "i8": 1836e12, "f8": 918e12},
        hbm_bytes=32 * GIB,
        hbm_bytes_per_s=1638e9,
        fast=Torus(pod=(16, 16), bytes_per_s=90e9, hop_s=HOP_S, wrap_multiple=16),
        network=Network(12.5e9, DCN_LATENCY_S),
        vector_flop_per_s=7.17e12,
        spreads_per_s=1.75e9 / SPREAD_CYCLES,
        turned_per_s=87e9,
        alone_per_s=1.75e9 * ALONE_TILE / 10.4,
        hbm_efficiency=0.81,
        matmul_efficiency={"": 0.85},
        matmul_tile=(32, 256, 256),
        scatters_apart=True,
        kernel_efficiency=0.60,
        source={
            "peak_flop_per_s": "918 bf16 and fp8, 1836 int8 [G]",
            "hbm_bytes": "32 GB [G], binary as the runtime counts it [M]",
            "hbm_bytes_per_s": "1638 GB/s [G]",
            "fast": _ICI,
            "kernel_efficiency": "0.61 at 128 features, 0.52 at 256, 0.68 at 64" + TOKAMAX,
            "network": "100 Gbit/s a chip [G][S]",
            "fits": _FITS + ", 1.75 GHz",
        },
    )
)

register_device(
    replace(
        BASE_TPU,
        name="tpu_v7",
        peak_flop_per_s={"bf16": 1153.5e12, "f32": 1153.5e12, "f8": 2307e12},
        hbm_bytes=96 * GIB,
        hbm_bytes_per_s=3690e9,
        fast=Torus(pod=(16, 24, 24), bytes_per_s=90e9, hop_s=HOP_S, wrap_multiple=4),
        network=Network(6.25e9, DCN_LATENCY_S),
        cores=2,
        chip=Switch(2, 540e9, 1e-6),
        vector_flop_per_s=9.0e12,
        spreads_per_s=2.2e9 / SPREAD_CYCLES,
        turned_per_s=134e9,
        alone_per_s=2.2e9 * ALONE_TILE / 10.4,
        hbm_efficiency=0.75,
        matmul_efficiency={"": 0.85},
        matmul_tile=(32, 256, 256),
        on_chip_bytes=64 * MIB,
        kernel_efficiency=0.57,
        source={
            "peak_flop_per_s": "2307 bf16, 4614 fp8 a chip of two devices [G]",
            "hbm_bytes": "192 GiB a chip [G]",
            "hbm_bytes_per_s": "7380 GB/s a chip [G]",
            "fast": _ICI + "; pod of 9216 chips [G], its shape here is one of several",
            "kernel_efficiency": "0.57 at 128 features, 0.50 at 256, 0.62 at 64" + TOKAMAX,
            "network": "100 Gbit/s a chip [G][S]",
            "fits": _FITS + ", 2.2 GHz (peak over 4 matrix units of 256 x 256)",
        },
    )
)
