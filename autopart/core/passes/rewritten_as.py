"""An op of a program written anew as a few others, given as the text of a function.

%v, %p = reduce(%x, ...)      ->      func @main(%x, ...) { ...; return %v, %p }     each line in place of the op
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from autopart.core.jax_internals import ir
from autopart.core.op import OpSpec, TensorType
from autopart.core.op_spec_import import spec_of
from autopart.core.passes.rewriting import Function, Rewriting
from autopart.core.program import Program


class Place(NamedTuple):
    """Where ops are put in: a scope, before which op, and from whose line they come."""

    scope: int
    before: int
    like: int


def put_in(rewriting: Rewriting, text: str, operands: Sequence[int], place: Place) -> list[int]:
    """Puts the ops of a module's one function in; the values that it returns. It reads what replaced its operands.

    A text is parsed once: layers are written anew alike.
    """
    function = rewriting.functions.get(text)
    if function is None:
        function = rewriting.functions[text] = _parsed(rewriting, text)
    values = [*map(rewriting.now, operands)]
    for spec, reads in function.ops:
        values += rewriting.add(spec, [values[n] for n in reads], *place)
    return [values[n] for n in function.returned]


def _parsed(rewriting: Rewriting, text: str) -> Function:
    """The one function of a module."""
    with rewriting.before.source.module.context:
        module = ir.Module.parse(text)
    rewriting.modules.append(module)
    main = module.body.operations[0].regions[0].blocks[0]
    names: dict[ir.Value, int] = {value: n for n, value in enumerate(main.arguments)}
    *made, returned = (o.operation for o in main.operations)
    ops: list[tuple[int, list[int]]] = []
    for new in made:
        ops.append((rewriting.spec(spec_of(new), new), [names[value] for value in new.operands]))
        names.update({value: n for n, value in enumerate(new.results, len(names))})
    return Function(ops, [names[value] for value in returned.operands])


def location_of(rewriting: Rewriting, op: int) -> str:
    """The line that op number `op` comes from, as a module's text has it; empty where none is known."""
    found = rewriting.before.source.source_of(op)
    return "" if found is None else str(found.location)


def rewritten(
    program: Program,
    wanted: Callable[[OpSpec], bool],
    text: Callable[[OpSpec, str], str],
    also: Callable[[Program, int], bool] = lambda program, op: True,
) -> Program:
    """The program with ops written anew: those of a spec that is `wanted` of which `also` holds, (program, op).

    `text(spec, location)` is a module with one function, of the op's operands, that returns its results; each of its
    lines ends with the location that it is given.
    """
    found = np.array([wanted(spec) for spec in program.specs], np.bool_)
    if program.source is None or not found.any():
        return program
    rewriting = Rewriting(program)
    for op in np.flatnonzero(found[program.op_spec]).tolist():
        if also(program, op):
            _write_anew(rewriting, op, text(program.spec(op), location_of(rewriting, op)))
    return rewriting.program()


def _write_anew(rewriting: Rewriting, op: int, text: str) -> None:
    program = rewriting.before
    place = Place(int(program.op_scope[op]), op, op)
    made = put_in(rewriting, text, program.operands_of(op).tolist(), place)
    for old, new in zip(program.results_of(op), made, strict=True):
        rewriting.replace(int(old), new)


def attributes_of(rewriting: Rewriting, op: int) -> dict[str, str]:
    """The attributes of op number `op`, each as a module's text has it."""
    program = rewriting.before
    source = program.source.representatives[program.op_spec[op]]
    assert source is not None
    return {name: str(source.attributes[name]) for name in source.attributes}


def mlir_type(type_: TensorType) -> str:
    """A type as MLIR writes it, `tensor<8x4xf32>`."""
    return f"tensor<{''.join(f'{n}x' for n in type_.shape)}{type_.dtype}>"
