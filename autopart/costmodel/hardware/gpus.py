"""A100, H100, H200, B200, GB200 and the host CPU: entries with fitted collectives.

Sources:

    [N]   NVIDIA datasheets, dense figures (1979 bf16 TFLOP/s of an H100 are with 2:4 sparsity: not used)
    [S]   jax-ml scaling-book, gpus.md: NVLink and InfiniBand per GPU
    [X]   measured tables that OpenXLA ships, fitted by `python -m experiments.collective_accuracy`; median error on
          rows kept from the fit 1.4 to 13 %, by curve in its results.json
    [XC]  constants of XLA's GPU cost model: 1 us a kernel launch
    [NC]  NCCL's tuning model, in `nccl.py`: latencies between nodes by algorithm, protocol and size
    [D]   steps that ran on an H100, `python -m experiments.on_device`
    [M]   from memory, not verified

`on_chip_bytes` is a quarter of the L2 cache, of 40, 50 and 126 MiB [M]: on an H100 arrays of 10 MB and more hardly stay
there until they are read [D]. XLA combines reductions up to 30 MiB [XC].
"""

from __future__ import annotations

from dataclasses import replace

from autopart.costmodel.hardware.devices import Device, LibraryCalls, register_device
from autopart.costmodel.hardware.fabric import CollectiveCurve, Switch
from autopart.costmodel.hardware.nccl import nccl_network

MIB = 2**20

CUDNN = LibraryCalls(channels=64, summed=32, kernel=128, kernel_share=0.68, workspace_bytes=32 * MIB)
"""Fitted to 218 convolutions of an H100 in f32 (`tests/data/h100`); for other GPUs and types an assumption. Workspaces
are cuBLAS's as XLA:GPU asks for them from Hopper on; on Ampere it asks for 4 MiB."""

WINDOW_SHARE = 650.0
"""What a place of a window that each feature has for itself takes: windows of one model on an H100, 0.4 TFLOP/s."""

H100_CURVES = {
    "all_gather": CollectiveCurve(
        9.045e-6, 1.213e-6, wire_bytes_per_s=413.3e9, local_bytes_per_s=1049e9, ramp_s2_per_byte=5.347e-17
    ),
    "reduce_scatter": CollectiveCurve(
        12.34e-6, 0.354e-6, wire_bytes_per_s=396.7e9, local_bytes_per_s=382.8e9, ramp_s2_per_byte=2.792e-17
    ),
    "all_reduce": CollectiveCurve(
        10.03e-6, 0.909e-6, wire_bytes_per_s=357.2e9, local_bytes_per_s=460.3e9, ramp_s2_per_byte=4.962e-17
    ),
    "all_reduce_in_switch": CollectiveCurve(33.5e-6, 0.0, wire_bytes_per_s=432.4e9, ramp_s2_per_byte=5.076e-17),
    "all_to_all": CollectiveCurve(
        21.58e-6, 0.0, wire_bytes_per_s=424.1e9, local_bytes_per_s=3436e9, ramp_s2_per_byte=1.422e-16
    ),
    "all_permute": CollectiveCurve(
        14.31e-6, 0.0, wire_bytes_per_s=267.3e9, slow_bytes_per_s=110.5e9, slow_below_bytes=2**26
    ),
}

B200_CURVES = {
    "all_gather": CollectiveCurve(
        19.54e-6, 1.619e-6, wire_bytes_per_s=705.9e9, local_bytes_per_s=1335e9, ramp_s2_per_byte=1.454e-17
    ),
    "reduce_scatter": CollectiveCurve(
        29.19e-6, 0.898e-6, wire_bytes_per_s=641.8e9, local_bytes_per_s=1292e9, ramp_s2_per_byte=2.154e-19
    ),
    "all_reduce": CollectiveCurve(
        21.89e-6, 1.329e-6, wire_bytes_per_s=658.1e9, local_bytes_per_s=923.8e9, ramp_s2_per_byte=1.714e-17
    ),
    "all_reduce_in_switch": CollectiveCurve(0.0, 3.0e-6, wire_bytes_per_s=710.4e9, ramp_s2_per_byte=8.413e-17),
    "all_to_all": CollectiveCurve(
        32.09e-6, 0.369e-6, wire_bytes_per_s=842.7e9, local_bytes_per_s=759.6e9, ramp_s2_per_byte=4.692e-17
    ),
    "all_permute": CollectiveCurve(
        23.26e-6, 0.0, wire_bytes_per_s=475.3e9, slow_bytes_per_s=125.2e9, slow_below_bytes=2**26
    ),
}

GB200_CURVES = {
    "all_gather": CollectiveCurve(
        12.18e-6, 1.228e-6, wire_bytes_per_s=704.4e9, local_bytes_per_s=2230e9, ramp_s2_per_byte=6.943e-18
    ),
    "reduce_scatter": CollectiveCurve(
        12.03e-6, 1.331e-6, wire_bytes_per_s=737.2e9, local_bytes_per_s=3158e9, ramp_s2_per_byte=1.759e-17
    ),
    "all_reduce": CollectiveCurve(0.0, 2.82e-6, wire_bytes_per_s=696.9e9, ramp_s2_per_byte=1.949e-17),
    "all_reduce_in_switch": CollectiveCurve(
        19.26e-6, 0.260e-6, wire_bytes_per_s=934.4e9, local_bytes_per_s=2481e9, ramp_s2_per_byte=1.002e-16
    ),
    "all_to_all": CollectiveCurve(
        7.743e-6, 0.517e-6, wire_bytes_per_s=694.0e9, local_bytes_per_s=3203e9, ramp_s2_per_byte=3.182e-17
    ),
    "all_permute": CollectiveCurve(
        23.31e-6, 0.0, wire_bytes_per_s=665.6e9, slow_bytes_per_s=28.0e9, slow_below_bytes=2**24
    ),
}


def _scaled(curves: dict[str, CollectiveCurve], share: float) -> dict[str, CollectiveCurve]:
    """The curves of wires `share` as fast, for a device without a table: an assumption."""
    return {
        kind: replace(
            c,
            wire_bytes_per_s=c.wire_bytes_per_s * share,
            slow_bytes_per_s=c.slow_bytes_per_s * share,
            ramp_s2_per_byte=c.ramp_s2_per_byte / share,
        )
        for kind, c in curves.items()
    }


A100_SWITCH = Switch(
    8, 300e9, 3.4e-6, curves={k: c for k, c in _scaled(H100_CURVES, 300 / 450).items() if "in_sw" not in k}
)
A100_SOURCE = {
    "peak_flop_per_s": "312 bf16, 156 TF32, 624 int8 T [N]; f32 matmuls run as TF32",
    "hbm_bytes": "40 or 80 GB [N]",
    "hbm_bytes_per_s": "1.555 or 2.039 TB/s [N]",
    "vector_flop_per_s": "19.5 TFLOP/s [N]",
    "fast": "12 links of 25 GB/s [N]; H100's curves at 2/3 of the rate: an assumption",
    "network": "200 Gbit/s at 0.9 (calculon), latencies [NC]",
    "kernel_efficiency": "FlashAttention-2, arXiv 2307.08691: 50 to 73 %",
    "fits": "matmul and HBM efficiency as H100's [X]: an assumption; launch [XC]",
}
for _size, _rate in ((40, 1.555e12), (80, 2.039e12)):
    register_device(
        Device(
            f"a100_{_size}gb",
            peak_flop_per_s={"bf16": 312e12, "f32": 156e12, "i8": 624e12, "f64": 19.5e12},
            hbm_bytes=_size * 1e9,
            hbm_bytes_per_s=_rate,
            fast=A100_SWITCH,
            network=nccl_network(22.5e9, A100_SWITCH.curves),
            vector_flop_per_s=19.5e12,
            matmul_efficiency={"": 0.76, "f32": 0.66},
            conv_efficiency=0.62,
            kernel_efficiency=0.62,
            window_share=WINDOW_SHARE,
            compiler="xla_gpu",
            library=replace(CUDNN, workspace_bytes=4 * MIB),
            matmul_launch_s=5e-6,
            on_chip_bytes=40 / 4 * MIB,
            combine_bytes=30 * MIB,
            source=A100_SOURCE,
        )
    )

for _name, _bytes, _rate in (("h100", 80e9, 3.35e12), ("h200", 141e9, 4.8e12)):
    register_device(
        Device(
            _name,
            peak_flop_per_s={"bf16": 989e12, "f32": 494e12, "f8": 1979e12, "i8": 1979e12, "f64": 67e12},
            hbm_bytes=_bytes,
            hbm_bytes_per_s=_rate,
            fast=Switch(8, 450e9, 3.4e-6, curves=H100_CURVES, in_switch_group=8),
            network=nccl_network(45e9, H100_CURVES),
            vector_flop_per_s=67e12,
            hbm_efficiency=0.9,
            launch_s=1.5e-6,
            matmul_efficiency={"": 0.76, "f32": 0.66, "f8": 0.98},
            conv_efficiency=0.62,
            kernel_efficiency=0.75,
            window_share=WINDOW_SHARE,
            compiler="xla_gpu",
            library=CUDNN,
            matmul_launch_s=5e-6,
            on_chip_bytes=50 / 4 * MIB,
            combine_bytes=30 * MIB,
            source={
                "peak_flop_per_s": "989 bf16, 494 TF32, 1979 fp8 and int8, 67 f64 T [N]; f32 matmuls run as TF32",
                "hbm_bytes": "80 GB, H200 141 GB [N]",
                "hbm_bytes_per_s": "3.35 TB/s, H200 4.8 TB/s [N]",
                "vector_flop_per_s": "67 TFLOP/s f32 [N]",
                "kernel_efficiency": "FlashAttention-3, arXiv 2407.08608: up to 75 %; H200 within 4 % of H100 "
                "(Dao-AILab/flash-attention#1438)",
                "fast": "18 links of 25 GB/s [N], curves [X]; H200 shares H100's",
                "network": "400 Gbit/s at 0.9 (calculon), latencies [NC]",
                "fits": "matmul efficiency and launch [X], unseen median error 5 to 13 %; HBM efficiency, convolutions "
                "and other launches [D], 19 steps on an H100, all of them in view",
            },
        )
    )

_BLACKWELL = {
    "vector_flop_per_s": "80 TFLOP/s f32 [M]",
    "network": "400 Gbit/s at 0.9 (calculon), latencies [NC]",
    "kernel_efficiency": "FlashAttention-4 on B200, 128 features, 8192 tokens: 1535 TFLOP/s forward, 1360 backward, "
    "which has 2.5 times the flop (Dao-AILab/flash-attention#2280); at most 1613 (arXiv 2603.05451); GB200 likewise",
    "fits": "B200's matmul efficiency and launch [X]: unseen median error bf16 4.5 %, f32 5.8 %, fp8 6.2 %",
}

_B200 = Device(
    "b200",
    peak_flop_per_s={"bf16": 2250e12, "f32": 1100e12, "f8": 4500e12, "i8": 4500e12, "f4": 9000e12, "f64": 37e12},
    hbm_bytes=180e9,
    hbm_bytes_per_s=7.67e12,
    fast=Switch(8, 900e9, 3.4e-6, curves=B200_CURVES, in_switch_group=8),
    network=nccl_network(45e9, B200_CURVES),
    vector_flop_per_s=80e12,
    matmul_efficiency={"": 0.66, "f32": 0.68},
    conv_efficiency=0.54,
    kernel_efficiency=0.62,
    window_share=WINDOW_SHARE,
    compiler="xla_gpu",
    library=CUDNN,
    matmul_launch_s=6e-6,
    on_chip_bytes=126 / 4 * MIB,
    combine_bytes=30 * MIB,
    source={
        "peak_flop_per_s": "2250 bf16, 1100 TF32, 4500 fp8 and int8, 9000 fp4 T [N]; 37 f64 [M]",
        "hbm_bytes": "180 GB sold of 192 nominal; a driver shows 178.35",
        "hbm_bytes_per_s": "7.67 TB/s by the driver (pytorch/ao#4002), nominal 8.0 [N]",
        "fast": "18 links of 50 GB/s [N][S], curves [X]",
        **_BLACKWELL,
    },
)
register_device(_B200)
register_device(
    replace(
        _B200,
        name="gb200",
        peak_flop_per_s={"bf16": 2500e12, "f32": 1250e12, "f8": 5000e12, "i8": 5000e12, "f4": 10000e12, "f64": 40e12},
        hbm_bytes=186e9,
        hbm_bytes_per_s=8.0e12,
        fast=Switch(72, 900e9, 3.4e-6, curves=GB200_CURVES, in_switch_group=8),
        network=nccl_network(45e9, GB200_CURVES),
        source={
            "peak_flop_per_s": "2500 bf16, 1250 TF32, 5000 fp8 and int8, 10000 fp4 T [N]; 40 f64 [M]",
            "hbm_bytes": "186 GB (MLPerf v6.1 system description)",
            "hbm_bytes_per_s": "8.0 TB/s [N]",
            "fast": "18 links of 50 GB/s, domain of 72 [N][S], curves [X]",
            **_BLACKWELL,
        },
    )
)

register_device(
    Device(
        "cpu_host",
        peak_flop_per_s={"f32": 45e9, "bf16": 45e9},
        hbm_bytes=4e9,
        hbm_bytes_per_s=1.1e9,
        fast=Switch(4096, 3e9, 25e-6),
        vector_flop_per_s=8e9,
        matmul_efficiency={"": 1.0},
        hbm_efficiency=1.0,
        launch_s=10e-6,
        matmul_launch_s=10e-6,
        source="measured with jax 0.10.2 on a 2-core host as 8 devices: 2048-cubed matmul, x + 1, psum over 16 MB;"
        " memory is a share of 32 GB",
    )
)
