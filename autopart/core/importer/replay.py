"""StableHLO module -> `Program`: calls inlined, control flow flattened, constants cloned per use.

    func.func @main(%arg0)                      argument "x"
      %0 = call @square(%arg0)          ->      multiply
      %1 = stablehlo.while(...)                 while / carry / condition ops / body ops

A call replays its callee's template, and a later call that is alike is a copy of the ops that came of it
(`grown_ops.py`): a program of a million inlined ops costs neither a million walks through MLIR nor as many appends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from autopart.base.errors import ProgramError
from autopart.base.gc_pause import gc_paused
from autopart.base.limits import Gauge, Limits
from autopart.core.doors.host_callbacks import Body
from autopart.core.doors.jax_internals import ir
from autopart.core.importer.call_graph import CallGraph
from autopart.core.importer.grown_ops import LEAST, Call, Copied, GrownOps, Replayed
from autopart.core.importer.host_calls import check_calls
from autopart.core.importer.large_constants import CLOSED_OVER, large_constants
from autopart.core.importer.locations import Source
from autopart.core.importer.manual_region import without_empty_constraints
from autopart.core.importer.module_names import argument_location_names, checked_names, quoted_text
from autopart.core.importer.template import Block, Callee, Op, Reader
from autopart.core.importer.ties import ALIASING, aliases, checked_ties
from autopart.core.importer.trip_count import Lazy, trip_count
from autopart.core.op import OpSpec, TensorType
from autopart.core.op_spec_import import SpecTable
from autopart.core.ops.rule import target_of, traits_of
from autopart.core.passes import IMPORT_PASSES, run_optional_passes
from autopart.core.program import ROOT, Program, Scope

OPS_BETWEEN_CHECKS = 4096
"""Ops that are appended between two looks at the clock and the limits."""

NOWHERE = 0
"""The source of what no MLIR op was made for, and the call around what stands in no call."""


def read_module(
    module: ir.Module,
    *,
    argument_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    ties: Mapping[int, int] | None = None,
    donated: frozenset[int] | None = None,
    limits: Limits | None = None,
    bodies: Sequence[Body] = (),
    constraints: bool = False,
    keep_unused: bool = False,
    without_arrays: Sequence[str] = (),
    lift: bool = False,
    closed_over: Sequence[np.ndarray] = (),
) -> Program:
    """The program of a module's `main` function, op by op; `import_module` also runs passes over it.

    Names default to the arguments' `loc`, then arg0, arg1, ...; `ties` and `donated` default to the module's
    `tf.aliasing_output` attributes; `bodies` are the host callbacks and kernels that it calls by index; `constraints`
    makes tags of sharding constraints, which otherwise are not there; `keep_unused` and `without_arrays` are the
    program's. `lift` makes large constants the first arguments (`large_constants.py`), before those that names, ties
    and `donated` are about; `closed_over` are the arrays of the first arguments, where a module has them already.

    Raises `ProgramError` on dynamic shapes, missing functions, tokens, calls into another Python process, or a program
    that already communicates between devices; on recursion, ties that cannot be, names that are none, and on what
    exceeds `limits` (default: none).
    """
    try:
        with gc_paused():
            importer = _Importer(module, Gauge(limits), bodies, constraints, lift, closed_over)
            program = importer.run(argument_names, output_names, ties, donated)
            return replace(program, keep_unused=keep_unused, without_arrays=tuple(without_arrays))
    except RecursionError:
        raise ProgramError(
            "the program nests more deeply than Python's stack allows", hint="sys.setrecursionlimit(...)"
        ) from None


def import_module(module: ir.Module, **how: Any) -> Program:
    """What `read_module` reads, with the same keywords, after the passes that every program goes through."""
    return run_optional_passes(read_module(module, **how), IMPORT_PASSES)[0]


class _Importer:
    def __init__(
        self,
        module: ir.Module,
        gauge: Gauge,
        bodies: Sequence[Body],
        constraints: bool,
        lift: bool,
        closed_over: Sequence[np.ndarray],
    ):
        self._module, self._gauge, self._bodies, self._constraints = module, gauge, bodies, constraints
        self._lift, self._closed_over = lift, list(closed_over)
        self._lifted: dict[int, int] = {}
        self._in_region = False
        self._ops_until_check = OPS_BETWEEN_CHECKS
        self._specs = SpecTable()
        self._functions = {
            quoted_text(op.attributes["sym_name"]): op.operation
            for op in module.body.operations
            if op.operation.name == "func.func"
        }
        self._templates: dict[Callee, Block] = {}
        self._calls: dict[tuple[object, ...], Replayed | Copied] = {}
        self._cloned: dict[int, bool] = {}
        self._sources: list[ir.Operation | None] = [None]
        self._outer_call = NOWHERE
        self._types: list[TensorType] = []
        self._type_number: dict[TensorType, int] = {}
        self._result_types: dict[int, list[int]] = {}
        self._ops = GrownOps()

    def run(
        self,
        argument_names: Sequence[str] | None,
        output_names: Sequence[str] | None,
        ties: Mapping[int, int] | None,
        donated: frozenset[int] | None,
    ) -> Program:
        name = "main" if "main" in self._functions else next(iter(self._functions), None)
        if name is None:
            raise ProgramError("the module has no function")
        main = self._functions[name]
        template = self._template(Callee(name))
        self._gauge.check_ops(CallGraph(self._template, self._gauge).steps(Callee(name)))
        inputs = _attributes_of(main, "arg_attrs", len(template.arguments))
        results = _attributes_of(main, "res_attrs", len(template.returned))
        if donated is None:
            donated = frozenset(i for i, a in enumerate(inputs) if {"tf.aliasing_output", "jax.buffer_donor"} & set(a))
        block = main.regions[0].blocks[0]
        types = [self._specs.type(a.type) for a in block.arguments]
        names = checked_names(argument_names, len(types)) if argument_names else argument_location_names(block)
        returned = [self._specs.type(v.type) for v in _return_of(block, name).operands]
        ties = checked_ties(aliases(inputs) if ties is None else ties.items(), types, returned)
        tied_arguments = set(ties.values())
        ops, lifted = self._ops, self._lift_constants() if self._lift else []
        arguments, ops.fixed = list(lifted), len(lifted)
        for index, type_ in enumerate(types):
            operands = (type_,) if index in tied_arguments else ()
            arguments += self._structural("argument", [0] * len(operands), operands, (type_,), ROOT)
        names = [*(f"{CLOSED_OVER}/{n}" for n in range(len(lifted))), *names]
        ties = {output: argument + len(lifted) for output, argument in ties.items()}
        donated = frozenset(argument + len(lifted) for argument in donated)
        outputs = self._replay(template, arguments[len(lifted) :], ROOT)
        outputs = [self._materialised(v, ROOT, NOWHERE) for v in outputs]
        for output, argument in ties.items():
            op = arguments[argument]  # arguments are the first ops, one result each
            ops.operands[ops.operand_ptr[op]] = outputs[output]
        ops.scopes[ROOT] = Scope("program", -1, -1, 0, len(ops))
        check_calls(self._custom_calls(), len(self._bodies))
        default = [a.get("jax.result_info", f"result[{i}]") for i, a in enumerate(results)]
        return Program(
            specs=self._specs.specs,
            op_spec=np.array(ops.op_spec, np.int32),
            operand_ptr=np.array(ops.operand_ptr, np.int32),
            operands=np.array(ops.operands, np.int32),
            result_ptr=np.array(ops.result_ptr, np.int32),
            op_scope=np.array(ops.op_scope, np.int32),
            scopes=ops.scopes,
            arguments=arguments,
            argument_names=names,
            outputs=outputs,
            output_names=list(output_names or default),
            ties=ties,
            tags=_by_name(ops.tags),
            owners=dict(ops.owners),
            donated=donated,
            barriers=[parts for parts in ops.barriers if parts],
            source=Source(
                self._module, self._specs.representatives, self._sources, np.array(ops.op_source, np.int32),
                np.array(ops.call_site, np.int32), self._bodies, closed_over=self._closed_over,
            ),
        )  # fmt: skip

    def _lift_constants(self) -> list[int]:
        """An argument for each large constant, which then stands for all of its uses."""
        for spec, array in large_constants(self._specs.specs, self._specs.representatives).items():
            self._closed_over.append(array)
            self._lifted[spec] = self._structural("argument", [], (), self._specs.specs[spec].results, ROOT)[0]
        return list(self._lifted.values())

    def _custom_calls(self) -> Iterator[tuple[str, ir.Operation]]:
        for spec, op in zip(self._specs.specs, self._specs.representatives, strict=True):
            if spec.kind == "custom_call" and op is not None:
                yield target_of(spec), op

    # ---- reading functions into templates

    def _template(self, callee: Callee) -> Block:
        if callee not in self._templates:
            name, region = callee
            if name not in self._functions:
                raise ProgramError(f"the module calls @{name}, which it does not define")
            function = self._functions[name]
            blocks = len(function.regions[0].blocks)
            if blocks != 1:
                raise ProgramError(
                    f"function @{name} has {blocks} blocks" if blocks else f"function @{name} has no body",
                    why="a StableHLO function is one block; its branches and loops are ops",
                )
            if region is not None:
                without_empty_constraints(function.regions[0])
            reader = Reader(self._specs, self._gauge, self._sources, self._constraints, region)
            self._templates[callee] = reader.read(function.regions[0].blocks[0])
        return self._templates[callee]

    # ---- replaying templates into the program

    def _append(self, spec: int, operands: Sequence[int], scope: int, source: int) -> range:
        self._ops_until_check -= 1
        if self._ops_until_check <= 0:
            self._check_size()
        types = self._result_types.get(spec)
        if types is None:
            types = self._result_types[spec] = [self._number_of(t) for t in self._specs.specs[spec].results]
        ops = self._ops
        first = len(ops.types)
        ops.op_spec.append(spec)
        ops.op_scope.append(scope)
        ops.op_source.append(source)
        ops.call_site.append(self._outer_call)
        ops.operands.extend(operands)
        ops.operand_ptr.append(len(ops.operands))
        ops.types.extend(types)
        end = first + len(types)
        ops.result_ptr.append(end)
        return range(first, end)

    def _number_of(self, type_: TensorType) -> int:
        if type_ not in self._type_number:
            self._type_number[type_] = len(self._types)
            self._types.append(type_)
        return self._type_number[type_]

    def _check_size(self) -> None:
        """Constants are cloned per use, so that a program may grow beyond the steps that were counted."""
        self._ops_until_check = OPS_BETWEEN_CHECKS
        self._gauge.check_ops(len(self._ops))
        self._gauge.check_time()

    def _structural(
        self,
        kind: str,
        operands: Sequence[int],
        operand_types: Sequence[TensorType],
        result_types: Sequence[TensorType],
        scope: int,
        source: int = NOWHERE,
    ) -> range:
        spec = self._specs.structural(kind, tuple(operand_types), tuple(result_types))
        return self._append(spec, operands, scope, source)

    def _materialised(self, value: int | Lazy, scope: int, source: int) -> int:
        """The value number to read: a cloned op's result where the value is cloned per use."""
        if not isinstance(value, Lazy):
            return value
        operands = [self._materialised(v, scope, source) for v in value.operands]
        return self._append(value.spec, operands, scope, value.source)[0]

    def _type(self, value: int) -> TensorType:
        return self._types[self._ops.types[value]]

    def _replay(self, block: Block, arguments: Sequence[int | Lazy], scope: int, outer: dict | None = None) -> list:
        env: dict[int, int | Lazy] = outer if outer is not None else {}
        env.update(zip(block.arguments, arguments, strict=True))
        specs = self._specs.specs
        for op in block.ops:
            operands = [env[v] for v in op.operands]
            spec = op.spec
            if spec >= 0:
                cloned = self._cloned.get(spec)
                if cloned is None:
                    cloned = self._cloned[spec] = _is_cloned(specs[spec])
                if spec in self._lifted and not self._in_region:
                    env[op.results[0]] = self._lifted[spec]
                    continue
                if cloned:
                    env[op.results[0]] = Lazy(spec, operands, op.source)
                    continue
                read = [self._materialised(v, scope, op.source) if isinstance(v, Lazy) else v for v in operands]
                made = self._append(spec, read, scope, op.source)
                if len(made) == 1:
                    env[op.results[0]] = made.start
                else:
                    env.update(zip(op.results, made, strict=True))
                continue
            match op.kind:
                case "call":
                    results = self._call(op, operands, scope)
                case "alias":
                    results = operands
                case "while":
                    results = self._while(op, operands, scope, env)
                case "case":
                    results = self._case(op, operands, scope, env)
                case _:
                    results = self._barrier(op, operands, scope)
            if op.tag:
                results = [self._tagged(op.tag, r, scope, op.source) for r in results]
            env.update(zip(op.results, results, strict=True))
        return [env[v] for v in block.returned]

    def _barrier(self, op: Op, operands: list, scope: int) -> list:
        """One op per operand, one after the other: a barrier says nothing about how its operands tile together."""
        read = [self._materialised(v, scope, op.source) for v in operands]
        types = [self._type(v) for v in read]
        first = len(self._ops)
        self._ops.barriers.append(range(first, first + len(read)))
        return [
            self._structural("optimization_barrier", [v], [type_], [type_], scope, op.source)[0]
            for v, type_ in zip(read, types, strict=True)
        ]

    def _call(self, op: Op, operands: list, scope: int) -> list:
        outermost = self._outer_call == NOWHERE
        if outermost:
            self._outer_call = op.source
        assert op.callee is not None
        outside, self._in_region = self._in_region, self._in_region or op.callee.region is not None
        call = Call.of((op.callee, self._in_region), operands, self._ops.fixed)
        known = self._calls.get(call.pattern)
        if isinstance(known, Replayed):
            known = self._calls[call.pattern] = Copied(self._ops, known)
        if known is not None:
            results = known.append(self._ops, call, scope, self._outer_call)
            self._ops_until_check -= known.op_count
        else:
            begin = self._ops.place()
            results = self._replay(self._template(op.callee), operands, scope)
            end = self._ops.place()
            if end.op - begin.op >= LEAST:
                self._calls[call.pattern] = Replayed(call, begin, end, scope, results)
        self._in_region = outside
        if outermost:
            self._outer_call = NOWHERE
        return results

    def _tagged(self, name: str, value: int | Lazy, scope: int, source: int) -> int:
        value = self._materialised(value, scope, source)
        type_ = self._type(value)
        tagged = self._structural("tag", [value], [type_], [type_], scope, source)[0]
        self._ops.tags.append((name, tagged))
        return tagged

    def _while(self, op: Op, inits: list, scope: int, env: dict) -> list:
        condition, body = op.blocks
        unchanged = [r == a for r, a in zip(body.returned, body.arguments, strict=True)]
        carried = [i for i, same in enumerate(unchanged) if not same]
        start = [self._materialised(inits[i], scope, op.source) for i in carried]
        trips = trip_count(condition, body, inits, self._specs.specs)
        loop = len(self._ops)
        self._structural("while", [], [], [], scope, op.source)
        inside, after = list(inits), list(inits)
        for i, init in zip(carried, start, strict=True):
            type_ = self._type(init)
            carry = len(self._ops)
            inside[i], after[i] = self._structural("carry", [init, init], [type_] * 2, [type_] * 2, scope, op.source)
            self._ops.owners.append((carry, loop))
        carries = range(loop + 1, len(self._ops))
        runs = trips if trips is not None else 1
        index = self._open("condition", loop, scope, runs + 1, trips is not None)
        (predicate,) = self._replay(condition, inside, index, env)
        predicate = self._materialised(predicate, index, op.source)
        self._structural("condition", [predicate], [self._type(predicate)], [], index, op.source)
        self._close(index)
        index = self._open("body", loop, scope, runs, trips is not None)
        results = self._replay(body, inside, index, env)
        results = [self._materialised(results[i], index, op.source) for i in carried]
        self._close(index)
        for carry, value in zip(carries, results, strict=True):
            self._ops.operands[self._ops.operand_ptr[carry] + 1] = value
        return after

    def _case(self, op: Op, operands: list, scope: int, env: dict) -> list:
        predicate = self._materialised(operands[0], scope, op.source)
        owner = len(self._ops)
        self._structural("case", [predicate], [self._type(predicate)], [], scope, op.source)
        branches = []
        for block in op.blocks:
            index = self._open("branch", owner, scope, 1, True)
            results = self._replay(block, [], index, env)
            branches.append([self._materialised(r, index, op.source) for r in results])
            self._close(index)
        joined = []
        for values in zip(*branches, strict=True):
            types = [self._type(v) for v in values]
            self._ops.owners.append((len(self._ops), owner))
            joined += self._structural("join", values, types, types[:1], scope, op.source)
        return joined

    def _open(self, kind: str, op: int, parent: int, trips: int, known: bool) -> int:
        self._ops.scopes.append(Scope(kind, op, parent, len(self._ops), -1, trips, known))
        return len(self._ops.scopes) - 1

    def _close(self, index: int) -> None:
        s = self._ops.scopes[index]
        self._ops.scopes[index] = Scope(s.kind, s.op, s.parent, s.start, len(self._ops), s.trips, s.trips_known)


def _is_cloned(spec: OpSpec) -> bool:
    """True for ops that are computed anew for each use: those said to be, where they read no array."""
    return traits_of(spec).cloned_per_use and not any(t.shape for t in spec.operands)


def _by_name(tags: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, value in tags:
        found.setdefault(name, []).append(value)
    return found


def _attributes_of(function: ir.Operation, name: str, count: int) -> list[dict[str, str]]:
    if name not in function.attributes:
        return [{} for _ in range(count)]
    return [
        {e.name: str(e.attr) if e.name == ALIASING else quoted_text(e.attr) for e in attributes}
        for attributes in cast(Any, function.attributes[name])
    ]


def _return_of(block: ir.Block, name: str) -> ir.Operation:
    last = block.operations[len(block.operations) - 1].operation
    if last.name != "func.return":
        raise ProgramError(f"function @{name} ends in {last.name}, not in a return")
    return last
