"""The examples of rules as MLIR ops with specs: what tests prove rules on, and what the table of ops shows.

Example('"stablehlo.abs"(%0) : (tensor<4xf32>) -> tensor<4xf32>')

func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> { %r = "stablehlo.abs"(%0) ...  return %r }
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from autopart.core.doors.jax_internals import ir, make_context
from autopart.core.op import OpSpec
from autopart.core.op_spec_import import spec_of
from autopart.core.ops.rule import Example

_TYPES = re.compile(r": \(([^()]*)\) -> ([^{}]*)$")


@dataclass(frozen=True)
class ExampleOp:
    """An example parsed: the module whose last function, main, holds just this op; the op; its spec."""

    module: ir.Module
    op: ir.Operation
    spec: OpSpec


def example_op(example: Example) -> ExampleOp:
    """Parses an example. Raises `ValueError` if its text does not end in a function type, MLIR's error if malformed."""
    found = _TYPES.search(example.text)
    if found is None:
        raise ValueError(f"an example ends in the op's type, `: (tensor<...>) -> tensor<...>`: {example.text}")
    operands, results = (_tensors(side) for side in found.groups())
    arguments = ", ".join(f"%{i}: {t}" for i, t in enumerate(operands))
    values = ["%r"] if len(results) == 1 else [f"%r#{i}" for i in range(len(results))]
    name = "%r" if len(results) == 1 else f"%r:{len(results)}"
    types = ", ".join(results)
    text = f"""{example.functions}
        func.func public @main({arguments}) -> ({types}) {{
          {name} = {example.text}
          return {", ".join(values)} : {types}
        }}"""
    with make_context():
        module = ir.Module.parse(text)
    main = list(module.body.operations)[-1]
    op = main.regions[0].blocks[0].operations[0].operation
    return ExampleOp(module, op, spec_of(op))


def _tensors(side: str) -> list[str]:
    return [t for t in re.split(r",\s*(?=tensor)", side.strip("() ")) if t]
