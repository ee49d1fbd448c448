"""Loops whose turns keep on the chip what the next turn reads.

    while                       once:  %w, bf16[1024, 4096], is brought to the chip
      %y = dot %h %w            each turn reads %w there
      %s' = add %s %g           %s, which the loop carries, stays there too
      %x = slice %xs[turn]      another part each turn: from HBM

A turn does so if all that it reads and writes takes at most `CARRIED_SHARE` of the memory on the chip. Of what it
reads in parts only a part counts, unless another op reads all of it, as logits do a table of which rows are looked
up; of what it writes in place what it reads, and what never leaves a kernel does not count. Loops with loops or
branches inside are left out. Forward on v5e with libtpu 0.0.51, an LSTM of 512 takes 0.79 of the compiler's seconds
so (2.25 without), one of 1280 0.75 (3.37), and a GRU of 768 0.71 (1.97), all in bf16.

Where the compiler says what lies on the chip, it brings an argument there ahead of its reader if what runs meanwhile
takes as long and there is room: before the loop, so that the argument stays, else in each turn. A decoding loop with
nothing before it reads its first weights from HBM in each turn, those after them on the chip. Found with libtpu 0.0.51
on v5e, loops of 3 to 12 products of 0.5 to 67 MB, 24 rows each:

    while                       nothing before it: in each turn
      %y = dot %x %w1           33.6 MB from HBM, 58 us
      %z = dot %y %w2           33.6 MB, 41 us from HBM, that are brought while %y is made: 7.5 us

A product that reads what no other kernel reads of another's runs in one kernel with that one, which waits for the
weights of both.

Weights in f32 that the products of a turn round to bf16 are rounded before the loop, and count as bf16
(`kernel_graph.ROUNDED`): forward and back, a world model with weights of 42 MB takes 0.93 of the compiler's seconds so,
1.47 where what never leaves a kernel counts, and 1.61 if weights stay f32.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import BODY, CARRIED_SHARE, ProgramArrays, Records
from autopart.costmodel.compiled.facts.op_classes import UPDATE
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL, OVERWRITTEN, KernelGraph


@kernel
def turns_on_chip(
    program: ProgramArrays,
    graph: KernelGraph,
    taken_bytes: np.ndarray,
    on_chip_bytes: float,
    cache: Records,
    held: np.ndarray,
    room: np.ndarray,
) -> None:
    """Fills in held[scope]: how many turns a loop has that leaves what they read on the chip; 0 for other scopes; and
    room[scope]: bytes of the chip that a loop leaves for the arguments that it reads.

    taken_bytes[b]   of buffer b, 0 where it is written into another's memory
    cache            `seen` is scratch, -1 before and after; so is `touched_at`, -inf: what a loop is known to read
    """
    scopes, loops = program.scopes, False
    for scope in range(held.shape[0]):
        held[scope], room[scope] = 0.0, CARRIED_SHARE * on_chip_bytes
        loops = loops or scopes.scope_kind[scope] == BODY
    if not loops:
        return
    for k in range(graph.nodes.shape[0]):
        scope = graph.nodes.scope[k]
        if scopes.scope_kind[scope] == BODY:
            updates = graph.nodes.kind[k] == KERNEL and program.ops.op_class[graph.nodes.subject[k]] == UPDATE
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                buffer = graph.write_buffer[i]
                held[scope] += taken_bytes[buffer]
                room[scope] -= taken_bytes[buffer]
                if taken_bytes[buffer] > 0 or not updates:
                    cache.seen[buffer], cache.touched_at[buffer] = scope, np.inf
    for k in range(graph.nodes.shape[0]):
        scope = graph.nodes.scope[k]
        if scopes.scope_kind[scope] == BODY:
            for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
                buffer = graph.reads.read_buffer[i]
                if graph.reads.read_how[i] & OVERWRITTEN:
                    continue
                known = cache.touched_at[buffer] if cache.seen[buffer] == scope else 0.0
                more = max(0.0, graph.reads.read_bytes[i] - known)
                held[scope] += more
                if not is_argument(program, buffer):
                    room[scope] -= more
                cache.seen[buffer], cache.touched_at[buffer] = scope, max(known, graph.reads.read_bytes[i])
    for k in range(graph.nodes.shape[0]):
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            cache.seen[graph.reads.read_buffer[i]], cache.touched_at[graph.reads.read_buffer[i]] = -1, -np.inf
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            cache.seen[graph.write_buffer[i]], cache.touched_at[graph.write_buffer[i]] = -1, -np.inf
    for scope in range(held.shape[0]):
        fits = scopes.scope_kind[scope] == BODY and held[scope] <= CARRIED_SHARE * on_chip_bytes
        held[scope] = scopes.scope_trips[scope] if fits else 0.0
    for scope in range(1, held.shape[0]):
        held[scopes.scope_parent[scope]] = 0.0


@kernel
def share_on_chip(
    program: ProgramArrays,
    scope: int,
    read_bytes: float,
    is_given: bool,
    held: np.ndarray,
    elapsed: np.ndarray,
    began_s: float,
    hbm_bytes_per_s: float,
    room_bytes: float,
) -> float:
    """Of all turns of a loop, the share in which a kernel of it finds on the chip what it reads whole.

    is_given   what it reads is an argument, which the compiler brings there beside what runs before: `began_s` of this
               turn, `elapsed[scope]` of what surrounds the loop
    """
    turns = held[scope]
    if not is_given:
        return 1.0 - 1.0 / turns if turns > 0 else 0.0
    scopes, load_s = program.scopes, read_bytes / hbm_bytes_per_s
    if turns > 0 and elapsed[scopes.scope_parent[scope]] >= load_s:
        return 1.0 - 1.0 / turns
    fits = scopes.scope_kind[scope] == BODY and read_bytes <= room_bytes
    return 1.0 if fits and began_s >= load_s else 0.0


@kernel
def is_argument(program: ProgramArrays, buffer: int) -> bool:
    """True for the buffer of an argument of the program."""
    return buffer < program.values.shape[0] and program.ops.is_argument[program.values.value_op[buffer]]
