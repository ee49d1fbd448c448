"""The pass `own_outputs`: each output is a value of its own, of which a sharding can be asked.

    def step(frozen, x): return frozen, x @ frozen      an argument comes back
                                                        frozen            in_shardings=(P("data"), ...)
                                                        tag(frozen)       out_shardings=(P(None, "data"), ...)

What an argument, another output or a constraint in the model is laid out by would otherwise be what the output is laid
out by. A tied output stays as it is: the argument that it updates is to have its layout.
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.core.op import OpSpec
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.program import ROOT, Program


@register_pass("own_outputs")
@dataclass(frozen=True)
class OwnOutputs(Pass):
    """Puts a tag without a name behind what is returned, where other decisions are made about it too."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        rewriting = Rewriting(program)
        seen = {program.outputs[position] for position in program.ties}
        for position, value in enumerate(program.outputs):
            op = int(program.value_op[value])
            if position not in program.ties and (program.spec(op).kind in ("argument", "tag") or value in seen):
                type_ = program.type_of(value)
                spec = rewriting.spec(OpSpec("tag", {}, (type_,), (type_,)))
                (own,) = rewriting.add(spec, [value], ROOT, program.op_count, op)
                rewriting.returns_at(position, own)
            seen.add(value)
        return rewriting.program()
