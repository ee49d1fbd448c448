"""The pass `scanned_rows`: batches that are split into the steps of a loop are marked as such.

    %xs = reshape %x                       [64, D] -> [8, 8, D]      8 steps of 8 rows: gradient accumulation
    while ... dynamic_slice %xs, %i        one step                  [1, 8, D]

Were %xs tiled along the steps, every device would need every step in its turn, and do all of its work. So a tile of the
batch goes to the rows of a step: one exchange before the loop, where all steps are at hand. The reshape has the
attribute `steps`, the dim that counts them; a slice that reads a step has `rows`, pairs (dim of the steps, dim of the
rows), and by these its rule tiles rows only.

    %xs = reshape (gather %x, %i)      ->      gather %x, (reshape %i)       rows that are looked up: shuffled batches

The split array is followed through what leaves its elements where they are, or turns its dims. It must have no readers
but slices that take single steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autopart.core.op import OpSpec
from autopart.core.ops.rules.reshape import groups
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import register_pass

_HANDS_ON = ("convert", "tag", "optimization_barrier")


@register_pass("scanned_rows")
@dataclass(frozen=True)
class ScannedRows(PatternPass):
    """Marks reshapes that split a batch into steps, and the slices that read a step; nothing else changes."""

    roots = ("reshape",)

    def wanted(self, spec: OpSpec) -> bool:
        """See `PatternPass.wanted`."""
        return any(_splits(spec))

    def rewrite(self, at: PatternRewriter, op: int) -> None:
        """See `PatternPass.rewrite`."""
        for steps, rows in _splits(at.spec(op)):
            readers = _step_readers(at, at.rewriting.results(op)[0], steps, rows)
            if readers:
                looked_up = _looked_up(at, op, steps)
                if looked_up is None:
                    at.mark(op, steps=steps)
                for reader, pair in readers.items():
                    at.mark(reader, rows=pair)
                if looked_up is not None:
                    at.replace(op, looked_up)
                return


def _looked_up(at: PatternRewriter, op: int, steps: int) -> int | None:
    """Steps of rows that are looked up for them alone: at indices that are split into steps, which are small."""
    [value], [result] = at.operands(op), at.spec(op).results
    spec = at.made_by(value, "gather")
    if spec is None or at.only_readers(value, "reshape") != [op]:
        return None
    numbers, shape, made = spec.attributes["dimension_numbers"], spec.operands[1].shape, spec.results[0].shape
    batch = [d for d in range(len(made)) if d not in numbers["offset_dims"]]
    if batch != [steps] or numbers["index_vector_dim"] != 1 != len(shape) or len(result.shape) != len(made) + 1:
        return None
    table, indices = at.operands(at.maker(value))
    split = at.reshape(indices, (*result.shape[steps : steps + 2], *shape[1:]))
    at.rewriting.mark(split, "steps", 0)
    offsets = [d + (d > steps) for d in numbers["offset_dims"]]
    moved = {**numbers, "offset_dims": offsets, "index_vector_dim": 2}
    return at.again(at.maker(value), [table, split], [result], dimension_numbers=moved)[0]


def _splits(spec: OpSpec) -> Iterator[tuple[int, int]]:
    """(dim of the steps, dim of the rows) wherever a reshape splits one dim."""
    if 0 not in spec.operands[0].shape:
        for ours, theirs in groups(spec.operands[0].shape, spec.results[0].shape):
            if len(ours) == 1 < len(theirs):
                yield theirs[0], theirs[1]


def _step_readers(at: PatternRewriter, value: int, steps: int, rows: int) -> dict[int, tuple[int, int]]:
    """Of each op that reads a step of the value, the dims of steps and rows; {} if anything else reads the value."""
    found: dict[int, tuple[int, int]] = {}
    if at.rewriting.is_returned(value):
        return {}
    for op in at.rewriting.readers(value):
        spec = at.spec(op)
        dims = steps, rows
        if at.operands(op).index(value) != 0:
            return {}
        if _takes_one(spec, steps):
            found[op] = dims
            continue
        if spec.kind == "transpose":
            order = spec.attributes["permutation"]
            dims = order.index(steps), order.index(rows)
        elif spec.kind not in _HANDS_ON:
            return {}
        below = _step_readers(at, at.rewriting.results(op)[0], *dims)
        if not below:
            return {}
        found.update(below)
    return found


def _takes_one(spec: OpSpec, steps: int) -> bool:
    return spec.kind in ("dynamic_slice", "slice") and spec.results[0].shape[steps] == 1
