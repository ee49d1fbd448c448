"""The kernels of a whole program, from those of one with fewer of its layers (`core/fewer_layers.py`).

    simulated     layers 1  2  3              8       kernels of layer 3: %q = dot %h %w, where %h is layer 2's
    whole         layers 1  2  3  4  5  6  7  8       of layer 6: %q = dot %h %w, where %h is layer 5's

Where reductions of the layers wait for each other in no order that repeats itself, no layer stands for others while a
step runs: all of them have to run. Their kernels are alike all the same, so fusion is worked out for few layers, and
nodes and buffers of the typical one are written down once for each that it stands for. Ops that run nothing and
leave nothing behind are left out: what a step walks through is as long as its kernels are many, not its ops.

Where the layers beside the typical one do not have the same kernels, or a kernel reads what is at no corresponding
place, there is no answer. Nor is there one for programs with loops, branches, barriers, images in parts or collectives
of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from autopart.core.fewer_layers import FewerLayers
from autopart.core.kernels import kernel
from autopart.core.like_ops import Like
from autopart.core.program import Program
from autopart.costmodel.simulator.arrays import MOVE_FIELDS, OP_FIELDS, USE_FIELDS, VALUE_FIELDS, LocalArrays
from autopart.costmodel.simulator.kernels.kernel_graph import NODE_FIELDS, READ_FIELDS, KernelGraph
from autopart.costmodel.simulator.kernels.local_graph import DeviceGraph
from autopart.costmodel.simulator.layers.alike_nodes import Seen, agree, look
from autopart.costmodel.simulator.layers.stack import Stack, reads_correspond
from autopart.costmodel.simulator.layers.unfold import Numbers, number, unfold
from autopart.costmodel.simulator.room import Empty


@dataclass(frozen=True, eq=False)
class AllLayers:
    """Makes the graph of a whole program; make it with `AllLayers.of`.

    passed   values of the whole program's arguments that a device is given
    """

    stack: Stack = field(repr=False)
    passed: np.ndarray = field(repr=False)

    @staticmethod
    def of(whole: Program, fewer: FewerLayers, like: Like) -> AllLayers | None:
        """None for programs of which it knows nothing; `like` from the whole program's ops to the others."""
        if len(whole.scopes) > 1 or whole.barriers:
            return None
        stack = Stack.of(whole, fewer, like)
        if not reads_correspond(stack, whole, fewer.program, like):
            return None
        return AllLayers(stack, np.array(whole.arguments, np.int64)[whole.passed_arguments])

    def unfolded(self, old: DeviceGraph, empty: Empty) -> tuple[DeviceGraph, np.ndarray] | None:
        """(the whole program's graph, its values of arguments that a device is given); None where layers differ."""
        if len(old.program.fences):
            return None
        seen, numbers = Seen.empty(old, len(self.stack.table), empty), Numbers.empty(len(self.stack.like) - 1, empty)
        if not _count(self.stack, old, seen, numbers):
            return None
        new = _empty(old, numbers, len(self.stack.output_value), empty)
        if not unfold(self.stack, old, seen, numbers, new):
            return None
        return new, numbers.value[numbers.number[self.stack.value_op[self.passed]]]


@kernel
def _count(stack: Stack, old: DeviceGraph, seen: Seen, numbers: Numbers) -> bool:
    """Fills in `seen` and `numbers`; False where layers do not agree."""
    look(stack, old, seen)
    if not agree(stack, old, seen):
        return False
    number(stack, old, seen, numbers)
    return True


def _empty(old: DeviceGraph, numbers: Numbers, outputs: int, empty: Empty) -> DeviceGraph:
    """Room for a graph of as much as is counted, of a program whose ops read nothing: its kernels do.

    What a step asks of operands stands with the nodes (`NODE_FIELDS`).
    """
    ops, values, moves, defs, nodes, reads, writes, structure = numbers.counts.tolist()
    program = old.program
    without = np.zeros(0, np.int32)
    return DeviceGraph(
        program._replace(
            operand_ptr=np.zeros(ops + 1, program.operand_ptr.dtype),
            result_ptr=empty(ops + 1, program.result_ptr.dtype),
            user_ptr=np.zeros(values + 1, program.user_ptr.dtype), user=np.zeros(0, program.user.dtype),
            ops=empty(ops, program.ops.dtype), values=empty(values, program.values.dtype),
            uses=np.zeros(1, program.uses.dtype), outputs=empty(outputs, program.outputs.dtype),
            structure=empty(structure, np.int32), carries=without, ended=without, views=without, spread=without,
            place=numbers.whole[: ops + 1],
        ),
        LocalArrays(
            values=empty(values, VALUE_FIELDS), moves=empty(moves, MOVE_FIELDS), uses=empty(outputs, USE_FIELDS),
            ops=empty(ops, OP_FIELDS),
            home=empty(values + moves + defs, np.int32),
        ),
        KernelGraph(
            empty(nodes, NODE_FIELDS), empty(reads, READ_FIELDS), empty(nodes + 1, np.int32),
            empty(nodes + 1, np.int32), empty(writes, np.int32),
        ),
        empty(defs, np.int32), empty(nodes, np.int32), empty(moves, np.bool_),
    )  # fmt: skip
