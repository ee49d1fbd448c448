"""Gradients of tables that are looked up by row, with rows shorter than the lanes.

    %dt = scatter %zeros, %rows, %dy       f32[100000,16]
    %t' = subtract %t, (multiply %dt, 0.1)     what is computed of it, element by element, is the next %t

Sums of messages by node are such scatters, too, but products read them.
"""

from __future__ import annotations

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise, Reduction, Update
from autopart.core.program import Program
from autopart.core.splats import splat_behind

LANES = 128
"""Of a layout tile of the TPU compiler."""


def adds_rows(spec: OpSpec) -> bool:
    """True for an update by index whose windows are whole rows: where a window is longer along another dim, the rows
    lie across the lanes."""
    traits = traits_of(spec)
    if not isinstance(traits, Update) or not traits.by_index:
        return False
    given, shape = spec.operands[-1].shape, spec.results[0].shape
    if min(len(given), len(shape)) < 2 or given[-1] != shape[-1]:
        return False
    windows = spec.attributes["scatter_dimension_numbers"]["update_window_dims"]
    return all(given[d] <= given[-1] for d in windows)


def table_gradients(program: Program) -> list[int]:
    """The gradients, each where all that is added by row is summed up."""
    adding = np.array([_adds_short_rows(spec) for spec in program.specs], np.bool_)[program.op_spec]
    if not adding.any():
        return []
    next_values = {program.outputs[i] for i in program.ties}
    sums = [isinstance(traits, Elementwise) and traits.sums for traits in map(traits_of, program.specs)]
    found = dict[int, None]()
    for op in np.flatnonzero(adding).tolist():
        if splat_behind(program, program.operands_of(op)[0]) == 0:
            found[program.results_of(op)[0]] = None
    for op in np.flatnonzero(np.array(sums, np.bool_)[program.op_spec]).tolist():
        read = program.operands_of(op).tolist()
        if all(value in found and len(program.readers_of(value)) == 1 for value in read):
            for value in read:
                found.pop(value, None)
            found[program.results_of(op)[0]] = None
    return [value for value in found if _updates(program, value, next_values)]


def _adds_short_rows(spec: OpSpec) -> bool:
    """True for what adds to rows of a table, of which the lanes are not filled."""
    traits = traits_of(spec)
    is_table = len(spec.results) == 1 and len(spec.results[0].shape) == 2 and spec.results[0].shape[-1] % LANES > 0
    return is_table and adds_rows(spec) and isinstance(traits, Update) and traits.adds(spec)


def _updates(program: Program, value: int, next_values: set[int]) -> bool:
    """True if nothing but sums and what is computed element by element reads the value, up to a next value."""
    waits, seen, reaches = [value], {value}, False
    while waits:
        value = waits.pop()
        reaches = reaches or value in next_values
        for op in program.readers_of(value):
            traits, results = traits_of(program.spec(op)), program.results_of(op)
            if isinstance(traits, Reduction) or program.spec(op).kind == "argument":
                continue
            if not isinstance(traits, Elementwise) or program.type_of(results[0]).shape != program.type_of(value).shape:
                return False
            if results[0] not in seen:
                seen.add(results[0])
                waits.append(results[0])
    return reaches
