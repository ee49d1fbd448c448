"""What a program keeps from its early ops for its late ones, and what it computes again instead.

lifetimes.py     from when to when each value of a scope is there, and the point where most is: what is read across it
                 is kept between its early and its late uses
policies.py      which of those are kept, as a user says it
layers.py        where the early ops repeat themselves: the ends of layers
blocks.py        where the early ops are cut into blocks, of which only what enters is kept
again.py         copies of early ops before the late ops that read their results, behind barriers
scans.py         the same for what one loop stacks up and a later loop reads row by row
broadcasts.py    what a loop only reads wider than it is, made in the loop
turns.py         which row of a stack each turn of a loop writes
recomputation.py the pass
"""

from autopart.core.passes.recompute.policies import POLICIES, Policy, result_name
from autopart.core.passes.recompute.recomputation import KEEP, KEEP_ONE, Recomputation

__all__ = ["KEEP", "KEEP_ONE", "POLICIES", "Policy", "Recomputation", "result_name"]
