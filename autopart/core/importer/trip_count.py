"""How often a loop runs that counts up to a limit.

    i = start;  while i < limit:  ...;  i = i + step          (limit - start) / step, rounded up

Start, limit and step must be constants; JAX's scans and fori_loops are such loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from autopart.core.importer.template import Block, Op
from autopart.core.op import OpSpec


class Lazy(NamedTuple):
    """A value that is computed anew for each of its uses; `source` as in `template.Op`."""

    spec: int
    operands: list[int | Lazy]
    source: int


Value = int | Lazy
"""What a program's op reads: the number of a value, or a value that is computed anew."""


def trip_count(condition: Block, body: Block, inits: list[Value], specs: list[OpSpec]) -> int | None:
    """How often a loop `i < limit` runs from a constant start by a constant step; None for any other loop."""
    defined = {r: op for op in condition.ops for r in op.results}
    compare = defined.get(condition.returned[0])
    if compare is None or compare.kind != "compare":
        return None
    direction = str(specs[compare.spec].attributes.get("comparison_direction", ""))
    sides = [_constant_or_position(v, condition, defined, specs) for v in compare.operands]
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


def _constant_or_position(
    value: int, condition: Block, defined: dict[int, Op], specs: list[OpSpec]
) -> tuple[Literal["position", "constant"], int] | None:
    """Which argument of the condition a value is, or which constant; None if it is neither."""
    if value in condition.arguments:
        at = condition.arguments.index(value)
        return ("position", at)
    op = defined.get(value)
    if op is not None and op.kind == "constant":
        number = specs[op.spec].attributes["value"]
        return ("constant", int(number)) if isinstance(number, np.integer) else None
    return None


def _constant_of(value: Value, specs: list[OpSpec]) -> int | None:
    if isinstance(value, Lazy):
        number = specs[value.spec].attributes.get("value")
        return int(number) if isinstance(number, np.integer) else None
    return None


def _step(body: Block, at: int, inits: list[Value], specs: list[OpSpec]) -> int | None:
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
