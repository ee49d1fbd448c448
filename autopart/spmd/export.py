"""DeviceLocal -> StableHLO: the module that every device runs.

    func.func @main(%arg0: tensor<64x8xf32>, %arg1: tensor<2x8xf32>)
      %0 = stablehlo.all_gather %arg1 ...          a redistribution, before the use that needs it
      %1 = stablehlo.dot_general %arg0, %0         the op on local shapes

Control flow is put back together from its scopes. A stored-sharded value that is gathered more than once is passed,
from the second time on, through an `optimization_barrier` with another operand of the use: the compiler can then
neither merge the gathers nor move them before the use is ready.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from typing import cast

from autopart.core.gc_pause import gc_paused
from autopart.core.jax_internals import barrier, func, ir, stablehlo
from autopart.core.op import TensorType
from autopart.core.ops.rule import localize
from autopart.core.program import ROOT
from autopart.spmd.called_functions import copy_called_functions
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.emitter import Emitter
from autopart.spmd.index_ranges import keep_indices_in_range
from autopart.spmd.local_op import MlirLocalOp, mlir_type, reusable
from autopart.spmd.redistribution import Plan
from autopart.spmd.run import output_layouts
from autopart.spmd.scoped_values import ScopedValues


def export(local: DeviceLocal) -> ir.Module:
    """The device-local StableHLO module; its `main` takes and returns what one device holds."""
    source = local.program.source
    if source is None:
        raise ValueError("the program was unpickled without its module; export where it was imported")
    with gc_paused(), source.module.context, ir.Location.unknown():
        return _Exporter(local).run()


class _Exporter:
    def __init__(self, local: DeviceLocal):
        self._local, self._program = local, local.program
        self._specs = local.program.specs
        self._env = ScopedValues()
        self._moved: dict[int, ir.Value] = {}
        self._types: dict[TensorType, ir.Type] = {}
        self._constants: list[dict[int, list[ir.Value]]] = [{}]
        self._emitted: dict[tuple, ir.Operation] = {}
        self._def_plan = dict(zip(local.at_def.tolist(), local.def_plans, strict=True))
        self._before: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        places = local.placement
        for r, key in enumerate(zip(places.scope.tolist(), places.position.tolist(), strict=True)):
            self._before[key].append(r)
        self._first_use = self._first_uses()
        self._gathered: set[tuple[int, int]] = set()
        self._collectives = Emitter(local.mesh)
        self._op_spec = local.program.op_spec.tolist()
        self._operand_ptr = local.program.operand_ptr.tolist()
        self._operands = local.program.operands.tolist()
        self._result_ptr = local.program.result_ptr.tolist()
        self._of_use = places.of_use.tolist()
        self._native, self._required = local.native.tolist(), local.required.tolist()

    def _first_uses(self) -> dict[int, int]:
        first: dict[int, int] = {}
        of_use = self._local.placement.of_use
        for use in (of_use >= 0).nonzero()[0].tolist():
            first.setdefault(int(of_use[use]), use)
        return first

    def run(self) -> ir.Module:
        local, program = self._local, self._program
        module = ir.Module.create()
        inputs = [self._type(local.local_type(v, int(local.settled[v]))) for v in program.arguments]
        layouts = output_layouts(local)
        outputs = [self._type(local.local_type(v, layout)) for v, layout in zip(program.outputs, layouts, strict=True)]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(inputs, outputs), visibility="public")
            block = main.add_entry_block()
        self._env.update(zip(program.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            self._collectives.begin()
            self._range(ROOT, len(program.arguments), program.op_count)
            self._redistribute(ROOT, program.op_count)
            func.ReturnOp([self._output(i) for i in range(len(outputs))])
        keep_indices_in_range(block, local.mesh.size)
        ops = [op for op in program.source.representatives if op is not None]
        copy_called_functions(ops, program.source.module, module)
        return module

    def _output(self, index: int) -> ir.Value:
        program = self._program
        if index in program.ties:
            op = program.value_op[program.arguments[program.ties[index]]]
            return self._read(int(program.operand_ptr[op]))
        return self._env[program.outputs[index]]

    def _type(self, type_: TensorType) -> ir.Type:
        if type_ not in self._types:
            self._types[type_] = mlir_type(type_)
        return self._types[type_]

    def _read(self, use: int) -> ir.Value:
        moved = self._of_use[use]
        return self._moved[moved] if moved >= 0 else self._env[self._operands[use]]

    # ---- ops

    def _range(self, scope: int, start: int, end: int) -> None:
        op = start
        while op < end:
            if (scope, op) in self._before:
                self._redistribute(scope, op)
            kind = self._specs[self._op_spec[op]].kind
            if kind == "while":
                op = self._while(op)
            elif kind == "case":
                op = self._case(op)
            elif kind == "optimization_barrier":
                op = self._barrier(scope, op)
            else:
                self._op(op, kind)
                op += 1

    def _op(self, op: int, kind: str) -> None:
        first, last = self._result_ptr[op], self._result_ptr[op + 1]
        uses = range(self._operand_ptr[op], self._operand_ptr[op + 1])
        operands = [self._read(u) for u in uses]
        structural = kind in ("tag", "condition")
        results = operands if structural else self._local_op(op, kind, operands, uses, first, last)
        if last == first + 1 and first not in self._def_plan:
            self._env[first] = results[0]
            return
        for value, result in zip(range(first, last), results, strict=False):
            self._define(value, result)

    def _barrier(self, scope: int, op: int) -> int:
        """The barrier put together again from its ops, one per operand."""
        source = self._program.source.source_of(op)
        parts = range(op, op + len(source.operands))
        for part in parts[1:]:
            if (scope, part) in self._before:
                self._redistribute(scope, part)
        for part, result in zip(parts, barrier(*(self._read(self._operand_ptr[p]) for p in parts)), strict=True):
            self._define(self._result_ptr[part], result)
        return parts.stop

    def _define(self, value: int, result: ir.Value) -> None:
        """Gives the value its op's `result`, redistributed into the layout in which the value settles."""
        plan = self._def_plan.get(value)
        self._env[value] = result if plan is None else self._follow(plan, result)

    def _local_op(self, op, kind, operands, uses, first, last) -> list[ir.Value]:
        local, spec = self._local, self._op_spec[op]
        nest = local.nests[op]
        constant = kind == "constant" and not nest
        if constant:
            for known in self._constants:
                if spec in known:
                    return known[spec]
        key = (spec, *nest, *self._required[uses.start : uses.stop], *self._native[first:last])
        if key in self._emitted:
            return _again(self._emitted[key], operands)
        local_op = MlirLocalOp(
            self._specs[spec],
            self._program.source.representatives[spec],
            local.table.of[spec],
            nest,
            operands,
            [local.local_type(self._operands[u], self._required[u]) for u in uses],
            [local.local_type(v, self._native[v]) for v in range(first, last)],
            self._collectives,
        )
        results = localize(local_op)
        if constant:
            self._constants[-1][spec] = results
        else:
            emitted = reusable(local_op, results)
            if emitted is not None:
                self._emitted[key] = emitted
        return results

    # ---- redistributions

    def _redistribute(self, scope: int, position: int) -> None:
        for r in self._before[scope, position]:
            value = int(self._local.placement.value[r])
            self._moved[r] = self._follow(self._local.use_plans[r], self._kept_apart(r, value))

    def _follow(self, plan: Plan, value: ir.Value) -> ir.Value:
        for step in plan.steps:
            value = self._collectives.emit(step, value)
        return value

    def _kept_apart(self, r: int, value: int) -> ir.Value:
        """The value to redistribute; behind a barrier if it has been redistributed so before."""
        key = (value, int(self._local.placement.target[r]))
        if key not in self._gathered:
            self._gathered.add(key)
            return self._env[value]
        use = self._first_use[r]
        op = int(self._program.use_op[use])
        for other in self._operands[self._operand_ptr[op] : self._operand_ptr[op + 1]]:
            if other != value and other in self._env and not self._local.statics.stored[other]:
                return barrier(self._env[value], self._env[other])[0]
        return self._env[value]

    # ---- control flow

    @contextmanager
    def _inside(self, block: ir.Block):
        with ir.InsertionPoint(block):
            self._constants.append({})
            self._env.enter()
            self._collectives.enter()
            yield
            self._collectives.leave()
            self._env.leave()
            self._constants.pop()

    def _while(self, loop: int) -> int:
        program = self._program
        carries = list(self._carries(loop))
        condition, body = program.inner_scopes[loop]
        inits = [self._read(self._operand_ptr[c]) for c in carries]
        types = [v.type for v in inits]
        op = stablehlo.WhileOp(types, inits)
        for region, index in zip(op.regions, (condition, body), strict=True):
            block = region.blocks.append(*types)
            scope = program.scopes[index]
            with self._inside(block):
                for carry, argument in zip(carries, block.arguments, strict=True):
                    self._define(self._result_ptr[carry], argument)
                self._range(index, scope.start, scope.end)
                self._redistribute(index, scope.end)
                if scope.kind == "condition":
                    returned = [self._read(self._operand_ptr[scope.end - 1])]
                else:
                    returned = [self._read(self._operand_ptr[c] + 1) for c in carries]
                stablehlo.return_(returned)
        for carry, result in zip(carries, op.results, strict=True):
            self._define(self._result_ptr[carry] + 1, result)
        return program.scopes[body].end

    def _carries(self, loop: int):
        op = loop + 1
        while self._program.owners.get(op) == loop:
            yield op
            op += 1

    def _case(self, owner: int) -> int:
        program = self._program
        branches = program.inner_scopes[owner]
        predicate = self._read(self._operand_ptr[owner])
        end = program.scopes[branches[-1]].end
        joins = []
        while program.owners.get(end) == owner:
            joins.append(end)
            end += 1
        types = [
            self._type(self._local.local_type(self._result_ptr[j], self._native[self._result_ptr[j]])) for j in joins
        ]
        two_way = program.spec(owner).operands[0].dtype == "i1"
        op = stablehlo.IfOp(types, predicate) if two_way else stablehlo.CaseOp(types, predicate, len(branches))
        for n, (region, index) in enumerate(zip(op.regions, branches, strict=True)):
            scope = program.scopes[index]
            with self._inside(region.blocks.append()):
                self._range(index, scope.start, scope.end)
                self._redistribute(index, scope.end)
                stablehlo.return_([self._read(self._operand_ptr[j] + n) for j in joins])
        for join, result in zip(joins, op.results, strict=True):
            self._define(self._result_ptr[join], result)
        return end


def _again(emitted: ir.Operation, operands: list[ir.Value]) -> list[ir.Value]:
    """The same op on other operands."""
    op = emitted.clone()
    slots = op.operands
    for position, value in enumerate(operands):
        slots[position] = value
    return cast(list, op.results)
