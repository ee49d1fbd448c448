"""The pass `scanned_rows`: batches that are split into the steps of a loop are marked as such.

    %xs = reshape %x                       [64, D] -> [8, 8, D]      8 steps of 8 rows: gradient accumulation
    while ... dynamic_slice %xs, %i        one step                  [1, 8, D]

Were %xs tiled along the steps, every device would need every step in its turn, and do all of its work. So a tile of the
batch goes to the rows of a step: one exchange before the loop, where all steps are at hand. The reshape has the
attribute `steps`, the dim that counts them; a slice that reads a step has `rows`, pairs (dim of the steps, dim of the
rows), and by these its rule tiles rows only.

The split array is followed through what leaves its elements where they are, or turns its dims. It must have no readers
but slices that take single steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rules.reshape import groups
from autopart.core.passes.marks import marked
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.program import Program

_HANDS_ON = frozenset({"convert", "tag", "optimization_barrier"})


@register_pass("scanned_rows")
@dataclass(frozen=True)
class ScannedRows(Pass):
    """Marks reshapes that split a batch into steps, and the slices that read a step; nothing else changes."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        splits = [tuple(_splits(spec)) for spec in program.specs]
        marks: dict[int, dict[str, Any]] = {}
        for op in np.flatnonzero(np.array([bool(s) for s in splits], np.bool_)[program.op_spec]).tolist():
            for steps, rows in splits[program.op_spec[op]]:
                readers = _step_readers(program, int(program.result_ptr[op]), steps, rows)
                if readers:
                    marks.setdefault(op, {})["steps"] = steps
                    marks.update({reader: {"rows": pair} for reader, pair in readers.items()})
                    break
        return marked(program, marks)


def _splits(spec: OpSpec) -> Iterator[tuple[int, int]]:
    """(dim of the steps, dim of the rows) wherever a reshape splits one dim."""
    if spec.kind == "reshape" and 0 not in spec.operands[0].shape:
        for ours, theirs in groups(spec.operands[0].shape, spec.results[0].shape):
            if len(ours) == 1 < len(theirs):
                yield theirs[0], theirs[1]


def _step_readers(program: Program, value: int, steps: int, rows: int) -> dict[int, tuple[int, int]]:
    """Of each op that reads a step of the value, the dims of steps and rows; {} if anything else reads the value."""
    found: dict[int, tuple[int, int]] = {}
    pointer, uses = program.users
    if value in program.output_place or pointer[value] == pointer[value + 1]:
        return {}
    for use in uses[pointer[value] : pointer[value + 1]].tolist():
        op = int(program.use_op[use])
        spec = program.spec(op)
        if use != program.operand_ptr[op]:
            return {}
        if _takes_one(spec, steps):
            found[op] = (steps, rows)
            continue
        if spec.kind == "transpose":
            order = spec.attributes["permutation"]
            below = _step_readers(program, int(program.result_ptr[op]), order.index(steps), order.index(rows))
        elif spec.kind in _HANDS_ON:
            below = _step_readers(program, int(program.result_ptr[op]), steps, rows)
        else:
            return {}
        if not below:
            return {}
        found.update(below)
    return found


def _takes_one(spec: OpSpec, steps: int) -> bool:
    return spec.kind in ("dynamic_slice", "slice") and spec.results[0].shape[steps] == 1
