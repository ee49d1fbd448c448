"""StableHLO module -> `Program`: calls inlined, control flow flattened, constants cloned per use.

    func.func @main(%arg0)                      argument "x"
      %0 = call @square(%arg0)          ->      multiply
      %1 = stablehlo.while(...)                 while / carry / condition ops / body ops

Every function is read once into a template of local value numbers; a call replays its callee's template. So a program
of a million inlined ops costs a million appends, not a million walks through MLIR.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from autopart.core.errors import ProgramError
from autopart.core.jax_internals import ir
from autopart.core.op import OpSpec, TensorType
from autopart.core.op_spec_import import SpecTable
from autopart.core.program import ROOT, Program, Scope

TAG_ATTRIBUTE = "autopart.tag"
"""Frontend attribute by which an op carries the tag that `ap.tag` gave its result."""

_CLONED = {"constant", "iota"}
_SEEN_THROUGH_CALLS = {
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
}
_COLLECTIVES = {
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "collective_permute",
    "collective_broadcast",
}


@dataclass
class _Block:
    """A block in local value numbers: `arguments`, then one entry of `ops` per op, then `returned`."""

    arguments: list[int]
    ops: list[_Op] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)


@dataclass
class _Op:
    """One op of a template. `spec` is -1 for a call, a loop or a branch; `blocks` holds what those contain."""

    kind: str
    spec: int
    operands: list[int]
    results: list[int]
    source: ir.Operation
    callee: str = ""
    blocks: tuple[_Block, ...] = ()
    tag: str = ""


class Source:
    """Where ops came from: a representative MLIR op per spec, and each op's location text."""

    def __init__(
        self,
        module: ir.Module,
        representatives: list[ir.Operation | None],
        op_source: list[ir.Operation | None],
        call_site: list[ir.Operation | None],
    ):
        self.module, self.representatives = module, representatives
        self._op_source, self._call_site = op_source, call_site

    def where(self, op: int) -> str:
        """Location of op number `op` ("train.py:12 jit(step)/dense"), empty if the module has none.

        An op of a function that carries no line of its own gets the line of the outermost call it was inlined for.
        """
        source, site = self._op_source[op], self._call_site[op]
        if source is None:
            return ""
        own = describe_location(source.location)
        if site is None or ".py:" in own:
            return own
        return f"{describe_location(site.location)}/{own}".rstrip("/")


def describe_location(location: ir.Location) -> str:
    """A location as `file:line scope`; empty where unknown."""
    text = str(location)
    if "unknown" in text[:12]:
        return ""
    quoted = text.split('"')[1::2]
    scope = next((q for q in quoted if not q.endswith(".py")), "")
    file = next((i for i, q in enumerate(quoted) if q.endswith(".py")), None)
    if file is None:
        return scope
    after = text.split('"')[2 * file + 2]
    line = after.lstrip(":").split(":")[0].split(" ")[0]
    return f"{quoted[file]}:{line} {scope}".strip()


def import_module(
    module: ir.Module,
    *,
    argument_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    ties: dict[int, int] | None = None,
    donated: frozenset[int] | None = None,
) -> Program:
    """The program of a module's `main` function.

    Names default to the arguments' `loc`, then arg0, arg1, ...; `ties` and `donated` default to the module's
    `tf.aliasing_output` attributes. Raises `ProgramError` on dynamic shapes, missing functions, tokens, or a program
    that already communicates between devices.
    """
    return _Importer(module).run(argument_names, output_names, ties, donated)


class _Importer:
    def __init__(self, module: ir.Module):
        self._module = module
        self._specs = SpecTable()
        self._functions = {
            str(op.attributes["sym_name"]).strip('"'): op.operation
            for op in module.body.operations
            if op.operation.name == "func.func"
        }
        self._templates: dict[str, _Block] = {}
        self._op_spec: list[int] = []
        self._op_scope: list[int] = []
        self._op_source: list[ir.Operation | None] = []
        self._call_site: list[ir.Operation | None] = []
        self._outer_call: ir.Operation | None = None
        self._operands: list[int] = []
        self._operand_ptr: list[int] = [0]
        self._result_ptr: list[int] = [0]
        self._types: list[TensorType] = []
        self._scopes: list[Scope] = [Scope("program", -1, -1, 0, 0)]
        self._tags: dict[str, list[int]] = {}
        self._owners: dict[int, int] = {}
        self._late: list[tuple[int, int]] = []

    def run(self, argument_names, output_names, ties, donated) -> Program:
        name = "main" if "main" in self._functions else next(iter(self._functions), None)
        if name is None:
            raise ProgramError("the module has no function")
        main = self._functions[name]
        template = self._template(name)
        inputs = _attributes_of(main, "arg_attrs", len(template.arguments))
        results = _attributes_of(main, "res_attrs", len(template.returned))
        aliases = {int(a["tf.aliasing_output"]): i for i, a in enumerate(inputs) if "tf.aliasing_output" in a}
        ties = aliases if ties is None else ties
        if donated is None:
            donated = frozenset(i for i, a in enumerate(inputs) if {"tf.aliasing_output", "jax.buffer_donor"} & set(a))
        block = main.regions[0].blocks[0]
        names = list(argument_names or _location_names(block))
        types = [self._specs.type(a.type) for a in block.arguments]
        if len(names) != len(types):
            raise ProgramError(f"{len(names)} argument names for a program of {len(types)} arguments")
        tied_arguments = set(ties.values())
        arguments = []
        for index, kind in enumerate(types):
            operands = (kind,) if index in tied_arguments else ()
            arguments += self._structural("argument", [0] * len(operands), operands, (kind,), ROOT)
        outputs = self._replay(template, arguments, ROOT)
        outputs = [self._materialised(v, ROOT, None) for v in outputs]
        for output, argument in ties.items():
            op = self._op_of_argument(arguments[argument])
            self._operands[self._operand_ptr[op]] = outputs[output]
        self._scopes[ROOT] = Scope("program", -1, -1, 0, len(self._op_spec))
        default = [a.get("jax.result_info", f"result[{i}]").strip('"') for i, a in enumerate(results)]
        return Program(
            specs=self._specs.specs,
            op_spec=np.array(self._op_spec, np.int32),
            operand_ptr=np.array(self._operand_ptr, np.int32),
            operands=np.array(self._operands, np.int32),
            result_ptr=np.array(self._result_ptr, np.int32),
            op_scope=np.array(self._op_scope, np.int32),
            scopes=self._scopes,
            arguments=arguments,
            argument_names=names,
            outputs=outputs,
            output_names=list(output_names or default),
            ties=dict(ties),
            tags=self._tags,
            owners=self._owners,
            donated=donated,
            source=Source(self._module, self._specs.representatives, self._op_source, self._call_site),
        )

    def _op_of_argument(self, value: int) -> int:
        return value  # arguments come first, one result each

    # ---- reading functions into templates

    def _template(self, name: str) -> _Block:
        if name not in self._templates:
            if name not in self._functions:
                raise ProgramError(f"the module calls @{name}, which it does not define")
            function = self._functions[name]
            if not function.regions[0].blocks:
                raise ProgramError(f"function @{name} has no body")
            self._templates[name] = _Reader(self._specs).read(function.regions[0].blocks[0])
        return self._templates[name]

    # ---- replaying templates into the program

    def _append(self, spec: int, operands: Sequence[int], scope: int, source: ir.Operation | None) -> range:
        first = self._result_ptr[-1]
        types = self._specs.specs[spec].results
        self._op_spec.append(spec)
        self._op_scope.append(scope)
        self._op_source.append(source)
        self._call_site.append(self._outer_call)
        self._operands.extend(operands)
        self._operand_ptr.append(len(self._operands))
        self._types.extend(types)
        self._result_ptr.append(first + len(types))
        return range(first, first + len(types))

    def _structural(self, kind, operands, operand_types, result_types, scope, source=None) -> range:
        spec = self._specs.structural(kind, tuple(operand_types), tuple(result_types))
        return self._append(spec, operands, scope, source)

    def _materialised(self, value: int | _Lazy, scope: int, source: ir.Operation | None) -> int:
        """The value number to read: a cloned op's result where the value is cloned per use."""
        if not isinstance(value, _Lazy):
            return value
        operands = [self._materialised(v, scope, source) for v in value.operands]
        return self._append(value.spec, operands, scope, value.source)[0]

    def _type(self, value: int | _Lazy) -> TensorType:
        return self._specs.specs[value.spec].results[0] if isinstance(value, _Lazy) else self._types[value]

    def _replay(self, block: _Block, arguments: Sequence[int | _Lazy], scope: int, outer: dict | None = None) -> list:
        env: dict[int, int | _Lazy] = outer if outer is not None else {}
        env.update(zip(block.arguments, arguments, strict=True))
        for op in block.ops:
            operands = [env[v] for v in op.operands]
            match op.kind:
                case "call":
                    results = self._call(op, operands, scope)
                case "alias":
                    results = operands
                case "while":
                    results = self._while(op, operands, scope, env)
                case "case":
                    results = self._case(op, operands, scope, env)
                case _ if self._cloned(op, operands):
                    results = [_Lazy(op.spec, operands, op.source)]
                case _:
                    read = [self._materialised(v, scope, op.source) for v in operands]
                    results = self._append(op.spec, read, scope, op.source)
            if op.tag:
                results = [self._tagged(op.tag, r, scope, op.source) for r in results]
            env.update(zip(op.results, results, strict=True))
        return [env[v] for v in block.returned]

    def _call(self, op: _Op, operands: list, scope: int) -> list:
        outermost = self._outer_call is None
        if outermost:
            self._outer_call = op.source
        results = self._replay(self._template(op.callee), operands, scope)
        if outermost:
            self._outer_call = None
        return results

    def _tagged(self, name: str, value: int | _Lazy, scope: int, source: ir.Operation) -> int:
        value = self._materialised(value, scope, source)
        kind = self._types[value]
        tagged = self._structural("tag", [value], [kind], [kind], scope, source)[0]
        self._tags.setdefault(name, []).append(tagged)
        return tagged

    def _cloned(self, op: _Op, operands: list) -> bool:
        if op.kind in _CLONED:
            return True
        return op.kind == "broadcast_in_dim" and not self._type(operands[0]).shape

    def _while(self, op: _Op, inits: list, scope: int, env: dict) -> list:
        condition, body = op.blocks
        unchanged = [r == a for r, a in zip(body.returned, body.arguments, strict=True)]
        carried = [i for i, same in enumerate(unchanged) if not same]
        start = [self._materialised(inits[i], scope, op.source) for i in carried]
        trips = _trip_count(condition, body, inits, self._specs.specs)
        loop = len(self._op_spec)
        self._structural("while", [], [], [], scope, op.source)
        inside, after = list(inits), list(inits)
        for i, init in zip(carried, start, strict=True):
            kind = self._types[init]
            carry = len(self._op_spec)
            inside[i], after[i] = self._structural("carry", [init, init], [kind] * 2, [kind] * 2, scope, op.source)
            self._owners[carry] = loop
        carries = range(loop + 1, len(self._op_spec))
        runs = trips if trips is not None else 1
        index = self._open("condition", loop, scope, runs + 1, trips is not None)
        (predicate,) = self._replay(condition, inside, index, env)
        predicate = self._materialised(predicate, index, op.source)
        self._structural("condition", [predicate], [self._types[predicate]], [], index, op.source)
        self._close(index)
        index = self._open("body", loop, scope, runs, trips is not None)
        results = self._replay(body, inside, index, env)
        results = [self._materialised(results[i], index, op.source) for i in carried]
        self._close(index)
        for carry, value in zip(carries, results, strict=True):
            self._operands[self._operand_ptr[carry] + 1] = value
        return after

    def _case(self, op: _Op, operands: list, scope: int, env: dict) -> list:
        predicate = self._materialised(operands[0], scope, op.source)
        owner = len(self._op_spec)
        self._structural("case", [predicate], [self._types[predicate]], [], scope, op.source)
        branches = []
        for block in op.blocks:
            index = self._open("branch", owner, scope, 1, True)
            results = self._replay(block, [], index, env)
            branches.append([self._materialised(r, index, op.source) for r in results])
            self._close(index)
        joined = []
        for values in zip(*branches, strict=True):
            types = [self._types[v] for v in values]
            self._owners[len(self._op_spec)] = owner
            joined += self._structural("join", values, types, types[:1], scope, op.source)
        return joined

    def _open(self, kind: str, op: int, parent: int, trips: int, known: bool) -> int:
        self._scopes.append(Scope(kind, op, parent, len(self._op_spec), -1, trips, known))
        return len(self._scopes) - 1

    def _close(self, index: int) -> None:
        s = self._scopes[index]
        self._scopes[index] = Scope(s.kind, s.op, s.parent, s.start, len(self._op_spec), s.trips, s.trips_known)


@dataclass(frozen=True)
class _Lazy:
    """A value that is computed anew for each of its uses."""

    spec: int
    operands: list
    source: ir.Operation


class _Reader:
    """Reads one function; local value numbers are shared with the regions inside it."""

    def __init__(self, specs: SpecTable):
        self._specs = specs
        self._number: dict[ir.Value, int] = {}
        self._fresh = itertools.count()

    def read(self, block: ir.Block) -> _Block:
        result = _Block([self._define(a) for a in block.arguments])
        for op in block.operations:
            op = op.operation
            if op.name in ("func.return", "stablehlo.return", "sdy.return"):
                result.returned = self._uses(op)
            else:
                self._read_op(op, result)
        return result

    def _define(self, value: ir.Value) -> int:
        self._number[value] = number = next(self._fresh)
        return number

    def _uses(self, op: ir.Operation) -> list[int]:
        return [self._number[v] for v in op.operands]

    def _read_op(self, op: ir.Operation, block: _Block) -> None:
        name = op.name
        if name in ("sdy.manual_computation", "sdy.named_computation"):
            inner = self.read_inline(op, self._uses(op), block)
            self._number.update(zip(op.results, inner, strict=True))
            return
        operands = self._uses(op)
        match name:
            case "func.call" | "stablehlo.composite":
                attribute = "callee" if name == "func.call" else "decomposition"
                entry = _Op("call", -1, operands, [], op, callee=str(op.attributes[attribute]).strip('@"'))
            case "stablehlo.while" | "stablehlo.case" | "stablehlo.if":
                blocks = tuple(self.read(r.blocks[0]) for r in op.regions)
                kind = "while" if name == "stablehlo.while" else "case"
                entry = _Op(kind, -1, operands, [], op, blocks=blocks)
            case _ if _is_identity(op) or (_tag_of(op) and op.operands[0].type == op.results[0].type):
                entry = _Op("alias", -1, operands, [], op)
            case _:
                spec = self._specs.intern(op)
                entry = _Op(self._specs.specs[spec].kind, spec, operands, [], op)
        entry.results = [self._define(r) for r in op.results]
        entry.tag = _tag_of(op)
        block.ops.append(entry)

    def read_inline(self, op: ir.Operation, operands: list[int], block: _Block) -> list[int]:
        """Reads a one-device manual region as if its body stood in place of the op."""
        body = op.regions[0].blocks[0]
        for outside, inside in zip(op.operands, body.arguments, strict=True):
            if outside.type != inside.type:
                raise ProgramError(
                    f"the program is already partitioned: a shard_map region takes {inside.type} of {outside.type}",
                    hint="partition the program without its shard_map, or on a one-device mesh",
                )
        self._number.update(zip(body.arguments, operands, strict=True))
        for inner in body.operations:
            inner = inner.operation
            if inner.name == "sdy.return":
                return self._uses(inner)
            self._read_op(inner, block)
        raise ProgramError("a manual region returns nothing")


def _is_identity(op: ir.Operation) -> bool:
    """True for ops that change nothing on one device: sharding marks, collectives over groups of one."""
    short = op.name.removeprefix("stablehlo.")
    if op.name in ("sdy.sharding_constraint", "sdy.reshard", "sdy.propagation_barrier"):
        return True
    if short == "custom_call":
        return str(op.attributes["call_target_name"]).strip('"') in _SEEN_THROUGH_CALLS
    if short not in _COLLECTIVES:
        return False
    groups = (
        op.attributes["replica_groups"] if "replica_groups" in op.attributes else op.attributes["source_target_pairs"]
    )
    shape = ir.RankedTensorType(groups.type).shape
    if (shape[-1] > 1 and "replica_groups" in op.attributes) or shape[0] > 1:
        raise ProgramError(
            f"the program is already partitioned: {op.name} over groups {groups}",
            why=describe_location(op.location),
            hint="lower the program for one device; autopart inserts the collectives",
        )
    return True


def _tag_of(op: ir.Operation) -> str:
    attributes = op.attributes
    if "mhlo.frontend_attributes" not in attributes:
        return ""
    frontend = cast(ir.DictAttr, attributes["mhlo.frontend_attributes"])
    return str(frontend[TAG_ATTRIBUTE]).strip('"') if TAG_ATTRIBUTE in frontend else ""


def _attributes_of(function: ir.Operation, name: str, count: int) -> list[dict[str, str]]:
    if name not in function.attributes:
        return [{} for _ in range(count)]
    return [
        {entry.name: str(entry.attr).split(" : ")[0] for entry in attributes}
        for attributes in cast(ir.ArrayAttr, function.attributes[name])
    ]


def _location_names(block: ir.Block) -> list[str]:
    names = []
    for index, argument in enumerate(block.arguments):
        named = re.match(r'loc\("([^"]+)"\)$', str(argument.location))
        names.append(named.group(1) if named else f"arg{index}")
    return names


def _trip_count(condition: _Block, body: _Block, inits: list, specs: list[OpSpec]) -> int | None:
    """How often a loop `i < limit` runs from a constant start by a constant step; None for any other loop."""
    defined = {r: op for op in condition.ops for r in op.results}
    compare = defined.get(condition.returned[0])
    if compare is None or compare.kind != "compare":
        return None
    direction = str(specs[compare.spec].attributes.get("comparison_direction", ""))
    sides = [_constant_or_position(v, condition, defined, inits, specs) for v in compare.operands]
    match sides:
        case [("position", at), ("constant", limit)]:
            test = {
                "LT": lambda i: i < limit,
                "LE": lambda i: i <= limit,
                "GT": lambda i: i > limit,
                "GE": lambda i: i >= limit,
                "NE": lambda i: i != limit,
            }.get(direction)
        case _:
            return None
    start = _constant_of(inits[at], specs)
    step = _step(body, at, inits, specs)
    if test is None or start is None or not step:
        return None
    return _count(start, step, limit, direction, test)


def _count(start: int, step: int, limit: int, direction: str, test: Callable[[int], bool]) -> int | None:
    if not test(start):
        return 0
    distance = (limit - start) / step
    if distance < 0 or (direction == "NE" and distance % 1):
        return None
    return int(distance) + 1 if direction in ("LE", "GE") or distance % 1 else int(distance)


def _constant_or_position(value, condition, defined, inits, specs):
    if value in condition.arguments:
        at = condition.arguments.index(value)
        return ("position", at)
    op = defined.get(value)
    if op is not None and op.kind == "constant":
        number = specs[op.spec].attributes["value"]
        return ("constant", int(number)) if isinstance(number, np.integer) else None
    return None


def _constant_of(value, specs) -> int | None:
    if isinstance(value, _Lazy):
        number = specs[value.spec].attributes.get("value")
        return int(number) if isinstance(number, np.integer) else None
    return None


def _step(body: _Block, at: int, inits: list, specs: list[OpSpec]) -> int | None:
    defined = {r: op for op in body.ops for r in op.results}
    op = defined.get(body.returned[at])
    if op is None or op.kind not in ("add", "subtract") or op.operands[0] != body.arguments[at]:
        return None
    amount = defined.get(op.operands[1])
    if amount is not None and amount.kind == "constant":
        number = specs[amount.spec].attributes["value"]
    elif op.operands[1] in body.arguments and body.returned[body.arguments.index(op.operands[1])] == op.operands[1]:
        number = _constant_of(inits[body.arguments.index(op.operands[1])], specs)
    else:
        return None
    if not isinstance(number, (np.integer, int)):
        return None
    return int(number) if op.kind == "add" else -int(number)
