"""The decision space: what may be decided, which values decide together, and how much each decision reaches.

decisions, kinds/             what a decision is; each kind of decision in a file of its own
facts, value_groups, priors   what is known of a program, whatever the state
probe                         each decision about an argument or a tag, tried once: its prior
decision_space                the decisions that a state offers
axis_symmetry                 axes that are alike
named_schedules               BP, Megatron, ZeRO: where a seeded search starts
"""

from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision, DecisionKind, Option, register_decision_kind

__all__ = ["Decision", "DecisionKind", "DecisionSpace", "Option", "register_decision_kind"]
