"""Pipelines: a nest over microbatches and layers, skewed into ticks in which all stages work at once.

rolled.py         layers that stand one by one, as loops
layer_loops.py    what a loop over layers carries and reads
layer_sums.py     what layers leave for sums over microbatches, and what is linear in it
nest.py           the nest in a training step: what stands before, between and behind its loops over layers
ticks.py          which stage works on which microbatch in which tick
staged_ops.py     ops for all stages at once, with a stage dim in front
zeros.py          gradients that are zero where nothing comes back
numbers.py        expressions of ticks, microbatches and stages
staged_layers.py  the layers of all stages: rows of parameters, residuals, gradients
staged_step.py    the step as loops over ticks, as StableHLO
"""

from autopart.spmd.pipeline.rolled import rolled
from autopart.spmd.pipeline.staged_layers import EXCHANGED, RETURNED, SENT, STAGES
from autopart.spmd.pipeline.staged_step import own_microbatches, pipelined
from autopart.spmd.pipeline.ticks import SCHEDULES, Ticks

__all__ = ["EXCHANGED", "RETURNED", "SCHEDULES", "SENT", "STAGES", "Ticks", "own_microbatches", "pipelined", "rolled"]
