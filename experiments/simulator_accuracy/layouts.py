"""Where does layout assignment say what the compiler says? Of each pair with labels, the share of bytes.

    python -m experiments.simulator_accuracy.layouts                      all pairs that have labels
    python -m experiments.simulator_accuracy.layouts "mixer BP v3:4x4"    one of them, with what differs most

    0.993  mixer mcts 300 v3:4x4
           6 x dot_general (16, 1024, 196)   ours (2, 1)   the compiler's (1, 2)

A value counts if it has 16,384 elements or more on a device and the compiled text says how an instruction that was made
of its op lies. Layouts agree if the same dims, longer than one, lie along the lanes and the rows of tiles.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter, defaultdict

import numpy as np

from autopart.costmodel.compiled.layout_assignment.assignment import LayoutAssignment
from autopart.costmodel.compiled.tiled_layouts import NIBBLE
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
from autopart.spmd.device_local import DeviceLocal
from experiments.simulator_accuracy import labels
from experiments.simulator_accuracy.outside_pairs import all_pairs

LEAST_ELEMENTS = 16384

_ARRAY = re.compile(r"\w+\[([\d,]*)\]\{([\d,]*)")
_OP = re.compile(r"#op (\d+)")

Layout = tuple[int, ...]
"""Dims that are longer than one, minor to major."""


def assigned(local: DeviceLocal, name: str) -> list[Layout]:
    """The layout of each value by our pass, for the device called `name`."""
    sizes = np.array(local.mesh.axis_sizes, np.int64)
    found = LayoutAssignment.of(local.program)(local.native, sizes, device(name).layout_tile).layout
    return [
        tuple(d for place in range(len(shape)) if shape[d := int(layout) >> NIBBLE * place & 15] != 1)
        for layout, shape in zip(found, _shapes(local), strict=True)
    ]


def labelled(module: OptimisedHlo, local: DeviceLocal) -> dict[int, Layout]:
    """The layout of the first result of each op by the compiled text, where it has one of that shape."""
    seen: dict[int, Counter[Layout]] = defaultdict(Counter)
    shapes, program = _shapes(local), local.program
    for instruction, _ in module.ran():
        for made in module.inside(instruction) or [instruction]:
            numbers, array = _OP.findall(made.line), _ARRAY.search(made.type)
            if numbers and array and (results := program.results_of(int(numbers[0]))):
                shape, layout = (tuple(map(int, filter(None, text.split(",")))) for text in array.groups())
                renamed = _renamed(shape, shapes[results[0]], layout)
                if renamed is not None:
                    seen[int(numbers[0])][renamed] += 1
    return {op: layouts.most_common(1)[0][0] for op, layouts in seen.items()}


def compared(
    module: OptimisedHlo, local: DeviceLocal, name: str
) -> tuple[float, Counter[tuple[str, Layout, Layout, Layout]]]:
    """The share of elements whose layouts agree; how many others, by kind, shape, ours and the compiler's."""
    ours, shapes, program = assigned(local, name), _shapes(local), local.program
    good, all_, differ = 0, 0, Counter[tuple[str, Layout, Layout, Layout]]()
    for op, theirs in labelled(module, local).items():
        value = program.results_of(op)[0]
        elements = math.prod(shapes[value])
        if elements < LEAST_ELEMENTS:
            continue
        all_ += elements
        if ours[value][:2] == theirs[:2]:
            good += elements
        else:
            differ[program.spec(op).kind, shapes[value], ours[value], theirs] += 1
    return good / max(1, all_), differ


def _shapes(local: DeviceLocal) -> list[tuple[int, ...]]:
    return [
        tuple(local.local_type(value, int(local.native[value])).shape) for value in range(local.program.value_count)
    ]


def _renamed(shape: Layout, ours: Layout, layout: Layout) -> Layout | None:
    """A layout over the dims of our array; None if the two differ by more than dims of one element."""
    long, own = ([d for d, size in enumerate(of) if size != 1] for of in (shape, ours))
    if [shape[d] for d in long] != [ours[d] for d in own]:
        return None
    names = dict(zip(long, own, strict=True))
    return tuple(names[d] for d in layout if d in names)


def main() -> None:
    asked = sys.argv[1:]
    for pair in all_pairs():
        module = labels.kept(pair.name) if not asked or pair.name in asked else None
        if module is None:
            continue
        local = pair.lower().program
        share, differ = compared(module, local, pair.on[1].device or "")
        print(f"{share:.3f}  {pair.name}", flush=True)
        for (kind, shape, ours, theirs), count in differ.most_common(12 if asked else 0):
            print(f"       {count} x {kind} {shape}   ours {ours}   the compiler's {theirs}")


if __name__ == "__main__":
    main()
