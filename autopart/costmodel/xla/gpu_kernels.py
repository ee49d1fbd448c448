"""Seconds of the kernels that XLA:GPU makes of a program, from its optimised text: a roofline of each.

    %f = fusion(%x, %y)                        longer of its bytes at the rate of memory and of products inside it
    %p = custom-call(%x, %w) __cublas$..       a product, by the dims that its configuration sums over
    %c = custom-call(%x, %w) __cudnn$conv..    a convolution, by its window

XLA:GPU estimates no seconds, and its analysis of a compiled program counts no flop of what libraries compute: 0.2 % of
a decoder's. An array of which a fusion reads or changes a part counts with this part. Held to kernels that ran on an
H100 by `experiments/on_device`.
"""

from __future__ import annotations

import math
import re

from autopart.core.ops.traits import FEW_FEATURES
from autopart.costmodel.compiled.facts.library_calls import unfilled_by_library
from autopart.costmodel.hardware.devices import Device
from autopart.costmodel.xla.optimised_hlo import Instruction, OptimisedHlo, arrays_in

_IDLE = re.compile(
    "parameter|constant|tuple|get-tuple-element|bitcast|while|conditional|call|async-(start|done)|after-all|"
    "(fusion|copy)-(start|done)|(partition|replica)-id|opt-barrier|iota|(all|collective)-.*|reduce-scatter.*"
)
"""Instructions that are no kernels: collectives, and what runs nothing by itself."""

_SUMMED = re.compile(r'lhs_contracting_dim(?:ension)?s"?[=:][\[{]([\d",]*)[\]}]')
_WINDOW = re.compile(r"window={size=([\dx]+)")
_LABELS = re.compile(r"dim_labels=(\w+)_\w+->(\w+)")
_GROUPS = re.compile(r"feature_group_count=(\d+)")
_NUMBER = re.compile(r"\d+")
_PARTS = re.compile("(dynamic-)?slice|gather")


def kernel_seconds(module: OptimisedHlo, on: Device) -> float:
    """Seconds of what `module` runs on the device `on`, one kernel after the other; without collectives."""
    ran = ((instruction, times) for instruction, times in module.ran() if runs(instruction))
    return sum(times * instruction_seconds(module, instruction, on) for instruction, times in ran)


def instruction_seconds(module: OptimisedHlo, instruction: Instruction, on: Device) -> float:
    """Seconds of one instruction that is a kernel."""
    return _Kernel(module, instruction).seconds(on)


def runs(instruction: Instruction) -> bool:
    """True for an instruction that is a kernel, or a call into a library."""
    return _IDLE.fullmatch(instruction.kind) is None


class _Kernel:
    """One instruction: its flop and bytes."""

    def __init__(self, module: OptimisedHlo, instruction: Instruction):
        self.module, self.instruction = module, instruction
        self.inside = module.inside(instruction)

    def seconds(self, on: Device) -> float:
        flop, dtype, is_conv = self.product(on)
        rate = on.peak(dtype) * (on.conv_efficiency if is_conv and on.conv_efficiency else on.efficiency(dtype))
        memory_s = self.bytes / (on.hbm_bytes_per_s * on.hbm_efficiency)
        return max(flop / rate, memory_s) + (on.matmul_launch_s if flop else on.launch_s)

    def product(self, on: Device) -> tuple[float, str, bool]:
        """(flop, with the tiles that it leaves unfilled, element type, whether it is a convolution) of its products."""
        found = self.instruction
        if found.kind == "custom-call" and "__cudnn$conv" in found.line:
            return self._convolution(found, on), _dtype(self.operands[0]), True
        products = [found] if "__cublas" in found.line else [i for i in self.inside if _SUMMED.search(i.line)]
        dtype = _dtype(self.module.operand_types(products[0])[0]) if products else "f32"
        return sum(map(self._flop, products)), dtype, False

    def _flop(self, product: Instruction) -> float:
        """2 m n k: the first array of its type is the result."""
        left, summed = _shape(self.module.operand_types(product)[0]), _SUMMED.search(product.line)
        dims = [int(d) for d in _NUMBER.findall(summed.group(1))] if summed else []
        return 2.0 * math.prod(_shape(product.type)) * math.prod(left[d] for d in dims)

    def _convolution(self, call: Instruction, on: Device) -> float:
        """Multiply-adds of all places of the window, be they in padding, for each place of the side with less of them
        (what a convolution with strides leaves, or is given for its gradient), times the tiles left unfilled."""
        window, labels, groups = _WINDOW.search(call.line), _LABELS.search(call.line), _GROUPS.search(call.line)
        if window is None or labels is None:
            return 0.0
        images, places = _shape(self.operands[0]), _shape(call.type)
        if "BackwardFilter" in call.line:
            places = _shape(self.operands[1])
        elif "BackwardInput" in call.line:
            images, places = places, images
        inner, columns = images[labels.group(1).index("f")], places[labels.group(2).index("f")]
        by_group, taps = int(groups.group(1)) if groups else 1, math.prod(int(n) for n in window.group(1).split("x"))
        work = 2.0 * math.prod(places) * inner / by_group * taps
        if by_group == inner:
            return work * on.window_share
        if on.library is None or by_group > 1:
            return work
        if "BackwardInput" in call.line:
            inner, columns = columns, inner
        elif "BackwardFilter" in call.line and inner < FEW_FEATURES:
            inner *= taps
        return work * unfilled_by_library(inner, columns, "BackwardFilter" in call.line, on.library.numbers)

    @property
    def operands(self) -> list[str]:
        """Types of what it reads."""
        return self.module.operand_types(self.instruction)

    @property
    def bytes(self) -> float:
        """Bytes read and written."""
        if _PARTS.fullmatch(self.instruction.kind):
            return 2.0 * _bytes(self.instruction.type)
        if self.instruction.kind == "dynamic-update-slice":
            return 2.0 * _bytes(self.operands[1])
        if not self.inside:
            return _bytes(self.instruction.type) + sum(map(_bytes, self.operands))
        changed = [i for i in self.inside if i.kind == "dynamic-update-slice"]
        written = sum(_bytes(self.module.operand_types(i)[1]) - _bytes(i.type) for i in changed)
        return max(0.0, _bytes(self.instruction.type) + written) + self._read

    @property
    def _read(self) -> float:
        """Bytes read of the parameters of the fusion: of one of which all readers cut parts, or change it, those."""
        whole = {i.name: _bytes(i.type) for i in self.inside if i.kind == "parameter"}
        parts = dict.fromkeys(whole, 0.0)
        for reader in self.inside:
            for name in parts.keys() & set(reader.operands):
                if _PARTS.fullmatch(reader.kind):
                    parts[name] += _bytes(reader.type)
                elif reader.kind != "dynamic-update-slice" or reader.operands[0] != name:
                    parts[name] = whole[name]
        return sum(min(whole[name], part) for name, part in parts.items())


def _shape(type_: str) -> tuple[int, ...]:
    """Sizes of the first array of a type."""
    return arrays_in(type_)[0].shape


def _bytes(type_: str) -> float:
    """Bytes of all arrays of a type but those that a library works in, which are `s8` or `u8` behind others."""
    return sum(a.bytes for i, a in enumerate(arrays_in(type_)) if i == 0 or a.dtype not in ("s8", "u8"))


def _dtype(type_: str) -> str:
    """Element type of the first array of a type, named as a program names it.

    >>> _dtype("s8[32,64]{1,0}"), _dtype("(bf16[8], u8[64])")
    ('i8', 'bf16')
    """
    return re.sub(r"^[su](?=\d)", "i", arrays_in(type_)[0].dtype)
