"""How many ops a program becomes once its calls are inlined, counted before any is.

    @f0 { call @f1; call @f1 }    steps(f0) = 2 * (1 + steps(f1)) = 2^(n+1) - 2, each function counted once
    @f1 { call @f2; call @f2 }
    @a { call @b }  @b { call @a }    ProgramError: @a -> @b -> @a

A call is one step more than its callee's, so that calls of empty functions count too.
"""

from __future__ import annotations

from collections.abc import Callable

from autopart.base.errors import ProgramError
from autopart.base.limits import Gauge
from autopart.core.importer.template import Block, Callee


class CallGraph:
    """Counts steps per function; `template(callee)` reads a function."""

    def __init__(self, template: Callable[[Callee], Block], gauge: Gauge):
        self._template, self._gauge = template, gauge
        self._steps: dict[Callee, int] = {}
        self._path: list[Callee] = []

    def steps(self, callee: Callee) -> int:
        """Ops and calls of a function, inlined, exactly.

        Raises `ProgramError` where a function calls itself, or calls nest too deeply.
        """
        if callee in self._steps:
            return self._steps[callee]
        if callee in self._path:
            cycle = [f"@{c.name}" for c in (*self._path[self._path.index(callee) :], callee)]
            raise ProgramError(
                f"function @{callee.name} calls itself",
                why=" -> ".join(cycle if len(cycle) < 9 else [*cycle[:4], "@...", cycle[-1]]),
                hint="calls are inlined; write the recursion as a stablehlo.while",
            )
        self._path.append(callee)
        self._gauge.check_depth(len(self._path) - 1, "calls")
        self._steps[callee] = self._block(self._template(callee))
        self._path.pop()
        return self._steps[callee]

    def _block(self, block: Block) -> int:
        count = len(block.ops)
        for op in block.ops:
            if op.callee:
                count += self.steps(op.callee)
            if op.blocks:
                count += sum(self._block(inner) + len(inner.arguments) for inner in op.blocks)
        return count
