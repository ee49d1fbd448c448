"""Redistribution: memory-efficient sequences of collectives between any two layouts of an array.

    types        distributed types `[3{x}12, 2{y}12]`
    rules        typed collectives of the paper's Figure 8, and `verify`
    primes       axes cut into parts of prime size
    weak         local sizes alone; how many all_to_alls they need
    exchange     one all_to_all that is exact
    detour       two of them, where primes clash
    device_map   types rewritten under another device map
    candidates   sequences in normal form
    axis_search  a shortest path over mesh axes, for costs that tell axes apart
    shape_classes  shapes between which that tells no difference
    planner      the cheapest of all
    collective_cost  Figure 11, and seconds per axis
    emission     how a step is emitted: one collective between local regroupings
    local_copies  which arrays that reads and writes on a device
    forms        one collective or several in a row, and the cheapest of them
    shortest_path  the paper's search, as a bound

It follows "Memory-efficient array redistribution through portable collective communication" (here: the paper);
docs/redistribution.md says where it goes beyond.
"""

from autopart.spmd.redistribution.collective_cost import AlphaBeta, CollectiveCost, Elements
from autopart.spmd.redistribution.planner import plan
from autopart.spmd.redistribution.rules import verify
from autopart.spmd.redistribution.shortest_path import weak_shortest_path
from autopart.spmd.redistribution.step import Plan, Step
from autopart.spmd.redistribution.types import DistributedType, DistributedTypeError, SubAxis

__all__ = [
    "AlphaBeta",
    "CollectiveCost",
    "DistributedType",
    "DistributedTypeError",
    "Elements",
    "Plan",
    "Step",
    "SubAxis",
    "plan",
    "verify",
    "weak_shortest_path",
]
