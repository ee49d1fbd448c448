"""A partitioned program run in sequence on one device, array by array: the reference that partitioned runs are held to.

lowered.interpret(params, x)      each op's loop nest, in order, from the table of PartIR:Core alone
lowered.compile()(params, x)      the same numbers, from the mesh's devices
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from autopart.api.tracing.leaves import bits_of, check_leaf, leaves_of, results_of
from autopart.api.tracing.trace import Traced
from autopart.base.errors import CallError
from autopart.core.doors.invalid_numbers import invalid_numbers_raise
from autopart.core.doors.jax_internals import numpy_dtype, weakly_typed
from autopart.core.table.partitioning import Partitioning
from autopart.core.table.temporal import interpret
from autopart.spmd.emission.single_ops import SingleOps


def run_in_sequence(traced: Traced, partitioning: Partitioning, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the traced function returns for these arguments; see `Lowered.interpret`."""
    program = traced.program
    arrays: list[np.ndarray] = []
    leaves = leaves_of(traced, args, kwargs)
    rows = list(zip(program.argument_names, program.arguments, leaves, traced.in_avals, strict=True))
    for name, _, leaf, aval in traced.of_leaves(rows):
        check_leaf(name, leaf, aval)
    for name, value, leaf, _ in rows:
        if isinstance(leaf, Tracer):
            raise CallError(
                f"interpret was called with {name}, which jax is tracing",
                why="it runs op by op, on arrays that are there",
                hint="lowered.compile(), whose result can be part of a traced program",
            )
        arrays.append(np.asarray(bits_of(leaf), numpy_dtype(program.type_of(value).dtype)))
    with invalid_numbers_raise("a partitioned program"):
        results = interpret(partitioning, arrays, SingleOps(partitioning).run)
    with jax.enable_x64(True):
        arrays_out = [jax.numpy.asarray(x) for x in results]
        typed = zip(arrays_out, traced.out_avals, strict=True)
        return results_of(traced, [weakly_typed(x) if aval.weak_type else x for x, aval in typed])
