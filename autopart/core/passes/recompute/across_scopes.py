"""What the scopes of one program have in common: looked for once, however many scopes are taken apart.

    whole.views[a:b]       the views among some ops            whole.loop(op)     the loop at an op
    whole.shown[v]         the value whose memory v is         whole.size[v]      bytes of its own

A scope is a stretch of ops, so it is a stretch of values and of uses too; with this, looking at it costs its length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autopart.core.control_flow import Loop, loop_of
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Constant, Structural, View
from autopart.core.program import Program


@dataclass(frozen=True)
class WholeProgram:
    """A program, and what is looked for in all of it; see the module."""

    program: Program
    _loops: dict[int, Loop] = field(default_factory=dict[int, Loop], repr=False)

    @cached_property
    def views(self) -> np.ndarray:
        """int64: the ops that show their one operand under another name, in order."""
        specs = self.program.specs
        views = np.array([isinstance(traits_of(s), View) and len(s.operands) == 1 for s in specs], np.bool_)
        return np.flatnonzero(views[self.program.op_spec])

    @cached_property
    def shown(self) -> np.ndarray:
        """int64[values]: the value whose memory each is, itself where it is no view."""
        program, shown = self.program, list(range(self.program.value_count))
        reads, makes = program.operands[program.operand_ptr[self.views]], program.result_ptr[self.views]
        for read, made in zip(reads.tolist(), makes.tolist(), strict=True):
            shown[made] = shown[read]
        return np.array(shown, np.int64)

    @cached_property
    def size(self) -> np.ndarray:
        """float64[values]: bytes of each, without those that are no memory of their own."""
        specs = self.program.specs
        sizes = [0.0 if _no_memory(spec) else result.bytes for spec in specs for result in spec.results]
        return np.array(sizes, np.float64)[self.program.value_type_row]

    @cached_property
    def inside_loops(self) -> np.ndarray:
        """bool[values]: what a carry is inside its loop."""
        inside = np.zeros(self.program.value_count, np.bool_)
        carries = [op for op in self.program.owners if self.program.spec(op).kind == "carry"]
        inside[self.program.result_ptr[carries]] = True
        return inside

    @cached_property
    def saved_by_user(self) -> np.ndarray:
        """bool[values]: the value goes through a barrier of the model, as what `jax.checkpoint` saves does."""
        program, saved = self.program, np.zeros(self.program.value_count, np.bool_)
        for parts in program.barriers:
            saved[program.operands[program.operand_ptr[parts.start] : program.operand_ptr[parts.stop]]] = True
        return saved

    @cached_property
    def barriers(self) -> np.ndarray:
        """int64[barriers, 2]: the first op of each barrier and the op after its last one, in order."""
        return np.array([(parts.start, parts.stop) for parts in self.program.barriers], np.int64).reshape(-1, 2)

    @cached_property
    def argument_number(self) -> np.ndarray:
        """int64[values]: the position of each argument, -1 for other values."""
        number = np.full(self.program.value_count, -1, np.int64)
        number[self.program.arguments] = np.arange(len(self.program.arguments))
        return number

    @cached_property
    def whiles(self) -> np.ndarray:
        """int64: the ops that mark loops, in order."""
        marks = [op for op in self.program.inner_scopes if self.program.spec(op).kind == "while"]
        return np.array(sorted(marks), np.int64)

    def loop(self, op: int) -> Loop:
        """The loop that the while at `op` marks."""
        if op not in self._loops:
            self._loops[op] = loop_of(self.program, op)
        return self._loops[op]


def _no_memory(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    if isinstance(traits, Structural):
        return spec.kind not in ("carry", "join")
    return isinstance(traits, View | Constant) or (traits.cloned_per_use and not any(t.shape for t in spec.operands))
