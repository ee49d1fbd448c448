"""What a device copies by itself for a step: the arrays that each copy reads and writes.

    stacked all_gather to 12 x 1024 x 4096, of tiles 3 x 1024 x 2048
        read      4 x 2 x 3 x 1024 x 2048
        written   4 x 3 x 1024 x 2 x 2048    rows of two pieces: a layout tile of 8 rows is a quarter full
        read      4 x 3 x 1024 x 2 x 2048
        written   12 x 1024 x 4096           where the minor dim is joined, memory in tiles is put into whole ones again

Where elements stay in their order and in their tiles, a regrouping costs nothing. A collective along one dim copies
nothing if the device has `strided` collectives; else it works along the major dim, and what it takes or leaves is
copied as if the step were stacked. An all_to_all always does. What an all_reduce gathers is read, and reduced, once.

Seen in programs compiled by libtpu 0.0.51 (`python -m experiments.local_moves`), and XLA's GPU backend lays out what a
collective works on such that its dim is the major one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from autopart.spmd.redistribution.emission import Regroup, Shape, emission
from autopart.spmd.redistribution.step import Step

MOVING = ("all_gather", "all_to_all", "reduce_scatter")
"""Kinds of step that may need copies: the others leave all elements where they are in their tile."""


class Held(NamedTuple):
    """A local array in memory; `in_order` if it moves in whole tiles of its last two dims, however few rows they have.

    Else the compiler orders the dims, and makes tiles of few rows smaller.
    """

    shape: Shape
    in_order: bool = False


class Copy(NamedTuple):
    """A local copy: what it reads and what it writes."""

    read: Held
    written: Held


def local_copies(step: Step, *, strided: bool, tiled: bool) -> tuple[tuple[Copy, ...], tuple[Copy, ...]]:
    """The copies before and after the collective of a step, in order.

    strided  collectives work along any dim in place
    tiled    arrays stand in memory in layout tiles
    """
    if step.gathers:
        return (), (Copy(Held(emission(step).shape), Held(step.target.local_shape)),)
    if step.kind not in MOVING or (strided and not step.stacked and step.kind != "all_to_all"):
        return (), ()
    how = emission(step if step.stacked else replace(step, stacked=True))
    source, target = step.source.local_shape, step.target.local_shape
    before = (Copy(Held(source), Held(how.before.result)),) if how.before and how.before.moves else ()
    after = _joined(how.after, tiled) if how.after else ()
    if before and not after and not step.stacked and step.kind == "all_to_all":
        after = (Copy(Held(target), Held(target)),)
    return before, after


def _joined(how: Regroup, tiled: bool) -> tuple[Copy, ...]:
    """A copy if elements change places; in tiles another one where the minor dim is joined, from rows of its pieces."""
    if not tiled or _minor(how.result) == _minor(how.written):
        return (Copy(Held(how.read), Held(how.result)),) if how.moves else ()
    into_tiles = Copy(Held(how.written), Held(how.result))
    return (Copy(Held(how.read), Held(how.written, in_order=True)), into_tiles) if how.moves else (into_tiles,)


def _minor(shape: Shape) -> int:
    """The size of the minor-most dim that has more than one element."""
    return next((n for n in reversed(shape) if n > 1), 1)
