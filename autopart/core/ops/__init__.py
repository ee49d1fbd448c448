"""What is known of ops: rules with their traits, the registries, and the table made from them.

rule           what is registered for an op kind or a custom call, and who asks
traits         what an op is to the cost model, to placement, to the importer and to text
local_values   what a rule may do with the values of one device
rules/         the families
ops_table      the supported ops, as a table

    from autopart.core.ops import OpSpec, TileMapping, register_rule, traits

    @register_rule("chlo.my_op", traits=traits.Elementwise(4))
    def my_op(spec: OpSpec) -> list[TileMapping]:
        return [TileMapping((d,), (d,), size) for d, size in enumerate(spec.operands[0].shape)]
"""

from autopart.core.op import AND, ANY, MAX, MIN, MUL, OR, SUM, WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.ops import traits
from autopart.core.ops.local_values import LocalOp, Value
from autopart.core.ops.rule import Example, Omission, known_kinds, mappings_of, register_custom_call, traits_of
from autopart.core.ops.rule import rule as register_rule

__all__ = [
    "AND",
    "ANY",
    "MAX",
    "MIN",
    "MUL",
    "OR",
    "SUM",
    "WHOLE",
    "Example",
    "LocalOp",
    "Omission",
    "OpSpec",
    "TensorType",
    "TileMapping",
    "Value",
    "known_kinds",
    "mappings_of",
    "register_custom_call",
    "register_rule",
    "traits",
    "traits_of",
]
