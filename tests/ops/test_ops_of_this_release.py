"""Does a rule know every op that this release of jax can write?"""

from __future__ import annotations

import pytest
from jax.extend.mlir.dialects import chlo, stablehlo

from autopart.core.ops.rule import known_kinds

NO_RULE = {
    "composite": "read as the call of its decomposition",
    "return": "the end of a region, which the importer reads as what the region returns",
    "collective_reduce": "jax does not write it: no function of jax 0.12 makes the op",
}
"""Ops of the dialects without a rule, and why."""


def kinds(dialect) -> set[str]:
    found = (getattr(value, "OPERATION_NAME", None) for value in vars(dialect).values())
    return {name.removeprefix("stablehlo.") for name in found if isinstance(name, str)}


@pytest.mark.parametrize("dialect", [stablehlo, chlo], ids=["stablehlo", "chlo"])
def test_every_op_of_the_dialects_has_a_rule_or_a_reason(dialect):
    assert len(kinds(dialect)) > 40
    unknown = kinds(dialect) - set(known_kinds()) - set(NO_RULE)
    assert not unknown, f"write rules for {sorted(unknown)}, or say in NO_RULE why they need none"


def test_what_needs_no_rule_has_none():
    assert not set(NO_RULE) & set(known_kinds())
