"""The lowering of a program with more layers, from that of one with fewer (`core/repeats/fewer_layers.py`).

    fewer    layouts of layers 1  2  3  8                 more    layouts of layers 1  2  3  3  3  3  3  8

Layouts and mappings are those of what each op is like. Where redistributions stand is found anew: a value that all
layers read may be redistributed for each of them, or once for all, and of what is stored in parts, uses that share a
gather here may be too far apart there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.program import Program
from autopart.core.repeats.like_ops import Like
from autopart.spmd.device_local import DeviceLocal, LoweringContext, placed


def with_more_layers(local: DeviceLocal, more: Program, statics: LoweringContext, like: Like) -> DeviceLocal:
    """The lowering of `more`, each of whose ops is partitioned as the op of `local` that it is like."""
    (ops, axes), values, uses = (len(like.ops), local.mapping.shape[1]), len(like.values), len(like.uses)
    mapping, op_stamp = np.empty((ops, axes), local.mapping.dtype), np.empty((ops, axes), local.op_stamp.dtype)
    passing, native, settled = np.empty(ops, np.uint8), np.empty(values, np.uint64), np.empty(values, np.uint64)
    required, stretch, grows = np.empty(uses, np.uint64), np.empty(uses, np.int64), np.empty(uses, np.bool_)
    _of_ops(local.mapping, local.op_stamp, local.passing, like.ops, mapping, op_stamp, passing)
    _of_values(local.native, local.settled, like.values, native, settled)
    _of_uses(local.required, local.stretch, local.grouping.grows, like.uses, required, stretch, grows)
    grouping = replace(local.grouping, grows=grows)
    return replace(
        local,
        program=more,
        mapping=mapping,
        op_stamp=op_stamp,
        native=native,
        settled=settled,
        required=required,
        stretch=stretch,
        passing=passing,
        at_def=np.flatnonzero(native != settled).astype(np.int32),
        placement=placed(more, local.table, local.options, statics, settled, required, stretch, grouping),
        grouping=grouping,
        statics=statics,
    )


@kernel
def _of_ops(
    mapping: np.ndarray,
    op_stamp: np.ndarray,
    passing: np.ndarray,
    like: np.ndarray,
    more_mapping: np.ndarray,
    more_stamp: np.ndarray,
    more_passing: np.ndarray,
) -> None:
    """Fills in the fields of ops."""
    for op in range(like.shape[0]):
        more_passing[op] = passing[like[op]]
        for axis in range(mapping.shape[1]):
            more_mapping[op, axis], more_stamp[op, axis] = mapping[like[op], axis], op_stamp[like[op], axis]


@kernel
def _of_values(
    native: np.ndarray, settled: np.ndarray, like: np.ndarray, more_native: np.ndarray, more_settled: np.ndarray
) -> None:
    """Fills in the fields of values."""
    for value in range(like.shape[0]):
        more_native[value], more_settled[value] = native[like[value]], settled[like[value]]


@kernel
def _of_uses(
    required: np.ndarray,
    stretch: np.ndarray,
    grows: np.ndarray,
    like: np.ndarray,
    more_required: np.ndarray,
    more_stretch: np.ndarray,
    more_grows: np.ndarray,
) -> None:
    """Fills in the fields of uses."""
    for use in range(like.shape[0]):
        more_required[use], more_stretch[use] = required[like[use]], stretch[like[use]]
        more_grows[use] = grows[like[use]]


def shares_alike(local: DeviceLocal, more: DeviceLocal, like: Like) -> bool:
    """True if uses share redistributions in the lowering with more layers as those that they are like do in `local`."""
    return bool((_heads(more) == _heads(local)[like.uses]).all())


def _heads(local: DeviceLocal) -> np.ndarray:
    """bool[uses]: True for the first of those that read one redistribution."""
    heads = np.zeros(len(local.program.operands), np.bool_)
    heads[local.placement.head] = True
    return heads
