"""An op of a program written anew as a few others, given as the text of a function.

%v, %p = reduce(%x, ...)      ->      func @main(%x, ...) { ...; return %v, %p }     each line in place of the op
"""

from __future__ import annotations

from collections.abc import Callable

from autopart.core.jax_internals import ir
from autopart.core.op import TensorType
from autopart.core.op_spec_import import spec_of
from autopart.core.passes.rewriting import Rewriting


def rewrite_as(rewriting: Rewriting, op: int, text: Callable[[str], str]) -> None:
    """Puts the ops of `text(location)` in place of op number `op`.

    The text is a module with one function, of the op's operands, that returns its results; each of its lines ends with
    the location that it is given.
    """
    program = rewriting.before
    source, scope = program.source, int(program.op_scope[op])
    assert source is not None
    representative = source.representatives[program.op_spec[op]]
    assert representative is not None
    with representative.context:
        module = ir.Module.parse(text(str(representative.location)))
    rewriting.modules.append(module)
    main = module.body.operations[0].regions[0].blocks[0]
    names: dict[ir.Value, int] = dict(zip(main.arguments, program.operands_of(op).tolist(), strict=True))
    *made, returned = (o.operation for o in main.operations)
    for new in made:
        reads = [names[value] for value in new.operands]
        results = rewriting.add(rewriting.spec(spec_of(new), new), reads, scope, op, op)
        names.update(zip(new.results, results, strict=True))
    for old, new in zip(program.results_of(op), returned.operands, strict=True):
        rewriting.replace(int(old), names[new])


def mlir_type(type_: TensorType) -> str:
    """A type as MLIR writes it, `tensor<8x4xf32>`."""
    return f"tensor<{''.join(f'{n}x' for n in type_.shape)}{type_.dtype}>"
