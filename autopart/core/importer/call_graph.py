"""How many ops a program becomes once its calls are inlined, counted before any is.

    @f0 { call @f1; call @f1 }    steps(f0) = 2 * (1 + steps(f1)) = 2^(n+1) - 2, each function counted once
    @f1 { call @f2; call @f2 }
    @a { call @b }  @b { call @a }    ProgramError: @a -> @b -> @a

A call is one step more than its callee's, so that calls of empty functions count too.
"""

from __future__ import annotations

from collections.abc import Callable

from autopart.core.errors import ProgramError
from autopart.core.importer.template import Block
from autopart.core.limits import Gauge


class CallGraph:
    """Counts steps per function; `template(name)` reads a function."""

    def __init__(self, template: Callable[[str], Block], gauge: Gauge):
        self._template, self._gauge = template, gauge
        self._steps: dict[str, int] = {}
        self._path: list[str] = []

    def steps(self, name: str) -> int:
        """Ops and calls of function `name`, inlined, exactly.

        Raises `ProgramError` where a function calls itself, or calls nest too deeply.
        """
        if name in self._steps:
            return self._steps[name]
        if name in self._path:
            cycle = [*self._path[self._path.index(name) :], name]
            raise ProgramError(
                f"function @{name} calls itself",
                why=" -> ".join(f"@{n}" for n in (cycle if len(cycle) < 9 else [*cycle[:4], "...", cycle[-1]])),
                hint="calls are inlined; write the recursion as a stablehlo.while",
            )
        self._path.append(name)
        self._gauge.check_depth(len(self._path) - 1, "calls")
        self._steps[name] = self._block(self._template(name))
        self._path.pop()
        return self._steps[name]

    def _block(self, block: Block) -> int:
        count = len(block.ops)
        for op in block.ops:
            if op.callee:
                count += self.steps(op.callee)
            if op.blocks:
                count += sum(self._block(inner) + len(inner.arguments) for inner in op.blocks)
        return count
