"""PartIR:HLO as text: the device-local program with collectives over mesh axes.

func @main(%x: tensor<64x8xf32>, %w1: tensor<2x8xf32>) mesh {"B":4, "M":2} {
  %w1.g0 = all_gather [{"B"},{}] %w1 : tensor<8x8xf32>
  %2 = dot_general(%x, %w1.g0) : tensor<64x8xf32>
  return %2
}
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager

from autopart.base.quoting import one_line
from autopart.core.control_flow import Branches, Loop, Region
from autopart.core.table.text import op_text, tensor, value_names
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.emission.walk import Walk
from autopart.spmd.redistribution import Plan


def hlo_text(local: DeviceLocal, lines: bool = False) -> str:
    """The device-local program as PartIR:HLO; with `lines`, each op is followed by where it is written."""
    return "\n".join(map(one_line, _Printer(local, lines).program()))


class _Printer:
    """A visitor for which names stand for values: %x, or %x.r0 where it has been redistributed."""

    def __init__(self, local: DeviceLocal, lines: bool = False):
        self._local, self._program, self._show_lines = local, local.program, lines
        self._names = dict(enumerate(value_names(local.program)))
        self._walk = Walk(local, self, self._names)
        self._count: defaultdict[int, int] = defaultdict(int)
        self._lines: list[str] = []
        self._depth = 0

    def program(self) -> list[str]:
        local, program = self._local, self._program
        arguments = ", ".join(
            f"{self._names[v]}: {tensor(local.local_type(v, int(local.settled[v])))}" for v in program.arguments
        )
        axes = ", ".join(f'"{n}":{s}' for n, s in local.mesh.shape.items())
        with self._block(f"func @main({arguments}) mesh {{{axes}}}"):
            self._line(f"return {', '.join(self._walk.program())}")
        return self._lines

    # ---- what the walk asks for

    def op(self, op: int, kind: str) -> None:
        local, results = self._local, self._walk.results(op)
        left = ", ".join(self._names[v] for v in results)
        types = ", ".join(tensor(local.local_type(v, int(local.native[v]))) for v in results)
        text = op_text(self._program.spec(op), self._walk.operands(op))
        where = self._program.where(op) if self._show_lines else ""
        note = f"  // {where}" if where else ""
        self._line(f"{left}{' = ' if left else ''}{text}{' : ' + types if types else ''}{note}")
        for value in results:
            self._walk.define(value, self._names[value])

    def loop(self, loop: Loop) -> None:
        results = ", ".join(self._names[carry.after] for carry in loop.carries)
        title = f"while({', '.join(self._walk.operands(loop.op))}) trips={loop.body.scope.trips}"
        with self._block(title, f" -> {results}" if results else ""):
            for carry in loop.carries:
                kind = tensor(self._local.local_type(carry.inside, int(self._local.settled[carry.inside])))
                self._line(f"{self._names[carry.inside]} = carry({self._walk.read(carry.initial)}) : {kind}")
                self._walk.define(carry.inside, self._names[carry.inside])
            self._region(loop.condition)
            self._region(loop.body)
        for carry in loop.carries:
            self._walk.define(carry.after, self._names[carry.after])

    def branches(self, case: Branches) -> None:
        with self._block(f"case({', '.join(self._walk.operands(case.op))})"):
            for branch in case.branches:
                self._region(branch)
        for join in case.joins:
            self.op(join, "join")

    def redistribute(self, number: int, value: int, plan: Plan) -> str:
        return self.settle(value, self._names[value], plan)

    def settle(self, value: int, left: str, plan: Plan) -> str:
        dtype = self._program.type_of(value).dtype
        for step in plan.steps:
            fresh = f"{self._names[value].split('.r')[0]}.r{self._count[value]}"
            self._count[value] += 1
            shape = "x".join([*map(str, step.left_shape), dtype])
            self._line(f"{fresh} = {step.text()} {left} : tensor<{shape}>")
            left = fresh
        return left

    # ---- lines

    def _region(self, region: Region) -> None:
        with self._block(region.scope.kind):
            returned = self._walk.region(region)
            if region.scope.kind == "body":
                self._line(f"yield {', '.join(returned)}")

    @contextmanager
    def _block(self, title: str, after: str = "") -> Generator[None]:
        self._line(f"{title} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self._line(f"}}{after}")

    def _line(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)
