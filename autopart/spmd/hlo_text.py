"""PartIR:HLO as text: the device-local program with collectives over mesh axes.

func @main(%x: tensor<64x8xf32>, %w1: tensor<2x8xf32>) mesh {"B":4, "M":2} {
  %w1.g0 = all_gather [{"B"},{}] %w1 : tensor<8x8xf32>
  %2 = dot_general(%x, %w1.g0) : tensor<64x8xf32>
  return %2
}
"""

from __future__ import annotations

from collections import defaultdict

from autopart.core.program import ROOT
from autopart.core.quoting import one_line
from autopart.core.text import op_text, tensor, value_names
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.redistribution import Plan


def hlo_text(local: DeviceLocal) -> str:
    """The device-local program as PartIR:HLO."""
    return "\n".join(map(one_line, _Printer(local).lines()))


class _Printer:
    def __init__(self, local: DeviceLocal):
        self._local, self._program = local, local.program
        self._names = value_names(local.program)
        self._moved: dict[int, str] = {}
        self._count: defaultdict[int, int] = defaultdict(int)
        self._before: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        places = local.placement
        for r, key in enumerate(zip(places.scope.tolist(), places.position.tolist(), strict=True)):
            self._before[key].append(r)
        self._def_plan = dict(zip(local.at_def.tolist(), local.def_plans, strict=True))
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        local, program = self._local, self._program
        arguments = ", ".join(
            f"{self._names[v]}: {tensor(local.local_type(v, int(local.settled[v])))}" for v in program.arguments
        )
        axes = ", ".join(f'"{n}":{s}' for n, s in local.mesh.shape.items())
        self._lines.append(f"func @main({arguments}) mesh {{{axes}}} {{")
        first = len(program.arguments)
        self._range(ROOT, first, program.op_count, 1)
        self._redistribute(ROOT, program.op_count, 1)
        returned = [self._output(i) for i in range(len(program.outputs))]
        self._lines.append(f"  return {', '.join(returned)}")
        self._lines.append("}")
        return self._lines

    def _output(self, index: int) -> str:
        program = self._program
        if index in program.ties:
            op = program.value_op[program.arguments[program.ties[index]]]
            return self._read(int(program.operand_ptr[op]))
        return self._names[program.outputs[index]]

    def _read(self, use: int) -> str:
        moved = int(self._local.placement.of_use[use])
        return self._moved[moved] if moved >= 0 else self._names[self._program.operands[use]]

    def _range(self, scope: int, start: int, end: int, depth: int) -> None:
        program, op = self._program, start
        while op < end:
            self._redistribute(scope, op, depth)
            kind = program.spec(op).kind
            if kind in ("while", "case"):
                op = self._regions(op, depth)
                continue
            self._op(op, depth)
            op += 1

    def _regions(self, owner: int, depth: int) -> int:
        program, pad = self._program, "  " * depth
        kind = program.spec(owner).kind
        inner = program.inner_scopes[owner]
        uses = range(program.operand_ptr[owner], program.operand_ptr[owner + 1])
        trips = f" trips={program.scopes[inner[-1]].trips}" if kind == "while" else ""
        self._lines.append(f"{pad}{kind}({', '.join(map(self._read, uses))}){trips} {{")
        op = owner + 1
        carries = []
        while program.owners.get(op) == owner and program.spec(op).kind == "carry":
            header, after = program.results_of(op)
            init = self._read(int(program.operand_ptr[op]))
            kind_ = tensor(self._local.local_type(header, int(self._local.settled[header])))
            self._lines.append(f"{pad}  {self._names[header]} = carry({init}) : {kind_}")
            carries.append((op, after))
            op += 1
        for index in inner:
            s = program.scopes[index]
            self._lines.append(f"{pad}  {s.kind} {{")
            self._range(index, s.start, s.end, depth + 2)
            self._redistribute(index, s.end, depth + 2)
            if s.kind == "body":
                values = [self._read(int(program.operand_ptr[c]) + 1) for c, _ in carries]
                self._lines.append(f"{pad}    yield {', '.join(values)}")
            self._lines.append(f"{pad}  }}")
        results = ", ".join(self._names[a] for _, a in carries)
        self._lines.append(f"{pad}}}" + (f" -> {results}" if results else ""))
        return program.scopes[inner[-1]].end

    def _op(self, op: int, depth: int) -> None:
        local, program, pad = self._local, self._program, "  " * depth
        results = list(program.results_of(op))
        uses = range(program.operand_ptr[op], program.operand_ptr[op + 1])
        left = ", ".join(self._names[v] for v in results)
        types = ", ".join(tensor(local.local_type(v, int(local.native[v]))) for v in results)
        text = op_text(program.spec(op), [self._read(u) for u in uses])
        self._lines.append(f"{pad}{left}{' = ' if left else ''}{text}{' : ' + types if types else ''}")
        for value in results:
            if value in self._def_plan:
                self._names[value] = self._steps(self._def_plan[value], value, self._names[value], depth)

    def _redistribute(self, scope: int, position: int, depth: int) -> None:
        for r in self._before[scope, position]:
            value = int(self._local.placement.value[r])
            self._moved[r] = self._steps(self._local.use_plans[r], value, self._names[value], depth)

    def _steps(self, plan: Plan, value: int, name: str, depth: int) -> str:
        for step in plan.steps:
            fresh = f"{self._names[value].split('.r')[0]}.r{self._count[value]}"
            self._count[value] += 1
            dtype = self._program.type_of(value).dtype
            shape = "x".join([*map(str, step.target.local_shape), dtype])
            self._lines.append(f"{'  ' * depth}{fresh} = {step.text()} {name} : tensor<{shape}>")
            name = fresh
        return name
