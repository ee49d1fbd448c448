"""autopart: partition array programs over device meshes, by hand or by search, with explicit collectives.

import autopart as ap

mesh = ap.Mesh({"batch": 4, "model": 2})
BP = ap.ManualPartition({"x": 0}, axis="batch")
step = ap.jit(train_step, mesh, [BP], donate_argnums=(0, 1))
"""

from autopart.api.compiled import Compiled
from autopart.api.jit import PartitionedFunction, jit, partition
from autopart.api.lowered import Lowered
from autopart.api.metadata import Metadata, TacticReport
from autopart.api.tactics import FIRST_DIVISIBLE_DIM, REPLICATED, UNKNOWN, ManualPartition, Tactic
from autopart.api.tag import tag
from autopart.api.trace import LoadedProgram, load
from autopart.core.errors import (
    BlockedError,
    CallError,
    MeshError,
    PartitionError,
    ProgramError,
    TileError,
    UnknownNameError,
)
from autopart.core.mesh import Mesh
from autopart.core.op import TileMapping
from autopart.core.registry import register_custom_call
from autopart.costmodel import register_device
from autopart.costmodel.estimate import CostModel, Estimate
from autopart.spmd.device_local import LoweringOptions

__all__ = [
    "FIRST_DIVISIBLE_DIM",
    "REPLICATED",
    "UNKNOWN",
    "BlockedError",
    "CallError",
    "Compiled",
    "CostModel",
    "Estimate",
    "LoadedProgram",
    "Lowered",
    "LoweringOptions",
    "ManualPartition",
    "Mesh",
    "MeshError",
    "Metadata",
    "PartitionError",
    "PartitionedFunction",
    "ProgramError",
    "Tactic",
    "TacticReport",
    "TileError",
    "TileMapping",
    "UnknownNameError",
    "jit",
    "load",
    "partition",
    "register_custom_call",
    "register_device",
    "tag",
]
