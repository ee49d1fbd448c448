"""Are ops that change nothing on one device read as if they were not there, and refused where they communicate?"""

from __future__ import annotations

import pytest

from autopart.base.errors import ProgramError
from autopart.core.importer import import_module
from autopart.core.ops.example_import import example_op
from autopart.core.ops.rule import rules
from autopart.core.ops.rules.example_text import op, reducer

READ_THROUGH = [r for r in rules() if r.traits.read_through]


@pytest.mark.parametrize("rule", READ_THROUGH, ids=lambda r: r.kind)
def test_what_is_read_through_leaves_no_op(rule):
    program = import_module(example_op(rule.examples[0]).module)
    assert [program.spec(o).kind for o in range(program.op_count)] == ["argument"]
    assert program.outputs == list(program.arguments)


def test_every_collective_over_groups_of_one_is_read_through():
    kinds = {"all_reduce", "all_gather", "all_to_all", "reduce_scatter", "collective_permute", "collective_broadcast"}
    assert kinds < {r.kind for r in READ_THROUGH}


def test_a_collective_over_a_group_of_two_is_refused():
    groups = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"
    module = example_op(op("all_reduce", "4x6xf32 -> 4x6xf32", groups, reducer("add f32"))).module
    with pytest.raises(ProgramError, match=r"already partitioned: stablehlo\.all_reduce over groups"):
        import_module(module)
