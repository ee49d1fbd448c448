"""The unpartitioned program as text: what passes leave, and what the first tactic sees.

    func @main(%x: tensor<8x4xf32>) {
      while() {
        %3, %4 = carry(%2, %9) : tensor<8x4xf32>
        condition {
          ...
        }
        body trips=3 {
          %9 = add(%3, %8) : tensor<8x4xf32>
        }
      }
      return %4
    }

A carry's results are the value inside the loop and the value after it; it reads the initial and the next value.
"""

from __future__ import annotations

from collections.abc import Iterator

from autopart.base.quoting import one_line
from autopart.core.program import Program
from autopart.core.table.text import op_text, tensor, value_names


def program_text(program: Program) -> str:
    """Every op on a line, in regions as they nest, with global types."""
    names = value_names(program)
    arguments = ", ".join(f"{names[v]}: {tensor(program.type_of(v))}" for v in program.arguments)
    lines = [f"func @main({arguments}) {{"]
    lines += _lines(program, names, range(len(program.arguments), program.op_count), 1)
    lines.append("  return " + ", ".join(names[v] for v in program.outputs))
    return "\n".join(map(one_line, [*lines, "}"]))


def _lines(program: Program, names: list[str], ops: range, depth: int) -> Iterator[str]:
    """The ops of a scope; those of scopes inside stand below the op that owns these."""
    pad, op = "  " * depth, ops.start
    while op < ops.stop:
        line = pad + _op_line(program, names, op)
        inner = program.inner_scopes.get(op, [])
        yield line + (" {" if inner else "")
        first = op + 1
        for number in inner:
            region = program.scopes[number]
            yield from _lines(program, names, range(first, region.start), depth + 1)
            trips = f" trips={region.trips}" if region.kind == "body" and region.trips_known else ""
            yield f"{pad}  {region.kind}{trips} {{"
            yield from _lines(program, names, range(region.start, region.end), depth + 2)
            yield f"{pad}  }}"
            first = region.end
        if inner:
            yield f"{pad}}}"
        op = first


def _op_line(program: Program, names: list[str], op: int) -> str:
    left = ", ".join(names[v] for v in program.results_of(op))
    text = op_text(program.spec(op), [names[v] for v in program.operands_of(op)])
    types = ", ".join(tensor(t) for t in program.spec(op).results)
    return f"{left}{' = ' if left else ''}{text}{' : ' + types if types else ''}"
