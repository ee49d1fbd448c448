"""A compiled step in the order in which its compiler has it, on two streams: kernels, and collectives beside them.

    %ag = all-gather-start(%w)        links     |--- gather ---|
    %f  = fusion(%x)                  compute   |-- fusion --|
    %d  = all-gather-done(%ag)        waits                  ->|
    %p  = custom-call(%d, %f)         compute                   |-- product --|

A collective begins where its `-start` stands, once the links are free; its `-done` waits for it, and one that the
compiler made synchronous is waited for at once. Collectives are those of the text, after combining, on the curves of
the mesh's links; kernels are rooflines (`gpu_kernels.py`). The trips of a loop take what its second one takes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from autopart.core.mesh import Mesh
from autopart.costmodel.hardware.devices import Device
from autopart.costmodel.xla.gpu_kernels import instruction_seconds, runs
from autopart.costmodel.xla.hlo_collectives import Collective, seconds, started_by
from autopart.costmodel.xla.optimised_hlo import Instruction, OptimisedHlo

_SYNCHRONOUS = '"is_sync":true'


@dataclass
class Replayed:
    """Seconds of a step.

    compute_s, link_s   of kernels and of collectives, each in turn
    step_s              of both streams
    collectives         each, with how often it runs
    """

    compute_s: float = 0.0
    link_s: float = 0.0
    step_s: float = 0.0
    collectives: Counter[Collective] = field(default_factory=Counter[Collective])


def replay(module: OptimisedHlo, mesh: Mesh, on: Device) -> Replayed:
    """What a step of `module` takes on `mesh`, its kernels on the device `on`. One walk over the text."""
    streams = _Streams(module, mesh, on)
    streams.run(module.entry, 1.0)
    streams.found.step_s = max(streams.now, streams.free)
    return streams.found


class _Streams:
    """`now`: when the kernels so far have ended; `free`: when the collectives have; `ends`: each that is under way."""

    def __init__(self, module: OptimisedHlo, mesh: Mesh, on: Device):
        self.module, self.mesh, self.on, self.found = module, mesh, on, Replayed()
        self.now = self.free = 0.0
        self.ends: dict[tuple[str, str], float] = {}
        self.known: dict[tuple[str, str], tuple[float, Collective | None]] = {}

    def run(self, computation: str, times: float) -> None:
        """One computation, `times` of which are counted."""
        for i in self.module.computations.get(computation, ()):
            if i.kind.endswith("-done") and i.operands:
                self.now = max(self.now, self.ends.pop((computation, i.operands[0]), 0.0))
                continue
            took, collective = self._seconds(i)
            if collective is not None:
                self._communicate(i, took, collective, times)
            elif i.kind in ("while", "call", "conditional", "async-start"):
                for called, trips in self.module.calls(i):
                    self._loop(called, trips, times)
            else:
                self.found.compute_s += took * times
                self.now += took

    def _loop(self, computation: str, trips: int, times: float) -> None:
        """`trips` runs of a computation: the first, and the others as the second."""
        if trips < 1:
            return
        self.run(computation, times)
        if trips > 1:
            before = self.now
            self.run(computation, times * (trips - 1))
            skipped = (trips - 2) * (self.now - before)
            self.now += skipped
            self.free += skipped

    def _communicate(self, i: Instruction, took: float, collective: Collective, times: float) -> None:
        self.found.link_s += took * times
        self.found.collectives[collective] += round(times)
        self.free = max(self.now, self.free) + took
        if i.kind.endswith("-start") and _SYNCHRONOUS not in i.line:
            self.ends[i.computation, i.name] = self.free
        else:
            self.now = self.free

    def _seconds(self, i: Instruction) -> tuple[float, Collective | None]:
        """What an instruction takes by itself, and the collective that it begins."""
        key = i.computation, i.name
        if key not in self.known:
            collective = started_by(self.module, i, self.mesh)
            if collective is not None:
                self.known[key] = seconds(collective, self.mesh), collective
            else:
                self.known[key] = instruction_seconds(self.module, i, self.on) if runs(i) else 0.0, None
        return self.known[key]
