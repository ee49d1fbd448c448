"""autopart: partition array programs over device meshes, by hand or by search, with explicit collectives.

import autopart as ap

mesh = ap.Mesh({"batch": 4, "model": 2})
BP = ap.ManualPartition({"x": 0}, axis="batch")
step = ap.jit(train_step, mesh, [BP], donate_argnums=(0, 1))

Whatever can be added is added by a decorator: `register_rule`, `register_custom_call`, `register_optimizer`,
`register_executor`, `register_cost_model`, `register_decision_kind`, `register_named_schedule`; and `register_device`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autopart.api.compared.named import named_schedules
from autopart.api.compared.sweep import sweep
from autopart.api.compared.sweep_rows import Sweep
from autopart.api.explained.metadata import Metadata, TacticReport
from autopart.api.jitted.compiled import Compiled
from autopart.api.jitted.filter_jit import FilteredFunction, filter_jit
from autopart.api.jitted.first_state import LayoutWarning
from autopart.api.jitted.jit import PartitionedFunction, jit, partition
from autopart.api.jitted.lowered import Lowered
from autopart.api.jitted.warmup import warmup
from autopart.api.kernels.kernel import kernel
from autopart.api.kernels.verify_kernel import verify_kernel
from autopart.api.measured.calibration import Calibration, calibrate
from autopart.api.measured.profile import Profile
from autopart.api.plan.plan import Plan
from autopart.api.plan.plan_diff import PlanDiff
from autopart.api.plan.replay_tactic import Replay
from autopart.api.reshard import redistribution_plan, reshard
from autopart.api.tactics.automatic import AutomaticPartition, SearchWarning
from autopart.api.tactics.manual import FIRST_DIVISIBLE_DIM, LARGEST_DIVISIBLE_DIM, REPLICATED, UNKNOWN, ManualPartition
from autopart.api.tactics.microbatch import Microbatch
from autopart.api.tactics.pad_tactic import Pad
from autopart.api.tactics.parallelism import Parallelism
from autopart.api.tactics.pipeline import Pipeline
from autopart.api.tactics.recompute import Recompute
from autopart.api.tactics.sharded_loops import ShardedLoops
from autopart.api.tactics.shared_gathers import SharedGathers
from autopart.api.tactics.tactic import Tactic, TacticContext, TacticResult
from autopart.api.tracing.closures import ClosedOverWarning
from autopart.api.tracing.mutation import MutationWarning
from autopart.api.tracing.tag import tag
from autopart.api.tracing.trace import LoadedProgram, load
from autopart.base.errors import (
    ArgumentError,
    BlockedError,
    CallError,
    MeshError,
    PartitionError,
    PlanError,
    ProgramError,
    TileError,
    UnknownNameError,
    closest,
)
from autopart.base.limits import Limits
from autopart.base.registry import RegistryError
from autopart.core.mesh import Mesh
from autopart.core.op import TileMapping
from autopart.core.ops import register_custom_call, register_rule
from autopart.core.ops import traits as op_traits
from autopart.core.passes.expected_trips import ExpectedTrips
from autopart.core.passes.run_passes import PassWarning
from autopart.costmodel import Device, register_cost_model, register_device
from autopart.costmodel.estimate import CostModel, Estimate
from autopart.search.budget import Budget
from autopart.search.evaluation.cost import Cost, StepSeconds
from autopart.search.evaluation.jobs import Job
from autopart.search.execution import Serial, register_executor
from autopart.search.execution.processes import Processes
from autopart.search.ilp.hybrid import Hybrid
from autopart.search.ilp.ilp import ILP
from autopart.search.mcts.mcts import MCTS
from autopart.search.optimizers.annealing import Annealing
from autopart.search.optimizers.exhaustive import Exhaustive
from autopart.search.optimizers.greedy import Beam, Greedy
from autopart.search.optimizers.optimizer import Optimizer, OptimizerError, optimizers, register_optimizer
from autopart.search.optimizers.random_search import RandomSearch
from autopart.search.problem import Problem
from autopart.search.space import register_decision_kind, register_named_schedule
from autopart.spmd.device_local import LoweringOptions

if TYPE_CHECKING:
    from autopart.api.jitted import nnx as nnx
    from autopart.search.execution.ray import Ray

__all__ = [
    "FIRST_DIVISIBLE_DIM",
    "ILP",
    "LARGEST_DIVISIBLE_DIM",
    "MCTS",
    "REPLICATED",
    "UNKNOWN",
    "Annealing",
    "ArgumentError",
    "AutomaticPartition",
    "Beam",
    "BlockedError",
    "Budget",
    "Calibration",
    "CallError",
    "ClosedOverWarning",
    "Compiled",
    "Cost",
    "CostModel",
    "Device",
    "Estimate",
    "Exhaustive",
    "ExpectedTrips",
    "FilteredFunction",
    "Greedy",
    "Hybrid",
    "Job",
    "LayoutWarning",
    "Limits",
    "LoadedProgram",
    "Lowered",
    "LoweringOptions",
    "ManualPartition",
    "Mesh",
    "MeshError",
    "Metadata",
    "Microbatch",
    "MutationWarning",
    "Optimizer",
    "OptimizerError",
    "Pad",
    "Parallelism",
    "PartitionError",
    "PartitionedFunction",
    "PassWarning",
    "Pipeline",
    "Plan",
    "PlanDiff",
    "PlanError",
    "Problem",
    "Processes",
    "Profile",
    "ProgramError",
    "RandomSearch",
    "Ray",
    "Recompute",
    "RegistryError",
    "Replay",
    "SearchWarning",
    "Serial",
    "ShardedLoops",
    "SharedGathers",
    "StepSeconds",
    "Sweep",
    "Tactic",
    "TacticContext",
    "TacticReport",
    "TacticResult",
    "TileError",
    "TileMapping",
    "UnknownNameError",
    "calibrate",
    "filter_jit",
    "jit",
    "kernel",
    "load",
    "named_schedules",
    "op_traits",
    "optimizers",
    "partition",
    "redistribution_plan",
    "register_cost_model",
    "register_custom_call",
    "register_decision_kind",
    "register_device",
    "register_executor",
    "register_named_schedule",
    "register_optimizer",
    "register_rule",
    "reshard",
    "sweep",
    "tag",
    "verify_kernel",
    "warmup",
]


def __getattr__(name: str) -> object:
    """`ap.Ray` and `ap.nnx`, whose files import ray and flax: only somebody who asks for them waits for that."""
    if name == "Ray":
        from autopart.search.execution.ray import Ray

        return Ray
    if name == "nnx":
        try:
            from autopart.api.jitted import nnx
        except ModuleNotFoundError as error:
            raise ImportError(f"ap.nnx needs the package flax: pip install flax ({error})") from error
        return nnx
    raise AttributeError(f"autopart has no {name!r}; there is {closest(name, __all__)}")
