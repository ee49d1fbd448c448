"""PartIR:Temporal as a program: what is tiled along a temporal axis runs in one loop over microbatches.

loop_plan.py       which ops run in the loop, before it and after it
interleaving.py    which rows are a microbatch, and how it is taken out of an array and put into one
sequential.py      the program with its loops, as StableHLO
"""

from autopart.spmd.microbatch.loop_plan import AXIS, LoopPlan, Middle, plan_loops
from autopart.spmd.microbatch.sequential import microbatched

__all__ = ["AXIS", "LoopPlan", "Middle", "microbatched", "plan_loops"]
