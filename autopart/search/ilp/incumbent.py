"""A state as a choice of strategies: where a plan may start, and what a neighbourhood of it holds fixed.

    state     the matmul slices rows over a; its result waits in (1, 0), and b is not used
    choice    strategy 4 of the matmul's node, label 1 of the value's

Of a group of equal layers the first speaks for all. Where no strategy is the state's, the one that agrees with it in
most labels is taken: a choice is a start, and what comes of it is priced as a program.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autopart.core.layout import ACTION_MASK
from autopart.search.ilp.labels import Label
from autopart.search.ilp.nodes import Nodes
from autopart.search.ilp.strategies import PASS, OpStrategies
from autopart.spmd.device_local import DeviceLocal


def choice_of(nodes: Nodes, local: DeviceLocal) -> np.ndarray:
    """int64[nodes]: the strategies and labels of a lowered state."""
    program, axes = local.program, len(local.mesh.axis_sizes)
    settled, native, required = (_codes(each, axes) for each in (local.settled, local.native, local.required))
    choice = np.zeros(nodes.count, np.int64)
    for node, member in enumerate(nodes.member):
        options = nodes.strategies[node]
        if options is None:
            choice[node] = _nearest(nodes.labels[node], settled[member])
            continue
        first, result = int(program.operand_ptr[member]), int(program.result_ptr[member])
        passes = local.passing[member] >> np.arange(axes) & 1 > 0
        choice[node] = _strategy(
            options, required[first:], native[result:], np.where(passes, PASS, local.mapping[member])
        )
    return choice


def _codes(layouts: np.ndarray, axes: int) -> np.ndarray:
    """int64[layouts, axes]: what each axis does."""
    shifts = (8 * np.arange(axes)).astype(np.uint64)
    return (layouts.astype(np.uint64)[:, None] >> shifts & np.uint64(ACTION_MASK)).astype(np.int64)


def _nearest(labels: Sequence[Label], wanted: np.ndarray) -> int:
    return int((np.array(labels).reshape(len(labels), -1) == wanted).sum(axis=1).argmax())


def _strategy(options: OpStrategies, required: np.ndarray, native: np.ndarray, mapping: np.ndarray) -> int:
    """The strategy whose labels, and then whose mappings, are most like the state's."""
    alike = np.zeros(options.count)
    for columns, wanted in ((options.required, required), (options.native, native)):
        for label, own in zip(columns, wanted, strict=False):
            alike += ((np.array(label).reshape(options.count, -1) & ACTION_MASK) == own).sum(axis=1)
    same = (np.maximum(np.array(options.mapping).reshape(options.count, -1), PASS) == mapping).sum(axis=1)
    return int((alike + same / (1 + len(mapping))).argmax())
