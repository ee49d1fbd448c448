"""The pass `layer_order`: layers follow each other by number wherever they come by name, as in dictionaries of flax.

    update      u1 v1  u10 v10  u11 v11  u2 v2 ... u9 v9        blocks by name: a block is what stands between the
    here        u1 v1  u2 v2 ... u9 v9  u10 v10  u11 v11        members of one chain that has all layers, the head

So what is true of a layer and the next one is true of all (`repeated_layers.py`), and a search costs a few of them
(`fewer_layers.py`). Layers that are alike take the same time and memory in whichever order they run. Arguments stay.
Layers near the ends of the stack, which are in no chain, go along with the block that they follow. The last block has
no block behind it: it ends with its last op of a chain that the other blocks have, too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.program import ROOT, Program
from autopart.core.ragged import entries_of, pointers
from autopart.core.repeats.colours import path_without_digits
from autopart.core.repeats.repeated_layers import RepeatedLayers, repeated_layers

MOST_ALIKE = 16
"""Parts of a layer that are alike, at most. Where ops are alike more often, what repeats itself is no layer that has a
name: a permutation that is drawn for each head and block."""


@register_pass("layer_order")
@dataclass(frozen=True)
class LayerOrder(Pass):
    """Puts ops of layers that come by name in the order of the layers' numbers, where they may run in that order."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        by_name = _most_by_name(program.argument_names)
        if program.manual.names or not by_name:
            return program
        layers = repeated_layers(program, MOST_ALIKE * by_name)
        place = _places(program, layers) if layers is not None else np.arange(program.op_count)
        moves = place != np.arange(program.op_count)
        if not moves.any() or (moves & _tied(program)).any():
            return program
        moved = _moved(program, np.argsort(place, kind="stable"))
        return moved if _reads_what_is_there(moved) else program


def _most_by_name(names: Iterable[str]) -> int:
    """Of how many arguments that differ in numbers alone most come in another order than that of the numbers."""
    families: dict[str, list[list[int]]] = {}
    for name in names:
        families.setdefault(path_without_digits(name), []).append([int(n) for n in re.findall(r"\d+", name)])
    return max(
        (len(f) for f in families.values() if any(one > other for one, other in itertools.pairwise(f))), default=0
    )


def _places(program: Program, layers: RepeatedLayers) -> np.ndarray:
    """int64[ops]: ops in order of this are in order of layers: a block goes where the head has its block by number."""
    place, end = np.arange(program.op_count), 0
    for head in _heads(program, layers):
        if head[0] < end:
            continue
        end = _last_end(head, layers.chain)
        block = np.repeat(np.arange(len(head)), np.diff(np.append(head, end)))
        by_number = np.argsort(np.argsort(layers.layer[head]))
        place[head[0] : end] = head[by_number][block]
    return place


def _last_end(head: np.ndarray, chain: np.ndarray) -> int:
    """The op behind the last block; `chain[op]` is an op's chain, or -1."""
    longest = chain[head[-1] : head[-1] + np.diff(head).max()]
    others = np.unique(chain[head[0] : head[-1]])
    return int(head[-1] + np.flatnonzero((longest >= 0) & np.isin(longest, others))[-1]) + 1


def _heads(program: Program, layers: RepeatedLayers) -> list[np.ndarray]:
    """The chains, each the ops in program order, that have all layers but not in order; the first come first."""
    is_argument = np.zeros(program.op_count, np.bool_)
    is_argument[program.value_op[program.arguments]] = True
    chains = [row[row >= 0] for row in layers.table()]
    steps = [(ops, np.diff(ops)) for ops in chains if not is_argument[ops[0]]]
    heads = [np.sort(ops) for ops, step in steps if (step < 0).any() and (step > 0).any()]
    most = max(map(len, heads), default=0)
    return sorted((head for head in heads if len(head) == most), key=lambda head: int(head[0]))


def _tied(program: Program) -> np.ndarray:
    """bool[ops]: the op is an argument, or belongs to a loop, a branch or a barrier."""
    tied = program.op_scope != ROOT
    tied[[*program.owners, *program.owners.values(), *(scope.op for scope in program.scopes[1:])]] = True
    tied[program.value_op[program.arguments]] = True
    for barrier in program.barriers:
        tied[barrier.start : barrier.stop] = True
    return tied


def _moved(program: Program, ops: np.ndarray) -> Program:
    """The program with its ops in another order."""
    uses, values = entries_of(program.operand_ptr, ops), entries_of(program.result_ptr, ops)
    number = np.argsort(values)
    return replace(
        program,
        op_spec=program.op_spec[ops],
        operand_ptr=pointers(np.diff(program.operand_ptr)[ops]),
        operands=number[program.operands[uses]].astype(np.int32),
        result_ptr=pointers(np.diff(program.result_ptr)[ops]),
        arguments=number[program.arguments].tolist(),
        outputs=number[program.outputs].tolist(),
        tags={name: number[np.array(of, np.int64)].tolist() for name, of in program.tags.items()},
        source=None if program.source is None else program.source.rewritten(ops, np.full(len(ops), -1), ()),
    )


def _reads_what_is_there(program: Program) -> bool:
    """True if each op comes after all that it reads; a carry or an argument may read its next value."""
    reads_ahead = np.zeros(program.op_count, np.bool_)
    reads_ahead[[*program.owners, *program.value_op[program.arguments].tolist()]] = True
    return bool((reads_ahead[program.use_op] | (program.value_op[program.operands] < program.use_op)).all())
