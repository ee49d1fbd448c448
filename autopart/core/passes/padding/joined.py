"""An op one of whose factors is longer, and what it makes and reads along it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from autopart.core.op import REDUCTION_NAMES, WHOLE, TileMapping
from autopart.core.program import Program


class Joined(NamedTuple):
    """An op, the factor of it that is longer, and its new length."""

    op: int
    mapping: TileMapping
    length: int

    def results(self, program: Program) -> Iterator[tuple[int, int, int]]:
        """(value, dim, new size) of what it makes."""
        return self._longer(program, program.results_of(self.op), self.mapping.results)

    def operands(self, program: Program) -> Iterator[tuple[int, int, int]]:
        """(value, dim, new size) of what it reads."""
        return self._longer(program, program.operands_of(self.op).tolist(), self.mapping.operands)

    def _longer(
        self, program: Program, values: Iterable[int], entries: Iterable[int]
    ) -> Iterator[tuple[int, int, int]]:
        for value, dim in zip(values, entries, strict=True):
            if dim != WHOLE and dim not in REDUCTION_NAMES:
                yield value, dim, program.type_of(value).shape[dim] * self.length // self.mapping.extent
