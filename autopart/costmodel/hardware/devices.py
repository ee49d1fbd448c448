"""The device registry: what one device can do, each number with its source.

A device is what JAX calls one: on TPU v2, v3, v4 and v7 a core with its half of the chip's memory, flop and
bandwidth; on every other TPU a chip. Adding one takes five lines:

    register_device(Device(
        "my_chip", peak_flop_per_s={"bf16": 500e12}, hbm_bytes=64e9, hbm_bytes_per_s=2e12,
        fast=Switch(domain=8, bytes_per_s=200e9, latency_s=5e-6), network=Network(25e9, 50e-6),
        source="datasheet of My Chip, rev. 3",
    ))
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from autopart.base.arguments import (
    ANYTHING,
    FLAG,
    NONE,
    STRING,
    TEXT,
    check,
    check_fields,
    instance,
    mapping,
    number,
    one_of,
    sequence,
    whole,
)
from autopart.base.registry import Registry
from autopart.core.mesh import devices_are_named_by
from autopart.costmodel.hardware.fabric import ANY_NUMBER, DeviceError, Network, Switch, Torus, positive

DEFAULT_MATMUL_EFFICIENCY = 0.7
"""Lower of the two bf16 fits (H100 0.76, B200 0.66), rounded: for a device nobody has measured."""

DEFAULT_HBM_EFFICIENCY = 0.8
"""The share of HBM bandwidth that bf16 matmuls of H100 are fitted with (B200: 0.9), and the TPU compiler's for v5e."""

LINK_LATENCY_S = 3.4e-6
"""A step over links of which only the rate is known: as a ring's over NVLink in NCCL's tuning model (`nccl.py`)."""

VECTOR_SHARE = 1 / 32
"""Elementwise flop/s over bf16 matmul flop/s where an entry says nothing: v3 and v5e by the TPU compiler are 1/32."""

DTYPE_CLASSES = ("f64", "f32", "bf16", "i8", "f8", "f4")
"""Classes of matmul speed; `dtype_class` maps element types to them."""


def dtype_class(dtype: str) -> str:
    """The class of matmul speed an element type belongs to; types no matrix unit knows run as f32.

    >>> dtype_class("f16"), dtype_class("f8E4M3FN"), dtype_class("ui8"), dtype_class("i32")
    ('bf16', 'f8', 'i8', 'f32')
    """
    if dtype in ("bf16", "f16"):
        return "bf16"
    if dtype in ("f64", "complex<f64>"):
        return "f64"
    for prefix, group in (("f8", "f8"), ("f4", "f4"), ("ui8", "i8"), ("i8", "i8"), ("i4", "i8"), ("ui4", "i8")):
        if dtype.startswith(prefix):
            return group
    return "f32"


@dataclass(frozen=True)
class AroundMatmul:
    """What a compiler does with the ops around a matmul or convolution; a call into a library allows none of it.

    fuses_operands     computes elementwise ops inside the matmul that reads them
    joins_results      computes ops that read the result, element by element, in the same kernel
    narrows_operands   stores as bf16 what only f32 matmuls at default precision read
    copies_updates     makes an update from a transposed collective on copies in another HBM layout
    """

    fuses_operands: bool = False
    joins_results: bool = False
    narrows_operands: bool = False
    copies_updates: bool = False


@dataclass(frozen=True)
class LibraryCalls:
    """How a vendor's library computes convolutions (`library_calls.py`); products it computes as they are.

    channels      that a convolution leaves, in one tile; `summed`: those that it sums over at each place of its window
    kernel        channels of either side in a tile of the gradient of a kernel
    kernel_share  rate of such a gradient over that of a convolution
    workspace_bytes   what a product or convolution works in
    """

    channels: int
    summed: int
    kernel: int
    kernel_share: float
    workspace_bytes: float = 0.0

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """As kernels read them."""
        return float(self.channels), float(self.summed), float(self.kernel), self.kernel_share


COMPILERS = ("xla_tpu", "xla_gpu", "plain")
"""What `Device.compiler` may be."""

_RATES = mapping(STRING, ANYTHING, 'numbers by dtype class, such as {"bf16": 500e12}')
_FIELDS = {
    "name": TEXT,
    "peak_flop_per_s": _RATES,
    "source": STRING | mapping(STRING, TEXT, "a text per field"),
    "fast": instance("a Switch(...) or Torus(...)", Switch, Torus) | NONE,
    "network": instance("a Network(...)", Network) | NONE,
    "cores": whole(1),
    "chip": instance("a Switch(...)", Switch) | NONE,
    "matmul_efficiency": _RATES,
    "matmul_tile": sequence(whole(1), "three integers above 0", least=3),
    "layout_tile": sequence(whole(1), "two integers above 0", least=2),
    "on_chip_bytes": number(0),
    "compiler": one_of(*COMPILERS),
    "around_matmul": instance("an AroundMatmul(...)", AroundMatmul),
    "library": instance("LibraryCalls(...)", LibraryCalls) | NONE,
    "combine_bytes": number(0),
    "strided_collectives": FLAG,
    "reduces_whole": FLAG,
    "scatters_apart": FLAG,
    "columns_together": FLAG,
    "units_in_turn": FLAG,
    "unhidden_share": number(0),
    "fed_at_hbm_rate": FLAG,
    "assigns_on_chip": FLAG,
}
"""What each field of a device may be, besides numbers, which must be positive."""

_MAY_BE_NONE = (
    "vector_flop_per_s", "conv_efficiency", "kernel_efficiency", "spreads_per_s", "turned_per_s", "alone_per_s",
    "link_bytes_per_s",
)  # fmt: skip

XLA_TPU = AroundMatmul(fuses_operands=True, joins_results=True, narrows_operands=True, copies_updates=True)
"""XLA's TPU backend, as libtpu 0.0.51 compiles."""


@dataclass(frozen=True)
class Device:
    """One device of a mesh. Bytes, seconds and flop per second; one multiply-add is two flop.

    peak_flop_per_s    matmul peak by dtype class; a class that is missing takes the next wider one's
    hbm_bytes          memory one device may use
    hbm_bytes_per_s    its nominal bandwidth; `hbm_efficiency` is the share a streaming kernel gets, and `stream_share`
                       the share of that which one array gets: a kernel that only reads one takes longer
    source             where the numbers are from: one text, or a text per field
    fast               the wiring between devices of a slice or node; None: a lone device
    link_bytes_per_s   in place of `fast`: what each device sends one way to any number of others, as through one switch
    network            the wiring between slices or nodes; None: there is none
    cores              devices per chip, sharing its links; `chip` is the wiring between them
    vector_flop_per_s  elementwise f32 rate
    spreads_per_s      numbers that its vector unit puts along a row each: what is the same for all features of a row is
                       spread before it meets them; None: that takes no time
    turned_per_s       elements that its compiler copies where another dim comes along the lanes; None: it makes no such
                       copies
    alone_per_s        numbers that a reduction, or an elementwise op, takes besides bytes if its kernel computes
                       nothing else; None: it takes no longer than others
    matmul_efficiency  share of peak a large matmul reaches, by dtype class ("" for every other)
    conv_efficiency    the same for convolutions; None: as matmul
    kernel_efficiency  the same for kernels that a program brings, such as flash attention; None: as matmul
    units_in_turn      its compiler does a kernel's vector work before and after the matrix unit's, not beside it
    unhidden_share     share of the shorter of a kernel's computing and its moving of bytes that nothing hides: the
                       first tiles come before any work, the last ones go after it
    fed_at_hbm_rate    its vector unit reads what is on the chip no faster than HBM, and takes as long again where it
                       writes no f32 array of what it walks through (`kernel_rooflines.py`)
    launch_s           fixed cost of a kernel; `matmul_launch_s` of a matmul or convolution
    matmul_tile        (m, n, k) granule: smaller matmuls waste the rest of it; fewer than m rows take as long as m
    on_chip_bytes      cache or scratch memory in which arrays stay between kernels; 0: none does
    assigns_on_chip    its compiler says what lies there, so an array that never leaves it takes no memory
    compiler           whose passes turn a program into kernels: "xla_tpu", "xla_gpu", or "plain", which is none that
                       is known: neighbours are fused, and nothing more
    around_matmul      what its compiler does with the ops around a matmul
    library            what computes products and convolutions in place of the compiler; None: nothing does
    combine_bytes      reductions are combined up to this size, on GPUs gathers too, all by what they leave; 0: none are
    strided_collectives  its collectives work along any dim in place; else along the major one, with copies around them
    reduces_whole      its compiler copies before it makes an all_reduce of a reduce_scatter into parts of layout tiles,
                       and makes one of a reduce_scatter over all devices
    scatters_apart     its compiler runs each reduce_scatter by itself, and combines all_reduces of which slices are
                       read into one that it scatters
    columns_together   columns of a product along several dims lie side by side in a tile of the matrix unit: heads of
                       few features; else the longest of the dims alone fills it
    window_share       what a place of a window that each feature has for itself takes, over a tile of the matrix unit
    layout_tile        (second-minor in f32 rows, minor in elements) of an HBM layout tile; (1, 1): no padding

    Raises `DeviceError` for a number that is not positive, or has no source.
    """

    name: str
    peak_flop_per_s: Mapping[str, float]
    hbm_bytes: float
    hbm_bytes_per_s: float
    source: str | Mapping[str, str]
    fast: Switch | Torus | None = None
    network: Network | None = None
    link_bytes_per_s: float | None = None
    cores: int = 1
    chip: Switch | None = None
    vector_flop_per_s: float | None = None
    spreads_per_s: float | None = None
    turned_per_s: float | None = None
    alone_per_s: float | None = None
    hbm_efficiency: float = DEFAULT_HBM_EFFICIENCY
    stream_share: float = 1.0
    matmul_efficiency: Mapping[str, float] = field(default_factory=lambda: {"": DEFAULT_MATMUL_EFFICIENCY})
    conv_efficiency: float | None = None
    kernel_efficiency: float | None = None
    units_in_turn: bool = False
    unhidden_share: float = 0.0
    fed_at_hbm_rate: bool = False
    launch_s: float = 1e-6
    matmul_launch_s: float = 1e-6
    matmul_tile: tuple[int, int, int] = (1, 1, 1)
    layout_tile: tuple[int, int] = (1, 1)
    on_chip_bytes: float = 0.0
    assigns_on_chip: bool = False
    compiler: str = "plain"
    around_matmul: AroundMatmul = AroundMatmul()
    library: LibraryCalls | None = None
    combine_bytes: float = 0.0
    strided_collectives: bool = False
    reduces_whole: bool = False
    scatters_apart: bool = False
    columns_together: bool = True
    window_share: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, DeviceError, **_FIELDS)
        owner = f'device "{self.name}"'
        if unknown := set(self.peak_flop_per_s) - set(DTYPE_CLASSES):
            raise DeviceError(f"{owner}: peak of {sorted(unknown)[0]!r}", hint=", ".join(DTYPE_CLASSES))
        positive(owner, hbm_bytes=self.hbm_bytes, hbm_bytes_per_s=self.hbm_bytes_per_s, cores=self.cores)
        positive(owner, hbm_efficiency=self.hbm_efficiency, launch_s=self.launch_s, stream_share=self.stream_share)
        positive(owner, matmul_launch_s=self.matmul_launch_s, window_share=self.window_share)
        positive(owner, **{n: v for n in _MAY_BE_NONE if (v := getattr(self, n)) is not None})
        for dtype, rate in {**self.peak_flop_per_s, **self.matmul_efficiency}.items():
            positive(owner, **{f"rate of {dtype or 'matmul'}": rate})
        if self.cores > 1 and self.chip is None:
            raise DeviceError(f"{owner}: {self.cores} cores but no wiring between them", hint="chip=Switch(...)")
        if not self.source:
            raise DeviceError(f"{owner}: no source", why="every number says where it is from", hint='source="..."')

        positive(owner, vector_flop_per_s=self.vector_rate)
        if self.link_bytes_per_s is not None and self.fast is not None:
            raise DeviceError(f"{owner}: both fast and link_bytes_per_s", why="either says how devices are wired")

    def registered(self) -> str:
        """Its name in the registry, to which it is added; raises `DeviceError` if another device has the name."""
        if DEVICES.get(self.name) != self:
            register_device(self)
        return self.name

    @property
    def is_xla_tpu(self) -> bool:
        """True if XLA's TPU backend makes its kernels."""
        return self.compiler == "xla_tpu"

    @property
    def is_xla_gpu(self) -> bool:
        """True if XLA's GPU backend makes its kernels."""
        return self.compiler == "xla_gpu"

    @property
    def wires(self) -> Switch | Torus | None:
        """The wiring between devices of a slice or node: `fast`, or one switch for all by `link_bytes_per_s`."""
        if self.link_bytes_per_s is None:
            return self.fast
        return Switch(ANY_NUMBER, self.link_bytes_per_s, LINK_LATENCY_S)

    @property
    def vector_rate(self) -> float:
        """Elementwise f32 flop/s: the entry's, or `VECTOR_SHARE` of the fastest of bf16 and f32."""
        if self.vector_flop_per_s is not None:
            return self.vector_flop_per_s
        return VECTOR_SHARE * max(self.peak("bf16"), self.peak("f32"))

    @property
    def spread_flop(self) -> float:
        """Elementwise flop that take as long as putting one number along a row."""
        return 0.0 if self.spreads_per_s is None else self.vector_rate / self.spreads_per_s

    @property
    def turned_bytes(self) -> float:
        """Bytes that pass HBM in the time in which one element is copied from along the rows to along the lanes."""
        if self.turned_per_s is None:
            return 0.0
        return self.hbm_bytes_per_s * self.hbm_efficiency / self.turned_per_s

    def peak(self, dtype: str) -> float:
        """Matmul flop/s for element type `dtype` at default precision.

        A class without an entry takes the next one in f4, f8, i8, bf16, f32 that has one.
        """
        order = ("f4", "f8", "i8", "bf16", "f32", "f64")
        start = order.index(dtype_class(dtype))
        for group in order[start:] + order[start::-1]:
            if group in self.peak_flop_per_s:
                return self.peak_flop_per_s[group]
        raise DeviceError(f'device "{self.name}" has no matmul peak', hint='peak_flop_per_s={"bf16": ...}')

    def efficiency(self, dtype: str) -> float:
        """Share of `peak(dtype)` that a large matmul reaches."""
        by_class = self.matmul_efficiency
        return by_class.get(dtype_class(dtype), by_class.get("", DEFAULT_MATMUL_EFFICIENCY))

    @property
    def kernel_passes(self) -> float:
        """How many times as long as a large matmul of as much flop a kernel takes that a program brings."""
        return self.efficiency("bf16") / self.kernel_efficiency if self.kernel_efficiency else 1.0


def _load_own() -> None:
    """Imports the files of our own devices, which register them."""
    for vendor in ("gpus", "tpus"):
        importlib.import_module(f"autopart.costmodel.hardware.{vendor}")


DEVICES: Registry[Device] = Registry(
    "device",
    accepts=instance("a Device(...)", Device),
    entry_points="autopart.devices",
    load=_load_own,
    error=DeviceError,
)


def register_device(device: Device) -> Device:
    """Adds `device` to the registry and returns it; raises `DeviceError` if the name is taken."""
    check("register_device", DeviceError, device=(device, instance("a Device(...)", Device)))
    sources = [device.source] if isinstance(device.source, str) else device.source.values()
    return DEVICES.add(device.name, device, "; ".join(dict.fromkeys(sources)))


def devices() -> dict[str, Device]:
    """Every registered device by name."""
    return dict(DEVICES)


def device(name: str) -> Device:
    """The registered device called `name`, or that in the file of this name; raises `UnknownNameError` listing all."""
    if name.endswith(".json"):
        return importlib.import_module("autopart.costmodel.hardware.device_file").read_device(name)
    return DEVICES.named(name)


devices_are_named_by(device)


# The kernels read a device as one row of numbers: the matmul rate of dtype class c at place c, then these.
(
    VECTOR,
    HBM,
    LAUNCH,
    MATMUL_LAUNCH,
    CONV_SHARE,
    TILE_M,
    TILE_N,
    TILE_K,
    LAYOUT_ROWS,
    LAYOUT_MINOR,
    HBM_BYTES,
    ON_CHIP,
    STREAM,
    IN_TURN,
    UNHIDDEN,
    FED,
    ALONE_S,
) = range(len(DTYPE_CLASSES), len(DTYPE_CLASSES) + 17)


def device_row(d: Device) -> np.ndarray:
    """`d` as the float64 row that the kernels read: effective rates, so peaks times efficiencies."""
    conv_share = 1.0 if d.conv_efficiency is None else d.conv_efficiency / d.efficiency("bf16")
    rates = [d.peak(c) * d.efficiency(c) for c in DTYPE_CLASSES]
    hbm_rate, tiles = d.hbm_bytes_per_s * d.hbm_efficiency, (*d.matmul_tile, *d.layout_tile)
    rest = (d.vector_rate, hbm_rate, d.launch_s, d.matmul_launch_s, conv_share, *tiles, d.hbm_bytes, d.on_chip_bytes)
    flags = (d.units_in_turn, d.unhidden_share, d.fed_at_hbm_rate)
    alone_s = 0.0 if d.alone_per_s is None else 1.0 / d.alone_per_s
    return np.array([*rates, *rest, hbm_rate * d.stream_share, *flags, alone_s], np.float64)
