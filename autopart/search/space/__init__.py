"""The decision space: what may be decided, which values decide together, and how much each decision reaches.

decisions, kinds/             what a decision is; each kind of decision in a file of its own
facts, value_groups, priors   what is known of a program, whatever the state
probe                         each decision about an argument or a tag, tried once: its prior
decision_space                the decisions that a state offers
axis_symmetry                 axes that are alike
named_schedules, named/       schedules that people use, found by structure: DP, Megatron, ZeRO, ...
several_axes                  those of several axes together, under the name that people know
"""

from autopart.core.table.actions import Action, Atomic, Propagate, Tile
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision, DecisionKind, Option, register_decision_kind
from autopart.search.space.facts import ProgramFacts
from autopart.search.space.named_schedules import Named, NamedSchedule, register_named_schedule
from autopart.search.space.tile_and_keep import keep_each, tile_each

__all__ = [
    "Action",
    "Atomic",
    "Decision",
    "DecisionKind",
    "DecisionSpace",
    "Named",
    "NamedSchedule",
    "Option",
    "Partitioning",
    "ProgramFacts",
    "Propagate",
    "Tile",
    "keep_each",
    "register_decision_kind",
    "register_named_schedule",
    "tile_each",
]
