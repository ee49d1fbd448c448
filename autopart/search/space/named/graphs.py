"""Is the data of a program a graph: does an input say which rows of other data to read?

nodes[senders]         senders is an input, nodes are computed and added up by receivers      a graph
embedding[tokens]      tokens are an input, the embedding is a weight, updated or frozen      tokens
hidden[chosen]         chosen is computed                                   a router
logits[labels]         each row has its own label: both are tiled alike     labels
"""

from __future__ import annotations

import numpy as np

from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Constant, Elementwise, Slicing, View
from autopart.core.program import Program

HOPS = 8
"""Ops between an input and the look-up that it is an index of, at most: casts, wrapping of negative indices, views."""


def row_indices(program: Program, tied: np.ndarray) -> frozenset[int]:
    """Arguments that are indices into data: look-ups take whole rows of computed values, or of data, at them.

    What a program reads as it was given is data only where the program updates its weights, which says which those are;
    and rows are a graph's nodes only where something is added up, or put, at as many rows by an input. So the tokens of
    a frozen embedding are none.
    """
    traits = [traits_of(spec) for spec in program.specs]
    looks_up = np.array([isinstance(t, Slicing) and t.indexed for t in traits], np.bool_)
    found: set[int] = set()
    arguments, stored = set(program.arguments), set(tied.tolist())
    nodes = _rows_written(program, traits, arguments)
    for op in np.flatnonzero(looks_up[program.op_spec]).tolist():
        spec = program.spec(op)
        if (spec.attributes.get("dimension_numbers") or {}).get("operand_batching_dims"):
            continue
        table, indices = program.operands_of(op)[:2]
        if not nodes & set(program.type_of(int(table)).shape):
            continue
        tables = _sources(program, traits, table, arguments)
        if not tables or (stored and not tables & stored):
            sources = _sources(program, traits, indices, arguments)
            found.update(sources if len(sources) == 1 else ())
    return frozenset(found)


def _rows_written(program: Program, traits: list, arguments: set[int]) -> set[int]:
    """Numbers of rows of arrays into which a scatter writes whole rows, at an index for each that is an input."""
    numbers = [spec.attributes.get("scatter_dimension_numbers") or {} for spec in program.specs]
    writes_rows = [bool(n) and not n["input_batching_dims"] for n in numbers]
    found: set[int] = set()
    for op in np.flatnonzero(np.array(writes_rows, np.bool_)[program.op_spec]).tolist():
        dims, operands = numbers[program.op_spec[op]]["scattered_dims_to_operand_dims"], program.operands_of(op)
        indices = operands[len(operands) // 2]
        if len(dims) == 1 and len(_sources(program, traits, indices, arguments)) == 1:
            found.add(program.type_of(int(operands[0])).shape[dims[0]])
    return found


def _sources(program: Program, traits: list, value: int, arguments: set[int]) -> set[int]:
    """Arguments that a value is made of by casts, views and elementwise ops alone; none if anything else made it."""
    found, front = set(), {int(value)}
    for _ in range(HOPS):
        behind: set[int] = set()
        for v in front:
            if v in arguments:
                found.add(v)
                continue
            op = int(program.value_op[v])
            kind = traits[program.op_spec[op]]
            if isinstance(kind, Constant):
                continue
            if not isinstance(kind, (Elementwise, View)):
                return set()
            behind.update(map(int, program.operands_of(op)))
        front = behind
        if not front:
            return found
    return set()
