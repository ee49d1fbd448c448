"""Kernel by kernel: our seconds beside the compiler's, so that a difference has a cause.

    python -m experiments.simulator_accuracy.kernels "mixer BP v3:4x4"               compiles; needs libtpu
    python -m experiments.simulator_accuracy.kernels "mixer BP v3:4x4" mixer.hlo     keeps the compiler's text there

    ours ms      compiler ms
    23.8 (27)    24.6 (27)    matrix
     5.1 (61)     3.9 (70)    vector
     0.0  (0)     0.8  (2)    copy
     1.8  (3)     1.4  (3)    transpose(jvp(Mixer))/Mlp/down/dot_general

Kernels are matched by the scope that an op was traced in, which both sides keep; numbers are left out of it, since
equal ops of several layers are written once in the emitted program. A kernel that multiplies goes by its product.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

import autopart as ap
from autopart.costmodel.simulator.kernels.kernel_graph import KERNEL
from autopart.costmodel.simulator.simulator import Simulation
from autopart.costmodel.xla_compile import CLOCK_HZ, compile_device_local, topology_devices
from experiments.simulator_accuracy.outside_pairs import OutsidePair, outside_pairs
from experiments.simulator_accuracy.pairs import PAIRS, Pair

_KERNEL = re.compile(r'^\s+(?:ROOT )?%?\S+ = .*? ([\w\-]+)\(.*"estimated_cycles":"(\d+)"')
_CALLED = re.compile(r"calls=%?([\w.\-]+)")
_SCOPE = re.compile(r'op_name="[^"]*?jit\([^)]*\)/((?:transpose\(|jvp\(|[A-Za-z])[^"]*)"')
_PRODUCT = re.compile(r" (?:convolution|dot)\(")

Seconds = dict[str, list[float]]
"""Seconds of each kernel by class ("matrix", "vector", "copy") and by scope."""


def plain_scope(scope: str) -> str:
    """A scope without what differs between layers.

    >>> plain_scope("autopart_call/jit(step)/transpose(jvp(ViT))/Block_3/up/dot_general")
    'transpose(jvp(ViT))/Block/up/dot_general'
    """
    return re.sub(r"_?\d+", "", re.sub(r"^.*jit\([\w<>]+\)/", "", scope))


def compiler_seconds(hlo_text: str, clock_hz: float) -> Seconds:
    """From the optimised module: a loop's kernels count once."""
    multiplies, block = set[str](), ""
    for line in hlo_text.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            block = line.removeprefix("ENTRY ").split(" ")[0].lstrip("%")
        elif _PRODUCT.search(line):
            multiplies.add(block)
    found: Seconds = defaultdict(list)
    for line in hlo_text.splitlines():
        if kernel := _KERNEL.match(line):
            kind, seconds = kernel.group(1), int(kernel.group(2)) / clock_hz
            called, scope = _CALLED.search(line), _SCOPE.search(line)
            product = kind in ("convolution", "dot") or (called is not None and called.group(1) in multiplies)
            found["matrix" if product else "copy" if kind == "copy" else "vector"].append(seconds)
            found[plain_scope(scope.group(1)) if scope else f"({kind})"].append(seconds)
    return found


def our_seconds(run: Simulation) -> Seconds:
    """From a run of the simulator: a loop's kernels count once."""
    nodes, program = run.graph.nodes, run.local.program
    found: Seconds = defaultdict(list)
    for k in np.flatnonzero((nodes["kind"] == KERNEL) & (run.leader == np.arange(len(nodes)))).tolist():
        members = np.flatnonzero((run.leader == k) & (nodes["kind"] == KERNEL))
        multiplying = members[nodes["matrix_flop"][members] > 0]
        op = int(nodes["subject"][multiplying[0] if len(multiplying) else k])
        found["matrix" if len(multiplying) else "vector"].append(float(run.node_s[k]))
        found[plain_scope(program.where(op).split(" ", 1)[-1])].append(float(run.node_s[k]))
    return found


def table(ours: Seconds, compiler: Seconds, rows: int = 40) -> str:
    """Classes first, then the scopes that differ most."""
    classes = ("matrix", "vector", "copy")

    def difference(name: str) -> float:
        return abs(sum(ours.get(name, ())) - sum(compiler.get(name, ())))

    scopes = sorted((set(ours) | set(compiler)) - set(classes), key=lambda name: (-difference(name), name))
    lines = ["ours ms       compiler ms"]
    for name in (*classes, *scopes[:rows]):
        sides = [side.get(name, []) for side in (ours, compiler)]
        lines.append("    ".join(f"{1e3 * sum(s):7.2f} {f'({len(s)})':5}" for s in sides) + f"    {name}")
    return "\n".join(lines)


def compiled_text(low: ap.Lowered, topology: str, kept: Path | None) -> str:
    """The optimised module, from the file where it is kept if it is there."""
    if kept is not None and kept.exists():
        return kept.read_text()
    text = compile_device_local(low.program, topology_devices(topology), topology).as_text() or ""
    if kept is not None:
        kept.write_text(text)
    return text


def main() -> None:
    pairs: dict[str, Pair | OutsidePair] = {pair.name: pair for pair in (*PAIRS, *outside_pairs())}
    name, *rest = sys.argv[1:] or [""]
    if name not in pairs:
        sys.exit(f"{name!r} is no pair; there are: {', '.join(pairs)}")
    pair = pairs[name]
    low = pair.lower()
    text = compiled_text(low, pair.on[0], Path(rest[0]) if rest else None)
    kind = topology_devices(pair.on[0])[0].device_kind.lower()
    print(table(our_seconds(low.estimate.simulation), compiler_seconds(text, CLOCK_HZ[kind])))


if __name__ == "__main__":
    main()
