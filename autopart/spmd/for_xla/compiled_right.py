"""What XLA compiles wrongly in some surroundings, in surroundings in which it does not.

    ops that take indices        dynamic slices that XLA merges without a clamp          `spmd/for_xla/index_ranges.py`
    updates                      that read what they overwrite, in place                 `spmd/emission/own_updates.py`
    Fourier transforms           of which XLA's CPU backend knows one layout, while collectives ask for another
    max and min over devices     which drop NaN on CPUs                                  `spmd/for_xla/nan_extremes.py`

Plain programs meet these too, rarely: it is the parts on one device, and what stands between them, that make slices,
views and collectives of a program that has none.
"""

from __future__ import annotations

from collections.abc import Sequence

from autopart.core.doors.jax_internals import ir, row_major
from autopart.spmd.emission.own_updates import UPDATES, settle_own_updates
from autopart.spmd.for_xla.index_ranges import is_by_index, keep_indices_in_range
from autopart.spmd.for_xla.nan_extremes import keep_nan_extremes

_TRANSFORM = "stablehlo.fft"


def is_watched(op: ir.Operation) -> bool:
    """True for an op that `compile_right` wants to know of."""
    return op.name == _TRANSFORM or is_by_index(op)


def compile_right(slices: Sequence[ir.Operation], watched: Sequence[ir.Operation], devices: int, moves: bool) -> None:
    """Rewrites what XLA would compile wrongly.

    `slices` are those that redistributions made, `watched` all others of the program, in order. `devices` bounds the
    partition number; `moves` says whether there are collectives.
    """
    settle_own_updates([op for op in watched if op.name in UPDATES])
    if moves:
        for op in watched:
            if op.name == _TRANSFORM:
                _lay_out(op)
    keep_indices_in_range([*slices, *(op for op in watched if is_by_index(op))], devices)


def compile_right_on_cpu(module: ir.Module) -> None:
    """Rewrites in a whole module what XLA compiles wrongly for CPUs alone: the text of the program does not show it."""
    keep_nan_extremes(module)


def _lay_out(transform: ir.Operation) -> None:
    """Keeps the layouts that collectives ask for away from a transform."""
    result = transform.results[0]
    uses = [(use.owner, use.operand_number) for use in result.uses]
    with ir.InsertionPoint.after(transform), transform.location:
        laid_out = row_major(result)
    for reader, operand in uses:
        reader.operands[operand] = laid_out
