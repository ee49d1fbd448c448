"""The pass `equal_products`: a product that is written twice, with equal operands, is computed once.

    loss, grads = jax.value_and_grad(loss_of)(params, x)         %p = dot %x %w    %h = tanh %p    ...
    logits = model(params, x)                                    %q = dot %x %w    %g = tanh %q    %q is %p, %g is %h

Products are equal if they are of one kind, stand in one scope, and read equal values; so is what is computed of them.
Compilers find this out, too, so that an estimate would be of work that nobody does, and a search would decide the same
thing twice. What is equal without any product stays as it is: it costs little, and each reader may want it in a tiling
of its own. What stands behind another barrier is another value: it is computed again on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import has_effect, traits_of
from autopart.core.ops.traits import Collective, Constant, Convolution, Matmul, Structural, View
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewriting import Rewriting
from autopart.core.program import Program


@register_pass("equal_products")
@dataclass(frozen=True)
class EqualProducts(Pass):
    """Readers of a product that was computed before, and of what is computed of it, read what was computed before."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        same = equal_values(program)
        rewriting = Rewriting(program)
        for value in np.flatnonzero(same != np.arange(len(same))).tolist():
            rewriting.replace(value, int(same[value]))
        return rewriting.program()


def equal_values(program: Program) -> np.ndarray:
    """int32[values]: the first value that is equal to each, if that is a product, or computed of equal products.

    Constants are equal whatever scope they stand in. Each op is looked at once.
    """
    products = [isinstance(traits_of(spec), (Matmul, Convolution)) for spec in program.specs]
    values = np.arange(program.value_count, dtype=np.int32)
    kinds = np.stack([program.op_spec, program.op_scope])[:, np.array(products, np.bool_)[program.op_spec]]
    if len(np.unique(kinds, axis=1).T) == kinds.shape[1]:
        return values
    constant = [isinstance(traits_of(spec), Constant) for spec in program.specs]
    alike, apart = (
        [*map(_may_be_equal, program.specs)],
        {*program.value_op[program.arguments].tolist(), *program.owners},
    )
    same, taken, first = values.tolist(), set[int](), dict[tuple[int, ...], range]()
    reads, operands = program.operand_ptr.tolist(), program.operands.tolist()
    for op, (spec, scope) in enumerate(zip(program.op_spec.tolist(), program.op_scope.tolist(), strict=True)):
        if not alike[spec] or op in apart:
            continue
        read, results = operands[reads[op] : reads[op + 1]], program.results_of(op)
        key = spec, -1 if constant[spec] else scope, *(same[value] for value in read)
        before = first.setdefault(key, results)
        if before is not results:
            for value, equal in zip(results, before, strict=True):
                same[value] = same[equal]
            if products[spec] or not taken.isdisjoint(read):
                taken.update(results)
    found = values.copy()
    found[[*taken]] = np.array(same, np.int32)[[*taken]]
    return found


def _may_be_equal(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    apart = isinstance(traits, (Structural, Collective)) or (isinstance(traits, View) and traits.fence)
    return not apart and spec.kind != "tag" and not has_effect(spec)
