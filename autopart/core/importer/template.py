"""A function of a StableHLO module, read once into local value numbers.

    func.func @square(%a) { %0 = multiply %a, %a; return %0 }

    Block(arguments=[0], ops=[Op("multiply", operands=[0, 0], results=[1])], returned=[1])

Regions share the numbers of the function around them, so what they capture needs no table. Ops that change nothing
on one device (sharding marks, collectives over one device, one-device manual regions) are read as aliases of their
operands; a sharding constraint is a tag where it is to be honoured. A region that the model partitions by hand stands
between `to_local` and `to_global` (`core/manual_regions.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from autopart.base.errors import ProgramError
from autopart.base.limits import Gauge
from autopart.core.doors.jax_internals import TAG_ATTRIBUTE, ir
from autopart.core.importer.constraints import tag_of_constraint
from autopart.core.importer.locations import describe_location
from autopart.core.importer.manual_region import ManualRegion, manual_region, without_empty_constraints
from autopart.core.importer.module_names import quoted_text
from autopart.core.importer.replica_groups import list_groups
from autopart.core.manual_regions import POSITION, TO_GLOBAL, TO_LOCAL
from autopart.core.op_spec_import import SpecTable
from autopart.core.ops.rule import traits_named

_SHARDING_MARKS = {"sdy.sharding_constraint", "sdy.reshard", "sdy.propagation_barrier"}
_SHARDING_CALLS = {"xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"}
"""Syntax of the sharding dialect, and the custom calls that jax writes for it: no ops of StableHLO, so no rule."""

_READ_SPECIALLY = frozenset(
    {
        "func.call",
        "sdy.manual_computation",
        "sdy.named_computation",
        "stablehlo.case",
        "stablehlo.composite",
        "stablehlo.convert",
        "stablehlo.custom_call",
        "stablehlo.if",
        "stablehlo.optimization_barrier",
        "stablehlo.partition_id",
        "stablehlo.reshape",
        "stablehlo.while",
    }
    | _SHARDING_MARKS
)
"""Ops that are, or may be, more or less than their spec; `ap.tag` marks a reshape. So are those whose traits say
`read_through`."""


@dataclass
class Block:
    """A block in local value numbers: `arguments`, then one entry of `ops` per op, then `returned`."""

    arguments: list[int]
    ops: list[Op] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)


class Callee(NamedTuple):
    """A function of the module as it is read in a region that the model partitions by hand, or outside of any."""

    name: str
    region: ManualRegion | None = None


@dataclass(slots=True)
class Op:
    """One op of a template. `spec` is -1 for a call, loop, branch or barrier; `blocks` holds what those contain, and
    `source` is the number of the MLIR op among those that were read."""

    kind: str
    spec: int
    operands: list[int]
    results: list[int]
    source: int
    callee: Callee | None = None
    blocks: tuple[Block, ...] = ()
    tag: str = ""


class Reader:
    """Reads one function, called in `region`; local value numbers are shared with the regions inside it. MLIR ops that
    were read are added to `sources`."""

    def __init__(
        self,
        specs: SpecTable,
        gauge: Gauge,
        sources: list[ir.Operation | None],
        constraints: bool = False,
        region: ManualRegion | None = None,
    ):
        self._specs, self._gauge, self._sources, self._depth = specs, gauge, sources, 0
        self._constraints = constraints
        self._number: dict[ir.Value, int] = {}
        self._types: list[ir.Type] = []
        self._read_specially: dict[str, bool] = {}
        self._region = region

    def read(self, block: ir.Block) -> Block:
        """The block's ops in local numbers, up to its return."""
        self._gauge.check_time()
        self._gauge.check_depth(self._depth, "regions")
        self._depth += 1
        result = Block([self._define(a) for a in block.arguments])
        for op in block.operations:
            op = op.operation
            name = op.name
            if name in ("func.return", "stablehlo.return", "sdy.return"):
                result.returned = self._uses(op)
            else:
                self._read_op(op, name, result)
        self._depth -= 1
        return result

    def _define(self, value: ir.Value) -> int:
        self._number[value] = number = len(self._types)
        self._types.append(value.type)
        return number

    def _source(self, op: ir.Operation) -> int:
        self._sources.append(op)
        return len(self._sources) - 1

    def _uses(self, op: ir.Operation) -> list[int]:
        return [self._number[v] for v in op.operands]

    def _read_op(self, op: ir.Operation, name: str, block: Block) -> None:
        number = self._number
        operands = [number[v] for v in op.operands]
        special = self._read_specially.get(name)
        if special is None:
            special = self._read_specially[name] = name in _READ_SPECIALLY or traits_named(_kind(name)).read_through
        if not special:
            block.ops.append(self._plain(op, name, operands))
            return
        entry = self._special(op, operands, block)
        if entry is not None:
            if not entry.results:
                entry.results = [self._define(r) for r in op.results]
            block.ops.append(entry)

    def _plain(self, op: ir.Operation, name: str, operands: list[int]) -> Op:
        known, number = self._types, self._number
        results = list(op.results)
        types = tuple([r.type for r in results])
        spec = self._specs.intern_typed(op, name, tuple([known[v] for v in operands]), types)
        numbers = list(range(len(known), len(known) + len(results)))
        number.update(zip(results, numbers, strict=True))
        known.extend(types)
        return Op(self._specs.specs[spec].kind, spec, operands, numbers, self._source(op))

    def _special(self, op: ir.Operation, operands: list[int], block: Block) -> Op | None:
        """A call, loop, branch, tag or barrier as an op; None where its body was read into `block` in its place."""
        match op.name:
            case "sdy.manual_computation" | "sdy.named_computation":
                self._number.update(zip(op.results, self._region_results(op, operands, block), strict=True))
                return None
            case "stablehlo.partition_id":
                return self._position(op)
            case "func.call" | "stablehlo.composite":
                attribute = "callee" if op.name == "func.call" else "decomposition"
                callee = Callee(quoted_text(op.attributes[attribute]), self._region)
                return Op("call", -1, operands, [], self._source(op), callee=callee)
            case "stablehlo.while" | "stablehlo.case" | "stablehlo.if":
                blocks = tuple(self.read(r.blocks[0]) for r in op.regions)
                kind = "while" if op.name == "stablehlo.while" else "case"
                return Op(kind, -1, operands, [], self._source(op), blocks=blocks)
            case "stablehlo.optimization_barrier":
                return Op("barrier", -1, operands, [], self._source(op))
            case "stablehlo.convert" if op.operands[0].type != op.results[0].type:
                return self._plain(op, op.name, operands)
            case "stablehlo.reshape":
                tag = _tag_of(op)
                if not tag:
                    return self._plain(op, op.name, operands)
                return Op("alias", -1, operands, [], self._source(op), tag=tag)
            case _:
                if not _is_identity(op, self._region is not None):
                    return self._plain(op, op.name, operands)
                tag = tag_of_constraint(op) if self._constraints else ""
                return Op("alias", -1, operands, [], self._source(op), tag=tag)

    def _region_results(self, op: ir.Operation, operands: list[int], block: Block) -> list[int]:
        """Reads what stands in a region into `block`, between ops that take arrays into it and out of it again."""
        region = manual_region(op) if op.name == "sdy.manual_computation" else None
        if region is None or not region.axes:
            return self.read_inline(op, operands, block)
        without_empty_constraints(op.regions[0])
        body = op.regions[0].blocks[0]
        for number, outside, inside, cuts in zip(operands, op.operands, body.arguments, region.operands, strict=True):
            block.ops.append(self._edge(op, TO_LOCAL, region.attributes(cuts), number, outside.type, inside))
        around, self._region = self._region, region
        left = self._body(body, block)
        self._region = around
        made: list[int] = []
        for inner, result, cuts in zip(left, op.results, region.results, strict=True):
            edge = self._edge(op, TO_GLOBAL, region.attributes(cuts), inner, self._types[inner], result)
            block.ops.append(edge)
            made += edge.results
        return made

    def _edge(
        self, op: ir.Operation, kind: str, attributes: dict, operand: int, before: ir.Type, after: ir.Value
    ) -> Op:
        types = (self._specs.type(before),), (self._specs.type(after.type),)
        spec = self._specs.structural(kind, *types, attributes)
        return Op(kind, spec, [operand], [self._define(after)], self._source(op))

    def _position(self, op: ir.Operation) -> Op:
        """The device's number: its own in a region, and that of the one device outside."""
        if self._region is None:
            return self._plain(op, op.name, [])
        result = (self._specs.type(op.results[0].type),)
        everywhere = {**self._region.attributes(), "axes": tuple(n for n, size in self._region.mesh if size > 1)}
        return Op(POSITION, self._specs.structural(POSITION, (), result, everywhere, op), [], [], self._source(op))

    def read_inline(self, op: ir.Operation, operands: list[int], block: Block) -> list[int]:
        """Reads a one-device manual region as if its body stood in place of the op."""
        body = op.regions[0].blocks[0]
        for outside, inside in zip(op.operands, body.arguments, strict=True):
            if outside.type != inside.type:
                raise ProgramError(
                    f"the program is already partitioned: a shard_map region takes {inside.type} of {outside.type}",
                    hint="partition the program without its shard_map, or on a one-device mesh",
                )
        self._number.update(zip(body.arguments, operands, strict=True))
        return self._body(body, block)

    def _body(self, body: ir.Block, block: Block) -> list[int]:
        """Reads a region's ops into `block`; the numbers of what it returns."""
        for inner in body.operations:
            inner = inner.operation
            if inner.name == "sdy.return":
                return self._uses(inner)
            self._read_op(inner, inner.name, block)
        raise ProgramError("a manual region returns nothing")


def _kind(name: str) -> str:
    return name.removeprefix("stablehlo.")


def _is_identity(op: ir.Operation, by_hand: bool) -> bool:
    """True for ops that change nothing on one device: sharding marks, collectives over groups of one or to itself,
    conversions to the type that is there already, which jax writes for weak types.

    Larger groups are an error, except where the model partitions `by_hand`.
    """
    if op.name in _SHARDING_MARKS or op.name == "stablehlo.convert":
        return True
    if op.name == "stablehlo.custom_call":
        target = quoted_text(op.attributes["call_target_name"])
        return target in _SHARDING_CALLS or traits_named("custom_call", target).read_through
    list_groups(op)
    in_groups = "replica_groups" in op.attributes
    groups = op.attributes["replica_groups" if in_groups else "source_target_pairs"]
    shape = ir.RankedTensorType(groups.type).shape
    if shape[-1] > 1 if in_groups else shape[0] > 1 and not _stays(groups):
        if by_hand:
            return False
        raise ProgramError(
            f"the program is already partitioned: {op.name} over groups {groups}",
            why=describe_location(op.location),
            hint="lower the program for one device; autopart inserts the collectives",
        )
    return True


def _stays(pairs: ir.Attribute) -> bool:
    """True for (source, target) pairs by which every device sends to itself."""
    sources, targets = np.asarray(ir.DenseElementsAttr(pairs)).T
    return bool((sources == targets).all())


def _tag_of(op: ir.Operation) -> str:
    attributes = op.attributes
    if "mhlo.frontend_attributes" not in attributes:
        return ""
    frontend = attributes["mhlo.frontend_attributes"]
    if not isinstance(frontend, ir.DictAttr):
        return ""
    return quoted_text(frontend[TAG_ATTRIBUTE]) if TAG_ATTRIBUTE in frontend else ""
