"""Functions that the exported ops still call: from a reducer's region, or as a custom call's computation.

    "stablehlo.reduce"(%x, %zero) ({ ^bb0(%a, %b): %m = func.call @_where(...) ... })

Calls of the program itself were inlined when it was read. Those inside a reducer, comparator or scatter stand in a
region that is exported as it is, so their callees, and what these call, come along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from autopart.core.jax_internals import ir


def copy_called_functions(ops: Iterable[ir.Operation], source: ir.Module, target: ir.Module) -> None:
    """Copies each function of `source` that `ops` refer to, directly or not, into `target` once, as private."""
    functions = {_symbol(op.operation): op.operation for op in source.body.operations}
    todo = [name for op in ops for name in _referred(op)]
    copied: set[str] = set()
    while todo:
        name = todo.pop()
        if name in copied or name not in functions:
            continue
        copied.add(name)
        copy = functions[name].clone()
        copy.attributes["sym_visibility"] = ir.StringAttr.get("private")
        target.body.append(copy)
        todo += _referred(functions[name])


def _symbol(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else ""


def _referred(op: ir.Operation) -> Iterator[str]:
    """Names of the functions that an op, or one in its regions, refers to."""
    if op.name != "stablehlo.constant":  # the bindings cannot read a complex one, and a constant refers to nothing
        for name in cast("Iterable[Any]", op.attributes):  # names, or in older bindings names with attributes
            yield from _names(op.attributes[name] if isinstance(name, str) else name.attr)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _referred(inner.operation)


def _names(attribute: ir.Attribute) -> Iterator[str]:
    match attribute:
        case ir.FlatSymbolRefAttr():
            yield attribute.value
        case ir.ArrayAttr():
            for entry in attribute:
                yield from _names(entry)
        case ir.DictAttr():
            for entry in attribute:
                yield from _names(entry.attr)
        case _:
            pass
