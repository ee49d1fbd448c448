"""Weights that a convolution reads reversed: they are gathered before they are turned around.

    %w [{},{},{B},{}]              stored in parts
    %r = reverse %w, dims 0 and 1  loops "B"          its own kernel, on each part
    convolution %dy, %r            reads all of %r    all_gather %r
    -> no loop                     all_gather %w, and a convolution whose window is turned around: no kernel

A compiler does what a convolution reads reversed by the window, but not through a gather that stands between the two.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from autopart.base.jit.kernels import kernel
from autopart.core.loop_nests import NO_MAPPING
from autopart.spmd.gathered_slices import reads_tile
from autopart.spmd.pending import Given


@kernel
def gather_reversed(given: Given) -> None:
    """Takes away the loops of such reversals; changes `given.nests.state`, a copy."""
    graph, state = given.nests.graph, given.nests.state
    for value in range(graph.value_op.shape[0]):
        op = graph.value_op[value]
        if not given.passages.reverses[graph.op_spec[op]] or given.is_output[value]:
            continue
        for axis in range(state.mapping.shape[1]):
            loops = state.mapping[op, axis] >= 0 and state.action[value, axis] == 0
            is_stored = given.stored[graph.operands[graph.operand_ptr[op]]]
            if loops and is_stored and _is_read_by_windows(given, value, axis):
                state.mapping[op, axis] = NO_MAPPING


@kernel
def _is_read_by_windows(given: Given, value: int, axis: int) -> bool:
    """True if convolutions alone read the value, and all of it on the axis."""
    graph = given.nests.graph
    for i in range(graph.user_ptr[value], graph.user_ptr[value + 1]):
        use = graph.user[i]
        reader = graph.use_op[use]
        if graph.is_argument[reader] or not given.passages.windows[graph.op_spec[reader]]:
            return False
        if reads_tile(given, use, axis):
            return False
    return graph.user_ptr[value + 1] > graph.user_ptr[value]
