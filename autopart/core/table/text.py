"""PartIR:Core as text: the program with each op in its loop nest.

    %4 = loop "B" [#tile<0>] (%rB: range<4>) {
      %4.0 = slice 0 %x[%rB] : tensor<64x8xf32>
      %4.y = dot_general(%4.0, %w1) : tensor<64x16xf32>
      yield %4.y
    } : tensor<256x16xf32>

The outer loop is the axis that entered the nest first. An explicitly tiled or atomic value gets a loop of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from autopart.base.quoting import one_line, quoted
from autopart.core.kernel_calls.call_config import config_of
from autopart.core.layout import LAST_TILE
from autopart.core.op import REDUCTION_NAMES, WHOLE, OpSpec, TensorType
from autopart.core.ops.rule import named, traits_of
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning


def tensor(type_: TensorType) -> str:
    """A type as MLIR writes it: tensor<64x8xf32>."""
    return f"tensor<{'x'.join([*map(str, type_.shape), type_.dtype])}>"


def value_names(program: Program) -> list[str]:
    """%path for arguments ("/" becomes "."), %number for the rest."""
    names = [f"%{v}" for v in range(program.value_count)]
    for name, value in zip(program.argument_names, program.arguments, strict=True):
        names[value] = "%" + _word(name)
    return names


def _word(name: str) -> str:
    return re.sub(r"[^\w.]+", ".", name)


def op_text(spec: OpSpec, operands: list[str]) -> str:
    """Kind, operands and the few attributes that a reader needs."""
    shown = [f"{k}={_plain(spec.attributes[k])}" for k in traits_of(spec).shown if k in spec.attributes]
    if spec.kind == "constant":
        return f"constant {spec.attributes.get('value', '...')}"
    if config_of(spec) is not None:
        return one_line(f"{named(spec)}({', '.join(operands)})")
    if spec.kind == "custom_call":
        shown.insert(0, f"@{spec.attributes.get('call_target_name')}")
    if spec.region:
        shown.append(f"region={spec.region}")
    return one_line(f"{spec.kind}({', '.join(operands)})" + (f" {{{', '.join(shown)}}}" if shown else ""))


def _plain(value: object) -> str:
    return "[" + ",".join(map(str, value)) + "]" if isinstance(value, tuple) else str(value)


def core_text(partitioning: Partitioning) -> str:
    """The partitioned program as PartIR:Core."""
    program, mesh = partitioning.program, partitioning.mesh
    names = value_names(program)
    arguments = ", ".join(f"{names[v]}: {tensor(program.type_of(v))}" for v in program.arguments)
    axes = ", ".join(f"{quoted(n)}:{s}" for n, s in mesh.shape.items())
    lines = [f"func @main({arguments}) mesh {{{axes}}} {{"]
    argument_ops = {int(program.value_op[v]) for v in program.arguments}
    for value in program.arguments:
        lines += _value_loops(partitioning, value, names, 1)
    depth = 1
    ends = {s.end: s for s in program.scopes[1:]}
    for op in range(program.op_count):
        if op in ends:
            depth = _depth(program, op)
        if op not in argument_ops:
            lines += _op_lines(partitioning, op, names, _depth(program, op))
            for value in program.results_of(op):
                lines += _value_loops(partitioning, value, names, depth)
    lines.append("  return " + ", ".join(names[v] for v in program.outputs))
    return "\n".join([*lines, "}"])


def _depth(program: Program, op: int) -> int:
    depth, scope = 1, int(program.op_scope[op])
    while scope > 0:
        depth, scope = depth + 1, program.scopes[scope].parent
    return depth


def _value_loops(partitioning: Partitioning, value: int, names: list[str], depth: int) -> Iterator[str]:
    """The loops of explicit decisions about a value, and of an argument's inferred ones; a new name follows."""
    program, mesh = partitioning.program, partitioning.mesh
    tiled = dict(_decisions(partitioning, value))
    if not tiled:
        return
    type_ = program.type_of(value)
    shape, body, lines, opened = list(type_.shape), names[value], [], []
    inner = "  " * (depth + len(tiled))
    for axis, dim in tiled.items():
        name, size = mesh.axis_names[axis], mesh.axis_sizes[axis]
        opened.append(f"loop {quoted(name)} [{_action(dim)}] (%r{_word(name)}: range<{size}>)")
        if dim is not None:
            sliced = f"{names[value]}s" + "'" * len(lines)
            shape[dim] //= size
            lines.append(
                f"{inner}{sliced} = slice {dim} {body}[%r{_word(name)}] : "
                f"{tensor(TensorType(tuple(shape), type_.dtype))}"
            )
            body = sliced
    renamed = names[value] + "t"
    for level, text in enumerate(opened):
        yield "  " * (depth + level) + (f"{renamed} = " if level == 0 else "yield ") + text + " {"
    yield from lines
    yield f"{inner}yield {body}"
    for level in reversed(range(len(opened))):
        yield "  " * (depth + level) + "}" + (f" : {tensor(type_)}" if level == 0 else "")
    names[value] = renamed


def _decisions(partitioning: Partitioning, value: int) -> list[tuple[int, int | None]]:
    """(axis, tiled dim, or None where it is kept whole), outermost first."""
    program, state = partitioning.program, partitioning.state
    op = int(program.value_op[value])
    is_argument = program.spec(op).kind == "argument"
    found = []
    for axis, name in enumerate(partitioning.mesh.axis_names):
        if partitioning.graph.closed[op, axis]:
            continue
        dim = partitioning.tiled_dim(value, name)
        if state.action[value, axis] != 0:
            found.append((int(state.value_stamp[value, axis]), axis, dim if dim >= 0 else None))
        elif is_argument and dim >= 0:
            found.append((int(state.op_stamp[op, axis]), axis, dim))
    return [(axis, dim) for _, axis, dim in sorted(found)]


def _action(entry: int | None) -> str:
    if entry is None or (entry > LAST_TILE and entry not in REDUCTION_NAMES):
        return "any"
    return f"#tile<{entry}>" if entry < LAST_TILE else f"#{REDUCTION_NAMES[entry]}"


def _op_lines(partitioning: Partitioning, op: int, names: list[str], depth: int) -> Iterator[str]:
    program, mesh, state = partitioning.program, partitioning.mesh, partitioning.state
    spec, pad = program.spec(op), "  " * depth
    results = list(program.results_of(op))
    axes = [a for a in range(len(mesh.axis_names)) if state.mapping[op, a] >= 0]
    axes.sort(key=lambda a: state.op_stamp[op, a])
    operands = [names[v] for v in program.operands_of(op)]
    left = ", ".join(names[v] for v in results)
    types = ", ".join(map(tensor, spec.results))
    if not axes:
        yield f"{pad}{left}{' = ' if left else ''}{op_text(spec, operands)}{' : ' + types if types else ''}"
        return
    mappings = [partitioning.table.of[program.op_spec[op]][state.mapping[op, a]] for a in axes]
    for level, (axis, mapping) in enumerate(zip(axes, mappings, strict=True)):
        name = mesh.axis_names[axis]
        actions = ", ".join(_action(entry) for entry in mapping.results)
        yield (
            "  " * (depth + level) + (f"{left} = " if level == 0 else "yield ")
            + f'loop {quoted(name)} [{actions}] (%r{_word(name)}: range<{mesh.axis_sizes[axis]}>) {{'
        )  # fmt: skip
    inner = "  " * (depth + len(axes))
    shapes = [list(t.shape) for t in spec.operands]
    for axis, mapping in zip(axes, mappings, strict=True):
        for k, dim in enumerate(mapping.operands):
            if dim != WHOLE:
                shapes[k][dim] //= mesh.axis_sizes[axis]
                sliced = (
                    f"{names[results[0]]}.{k}"
                    if not operands[k].startswith(f"{names[results[0]]}.{k}")
                    else operands[k] + "'"
                )
                type_ = TensorType(tuple(shapes[k]), spec.operands[k].dtype)
                yield f"{inner}{sliced} = slice {dim} {operands[k]}[%r{_word(mesh.axis_names[axis])}] : {tensor(type_)}"
                operands[k] = sliced
    local = [list(t.shape) for t in spec.results]
    for axis, mapping in zip(axes, mappings, strict=True):
        for r, entry in enumerate(mapping.results):
            if entry < LAST_TILE:
                local[r][entry] //= mesh.axis_sizes[axis]
    yields = ", ".join(f"{names[v]}.y" for v in results)
    local_types = ", ".join(tensor(TensorType(tuple(s), t.dtype)) for s, t in zip(local, spec.results, strict=True))
    yield f"{inner}{yields} = {op_text(spec, operands)} : {local_types}"
    yield f"{inner}yield {yields}"
    for level in reversed(range(len(axes))):
        yield "  " * (depth + level) + "}" + (f" : {types}" if level == 0 else "")
