"""What ops of some traits are called in MLIR: op_names(lambda traits: traits.by_index) has "stablehlo.gather"."""

from __future__ import annotations

from collections.abc import Callable

from autopart.core.ops.rule import rules
from autopart.core.ops.traits import Traits


def op_names(wanted: Callable[[Traits], bool]) -> frozenset[str]:
    """The names, dialect included, of all kinds whose traits are `wanted`."""
    kinds = (rule.kind for rule in rules() if wanted(rule.traits))
    return frozenset(kind if "." in kind else f"stablehlo.{kind}" for kind in kinds)
