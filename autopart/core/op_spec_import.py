"""MLIR ops -> `OpSpec`s, shared by equal ops.

    %3 = stablehlo.add %1, %2 : tensor<8x4xf32>        spec 0
    %7 = stablehlo.add %5, %6 : tensor<8x4xf32>        spec 0 again: same name, attributes, types, region
    %8 = stablehlo.add %5, %6 : tensor<8x8xf32>        spec 1

Ops are compared by MLIR's own uniqued attributes and types, never by text, and without locations: a table of 100,000
ops takes under a second. A reducer's region is summarised as what it computes:

    ^bb0(%a, %b): %c = add %a, %b; return %c           "add"
    ^bb0(%a, %b): return %b                            "overwrite"
    two results, added and maximised                   "add,max"
    ^bb0(%a, %b): %c = add %a, %b; return %c, %c       "add" too: a scan hands on what it leaves
    anything else                                      "opaque"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autopart.base.errors import ProgramError
from autopart.core.attributes import decode, decode_complex_constant, decode_constant
from autopart.core.doors.jax_internals import ir, op_text
from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rule import default_attributes

PLACEMENT_ATTRIBUTES = frozenset({"mhlo.sharding", "sdy.sharding", "sdy.sharding_per_value", "sdy.sharding_rule"})
"""Attributes that say where an op runs; they are no part of its spec, and wrong for it once it is partitioned."""

_FRONTEND_ATTRIBUTES = "mhlo.frontend_attributes"
"""Marks for the compiler. A custom call declares its batch dims in them; elsewhere they are no part of a spec."""

_DIALECTS = frozenset({"stablehlo", "chlo", "mhlo", "func", "sdy"})
"""Dialects that XLA takes, or that shardings are written in."""

REDUCERS = {
    "stablehlo.add": "add",
    "stablehlo.subtract": "subtract",
    "stablehlo.multiply": "mul",
    "stablehlo.maximum": "max",
    "stablehlo.minimum": "min",
    "stablehlo.and": "and",
    "stablehlo.or": "or",
}
"""What a region that combines two elements is called, by its op."""

_COMMUTATIVE = REDUCERS.keys() - {"stablehlo.subtract"}


def tensor_type(type_: ir.Type) -> TensorType:
    """Shape and element type. Raises `ProgramError` for dynamic shapes, tokens and tuples."""
    if not isinstance(type_, ir.RankedTensorType):
        raise ProgramError(
            f"a value of type {type_} cannot be partitioned",
            why="only arrays can",
            hint="remove host callbacks and side effects from the program",
        )
    if not type_.has_static_shape:
        raise ProgramError(
            f"a value has the dynamic shape {type_}",
            why="a tile's size must be known when partitioning",
            hint="lower the program for concrete shapes",
        )
    return TensorType(tuple(type_.shape), str(type_.element_type))


def spec_of(op: ir.Operation) -> OpSpec:
    """The spec of one op; where many are read, `SpecTable` shares the work."""
    table = SpecTable()
    return table.specs[table.intern(op)]


class SpecTable:
    """The distinct ops of a module: `specs[i]`, and `representatives[i]`, the first op that had that spec."""

    def __init__(self) -> None:
        self.specs: list[OpSpec] = []
        self.representatives: list[ir.Operation | None] = []
        self._number: dict[tuple, int] = {}
        self._types: dict[ir.Type, TensorType] = {}
        self._has_regions: dict[str, bool] = {}
        self._values: dict[tuple[str, ir.Attribute], Any] = {}

    def intern(self, op: ir.Operation) -> int:
        """The number of `op`'s spec. Raises `ProgramError` if a type is none an array can have."""
        types = tuple([v.type for v in op.operands]), tuple([v.type for v in op.results])
        return self.intern_typed(op, op.name, *types)

    def intern_typed(
        self, op: ir.Operation, name: str, operands: tuple[ir.Type, ...], results: tuple[ir.Type, ...]
    ) -> int:
        """As `intern`, for a caller that has read the op's name and types already."""
        attributes = _attributes(op)
        if name not in self._has_regions:
            self._has_regions[name] = len(op.regions) > 0
        regions = tuple([_region_key(r) for r in op.regions]) if self._has_regions[name] else ()
        key = (name, attributes, operands, results, regions)
        number = self._number.get(key)
        if number is None:
            _check_dialects(op)
            kind = name.removeprefix("stablehlo.")
            decoded = {n: self._decode(n, v) for n, v in attributes if _is_computed(n, name)}
            if kind == "select_and_scatter" and (selected_by := comparison(op.regions[0])):
                decoded["selected_by"] = selected_by
            spec = OpSpec(
                kind,
                {**default_attributes(kind), **decoded},
                tuple(map(self.type, operands)),
                tuple(map(self.type, results)),
                summary(op.regions[len(op.regions) - 1]) if regions else "",
            )
            number = self._add(key, spec, op)
        return number

    def structural(
        self,
        kind: str,
        operands: tuple[TensorType, ...],
        results: tuple[TensorType, ...],
        attributes: Mapping[str, Any] | None = None,
        made_from: ir.Operation | None = None,
    ) -> int:
        """The number of an op that is not in the module: an argument, a carry, a join, a tag, the marks of a scope.

        `made_from` is the op of the module that it becomes again, if there is one.
        """
        attributes = attributes or {}
        key = (kind, operands, results, *sorted(attributes.items()))
        number = self._number.get(key)
        return self._add(key, OpSpec(kind, attributes, operands, results), made_from) if number is None else number

    def type(self, type_: ir.Type) -> TensorType:
        """As `tensor_type`, one object per type."""
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = tensor_type(type_)
        return found

    def _add(self, key: tuple, spec: OpSpec, op: ir.Operation | None) -> int:
        self._number[key] = number = len(self.specs)
        self.specs.append(spec)
        self.representatives.append(op)
        return number

    def _decode(self, name: str, attribute: ir.Attribute | str) -> Any:
        if isinstance(attribute, str):
            return decode_complex_constant(attribute)
        key = (name, attribute)
        if key not in self._values:
            self._values[key] = decode_constant(attribute) if name == "value" else decode(attribute)
        return self._values[key]


def _check_dialects(op: ir.Operation) -> None:
    """Raises `ProgramError` for an op, or one in its regions, of a dialect that is not StableHLO's."""
    if op.name.partition(".")[0] not in _DIALECTS:
        raise ProgramError(
            f"the program uses the op {op.name}",
            why=f"its ops are of the dialects {', '.join(sorted(_DIALECTS))}",
            hint="legalize the program to StableHLO first",
        )
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                _check_dialects(inner.operation)


def _is_computed(attribute: str, name: str) -> bool:
    if attribute == _FRONTEND_ATTRIBUTES:
        return name == "stablehlo.custom_call"
    return attribute not in PLACEMENT_ATTRIBUTES


def _attributes(op: ir.Operation) -> tuple:
    """Pairs (name, attribute); a complex constant, which MLIR's bindings cannot read, is paired with its text."""
    try:
        return tuple(op.attributes.items())
    except TypeError:
        return (("value", op_text(op)),)
    except RuntimeError as error:
        raise ProgramError(f"an attribute of {op.name} has a name that is not UTF-8", why=str(error)) from None


def summary(region: ir.Region) -> str:
    """What a reducer's region computes; see the module's picture."""
    if len(region.blocks) != 1:
        return "opaque"
    block = region.blocks[0]
    ops = [o.operation for o in block.operations]
    arguments = list(block.arguments)
    count = len(arguments) // 2
    returned = list(ops[-1].operands) if ops else []
    if len(returned) == 2 * count and returned[:count] == returned[count:]:
        returned = returned[:count]
    if not count or len(returned) != count:
        return "opaque"
    arg_extreme = _arg_extreme(ops, arguments) if count == 2 else ""
    if arg_extreme:
        return arg_extreme
    reducers = [_reducer(value, arguments[i], arguments[i + count]) for i, value in enumerate(returned)]
    if "opaque" in reducers:
        return "opaque"
    return reducers[0] if len(set(reducers)) == 1 else ",".join(reducers)


def comparison(region: ir.Region) -> str:
    """The direction of the one comparison of its arguments that a region consists of, "GE"; "" if it is none."""
    ops = [o.operation for block in region.blocks for o in block.operations]
    if len(ops) != 2 or ops[0].name != "stablehlo.compare" or list(ops[0].operands) != list(region.blocks[0].arguments):
        return ""
    return str(decode(ops[0].attributes["comparison_direction"]))


_PICKS = (
    ("stablehlo.compare", "", 0, 2), ("stablehlo.compare", "NE", 0, 0), ("stablehlo.or", "", 4, 5),
    ("stablehlo.compare", "EQ", 0, 2), ("stablehlo.compare", "LT", 1, 3), ("stablehlo.and", "", 7, 8),
    ("stablehlo.or", "", 6, 9), ("stablehlo.select", "", 6, 0, 2), ("stablehlo.select", "", 10, 1, 3),
    ("stablehlo.return", "", 11, 12),
)  # fmt: skip
"""The body by which jax reduces pairs (value, position): names, directions of comparisons, and numbers of values."""


def _arg_extreme(ops: Sequence[ir.Operation], arguments: Sequence[ir.Value]) -> str:
    """ "argmax" or "argmin" if the ops pick the larger or smaller of two values, the earlier of equal ones, or NaN."""
    if len(ops) != len(_PICKS):
        return ""
    values, found = list(arguments), ""
    for number, (op, (name, direction, *reads)) in enumerate(zip(ops, _PICKS, strict=True)):
        if op.name != name or list(op.operands) != [values[i] for i in reads]:
            return ""
        if name == "stablehlo.compare":
            which = str(decode(op.attributes["comparison_direction"]))
            found = {"GT": "argmax", "LT": "argmin"}.get(which, "") if number == 0 else found
            if direction not in ("", which):
                return ""
        values += op.results
    return found


def _reducer(value: ir.Value, left: ir.Value, right: ir.Value) -> str:
    if value == right:
        return "overwrite"
    if isinstance(value.owner, ir.Block):
        return "opaque"
    owner = value.owner.operation
    operands = list(owner.operands)
    if operands == [left, right] or (operands == [right, left] and owner.name in _COMMUTATIVE):
        return REDUCERS.get(owner.name, "opaque")
    return "opaque"


def _region_key(region: ir.Region) -> tuple:
    """A key equal for equal regions: values by their number in the region, those from outside by identity."""
    numbers: dict[ir.Value, int] = {}
    key: list[Any] = []
    for block in region.blocks:
        _block_key(block, numbers, key)
    return tuple(key)


def _block_key(block: ir.Block, numbers: dict[ir.Value, int], key: list[Any]) -> None:
    for argument in block.arguments:
        numbers[argument] = len(numbers)
        key.append(argument.type)
    for op in block.operations:
        op = op.operation
        key += [op.name, _attributes(op), *[numbers.get(v, v) for v in op.operands], *[r.type for r in op.results]]
        for result in op.results:
            numbers[result] = len(numbers)
        for region in op.regions:
            for inner in region.blocks:
                _block_key(inner, numbers, key)
