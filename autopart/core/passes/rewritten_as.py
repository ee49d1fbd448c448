"""An op of a program written anew as a few others, given as the text of a function.

%v, %p = reduce(%x, ...)      ->      func @main(%x, ...) { ...; return %v, %p }     each line in place of the op
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from autopart.core.jax_internals import ir
from autopart.core.op import TensorType
from autopart.core.op_spec_import import spec_of
from autopart.core.passes.rewriting import Rewriting


class Place(NamedTuple):
    """Where ops are put in: a scope, before which op, and from whose line they come."""

    scope: int
    before: int
    like: int


def put_in(rewriting: Rewriting, text: str, operands: Sequence[int], place: Place) -> list[int]:
    """Puts the ops of a module's one function in; the values that it returns."""
    with rewriting.before.source.module.context:
        module = ir.Module.parse(text)
    rewriting.modules.append(module)
    main = module.body.operations[0].regions[0].blocks[0]
    names: dict[ir.Value, int] = dict(zip(main.arguments, operands, strict=True))
    *made, returned = (o.operation for o in main.operations)
    for new in made:
        reads = [names[value] for value in new.operands]
        results = rewriting.add(rewriting.spec(spec_of(new), new), reads, *place)
        names.update(zip(new.results, results, strict=True))
    return [names[value] for value in returned.operands]


def location_of(rewriting: Rewriting, op: int) -> str:
    """The line that op number `op` comes from, as a module's text has it; empty where none is known."""
    found = rewriting.before.source.source_of(op)
    return "" if found is None else str(found.location)


def rewrite_as(rewriting: Rewriting, op: int, text: Callable[[str], str]) -> None:
    """Puts the ops of `text(location)` in place of op number `op`.

    The text is a module with one function, of the op's operands, that returns its results; each of its lines ends with
    the location that it is given.
    """
    program = rewriting.before
    made = text(location_of(rewriting, op))
    place = Place(int(program.op_scope[op]), op, op)
    found = put_in(rewriting, made, program.operands_of(op).tolist(), place)
    for old, new in zip(program.results_of(op), found, strict=True):
        rewriting.replace(int(old), new)


def mlir_type(type_: TensorType) -> str:
    """A type as MLIR writes it, `tensor<8x4xf32>`."""
    return f"tensor<{''.join(f'{n}x' for n in type_.shape)}{type_.dtype}>"
