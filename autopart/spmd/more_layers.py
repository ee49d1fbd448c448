"""The lowering of a program with more layers, from that of one with fewer (`core/fewer_layers.py`).

    fewer    layouts of layers 1  2  3  8                 more    layouts of layers 1  2  3  3  3  3  3  8

Layouts and mappings are those of what each op is like. Where redistributions stand is found anew: a value that all
layers read may be redistributed for each of them, or once for all, and of what is stored in parts, uses that share a
gather here may be too far apart there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autopart.core.like_ops import Like
from autopart.core.program import Program
from autopart.spmd.device_local import DeviceLocal, LoweringContext, placed


def with_more_layers(local: DeviceLocal, more: Program, statics: LoweringContext, like: Like) -> DeviceLocal:
    """The lowering of `more`, each of whose ops is partitioned as the op of `local` that it is like."""
    native, settled = local.native[like.values], local.settled[like.values]
    required, stretch = local.required[like.uses], local.stretch[like.uses]
    grouping = replace(local.grouping, grows=local.grouping.grows[like.uses])
    return replace(
        local,
        program=more,
        mapping=local.mapping[like.ops],
        op_stamp=local.op_stamp[like.ops],
        native=native,
        settled=settled,
        required=required,
        stretch=stretch,
        passing=local.passing[like.ops],
        at_def=np.flatnonzero(native != settled).astype(np.int32),
        placement=placed(more, local.options, statics, settled, required, stretch, grouping),
        grouping=grouping,
        statics=statics,
    )


def shares_alike(local: DeviceLocal, more: DeviceLocal, like: Like) -> bool:
    """True if uses share redistributions in the lowering with more layers as those that they are like do in `local`."""
    return bool((_heads(more) == _heads(local)[like.uses]).all())


def _heads(local: DeviceLocal) -> np.ndarray:
    """bool[uses]: True for the first of those that read one redistribution."""
    heads = np.zeros(len(local.program.operands), np.bool_)
    heads[local.placement.head] = True
    return heads
