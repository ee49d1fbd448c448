"""Blocks of models, written once for all frameworks; `BLOCKS` holds them by name."""

from tests.whole_models.blocks import attention, convolutions, experts, graphs, mixed, own_rules, recurrences
from tests.whole_models.blocks.registered import BLOCKS, Get, More

__all__ = ["BLOCKS", "Get", "More"]
__all__ += ["attention", "convolutions", "experts", "graphs", "mixed", "own_rules", "recurrences"]
