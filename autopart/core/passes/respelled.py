"""An op of a program again, with other types: a product of longer operands, a sum of more places."""

from __future__ import annotations

from collections.abc import Mapping

from autopart.core.jax_internals import ir
from autopart.core.op import OpSpec
from autopart.core.ops.rule import rule_of
from autopart.core.passes.rewriting import Rewriting
from autopart.core.passes.rewritten_as import mlir_type


def respelled(rewriting: Rewriting, op: int, spec: OpSpec, changed: Mapping[str, tuple[int, ...]] | None = None) -> int:
    """The number of `spec`, which is that of `op` but for its types and the attributes `changed`."""
    return rewriting.spec(spec, _representative(rewriting, op, spec, changed or {}))


def _representative(
    rewriting: Rewriting, op: int, spec: OpSpec, changed: Mapping[str, tuple[int, ...]]
) -> ir.Operation | None:
    """The op itself, cloned with other types; None for what no module has."""
    rule, source = rule_of(spec), rewriting.before.source.source_of(op)
    if rule is None or rule.structural or source is None or source.name.endswith("optimization_barrier"):
        return None
    operands = ", ".join(f"%{k}: {mlir_type(t)}" for k, t in enumerate(spec.operands))
    with source.context:
        module = ir.Module.parse(f"func.func @main({operands}) {{\nreturn\n}}")
        block = module.body.operations[0].regions[0].blocks[0]
        cloned = source.clone(ip=ir.InsertionPoint.at_block_terminator(block)).operation
        for number, argument in enumerate(block.arguments):
            cloned.operands[number] = argument
        for result, type_ in zip(cloned.results, spec.results, strict=True):
            result.set_type(ir.Type.parse(mlir_type(type_)))
        for name, value in changed.items():
            cloned.attributes[name] = ir.DenseI64ArrayAttr.get(list(value))
        if "value" in cloned.attributes and not operands:
            splat = ir.DenseElementsAttr(cloned.attributes["value"]).get_splat_value()
            cloned.attributes["value"] = ir.DenseElementsAttr.get_splat(cloned.results[0].type, splat)
    rewriting.modules.append(module)
    return cloned
