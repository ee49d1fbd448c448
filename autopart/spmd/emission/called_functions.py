"""Functions that the exported ops still call: from a reducer's region, or as a custom call's computation.

    "stablehlo.reduce"(%x, %zero) ({ ^bb0(%a, %b): %m = func.call @larger(%a, %b) ... })      as it was read
    "stablehlo.reduce"(%x, %zero) ({ ^bb0(%a, %b): %m = stablehlo.maximum %a, %b  ... })      as it is exported

Calls of the program itself were inlined when it was read. Those inside a reducer, comparator or scatter stand in a
region that is exported as it is; they are inlined here, since XLA crashes on a reducer with a call whose result is not
needed. What a custom call names as its computation comes along as a function, with what that calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from autopart.core.doors.jax_internals import ir


def bring_called_functions(
    main: ir.Operation, ops: Sequence[ir.Operation], source: ir.Module, target: ir.Module
) -> None:
    """Inlines the calls in regions of `main`, and copies what is named in other ways from `source` into `target`.

    `ops` has an op of `source` for each distinct op of `main`; few are many equal ones, so they are asked first.
    """
    functions = {_symbol(op.operation): op.operation for op in source.body.operations}
    if any(_calls(op) for op in ops):
        _inline_calls(main, functions)
    todo = [name for op in ops for name in _referred(op, calls=False)]
    copied: set[str] = set()
    while todo:
        name = todo.pop()
        if name in copied or name not in functions:
            continue
        copied.add(name)
        copy = functions[name].clone()
        copy.attributes["sym_visibility"] = ir.StringAttr.get("private")
        target.body.append(copy)
        todo += _referred(functions[name], calls=True)


def _calls(op: ir.Operation) -> bool:
    """True if a call stands in a region of `op`."""
    inner = (view.operation for region in op.regions for block in region.blocks for view in block.operations)
    return any(each.name == "func.call" or _calls(each) for each in inner)


def _inline_calls(op: ir.Operation, functions: Mapping[str, ir.Operation]) -> None:
    """Replaces each call in the regions of `op` by the body of what it calls."""
    for region in op.regions:
        for block in region.blocks:
            for view in list(block.operations):
                inner = view.operation
                if inner.name != "func.call":
                    _inline_calls(inner, functions)
                    continue
                with ir.InsertionPoint(inner), inner.location:
                    results = _emit_body(inner, list(inner.operands), functions)
                for old, new in zip(inner.results, results, strict=True):
                    old.replace_all_uses_with(new)
                inner.erase()


def _emit_body(
    call: ir.Operation, operands: Sequence[ir.Value], functions: Mapping[str, ir.Operation]
) -> list[ir.Value]:
    """Emits the body of the function that `call` calls on `operands`; returns what it returns."""
    block = functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value].regions[0].blocks[0]
    stands_for = dict(zip(block.arguments, operands, strict=True))
    for view in block.operations:
        op = view.operation
        if op.name == "func.return":
            return [stands_for[v] for v in op.operands]
        if op.name == "func.call":
            results = _emit_body(op, [stands_for[v] for v in op.operands], functions)
        else:
            copy = op.clone()
            _rename(copy, stands_for)
            _inline_calls(copy, functions)
            results = list(copy.results)
        stands_for.update(zip(op.results, results, strict=True))
    raise ValueError(f"{call} calls a function that does not return")


def _rename(op: ir.Operation, stands_for: Mapping[ir.Value, ir.Value]) -> None:
    """Replaces operands of `op`, and of the ops in its regions."""
    for position, value in enumerate(op.operands):
        if value in stands_for:
            op.operands[position] = stands_for[value]
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                _rename(inner.operation, stands_for)


def _symbol(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else ""


def _referred(op: ir.Operation, calls: bool) -> Iterator[str]:
    """Names of the functions that an op, or one in its regions, refers to; with or without those that it calls."""
    if op.name == "func.call" and not calls:
        return
    if op.name != "stablehlo.constant":  # the bindings cannot read a complex one, and a constant refers to nothing
        for name in cast("Iterable[Any]", op.attributes):  # names, or in older bindings names with attributes
            yield from _names(op.attributes[name] if isinstance(name, str) else name.attr)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _referred(inner.operation, calls)


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
