"""Does no step take longer in the order that is asked for, as the page says, and are its programs the ones compiled?"""

from __future__ import annotations

import pytest

from experiments.beside_jit.__main__ import CLOSE, groups, kept, summary

SUMMARY = summary()


@pytest.mark.parametrize("group", groups())
def test_no_step_takes_longer_in_the_order_that_is_asked_for(group):
    assert SUMMARY[group]["steps"] == len(groups()[group])
    assert SUMMARY[group]["compute"]["most"] <= CLOSE
    assert SUMMARY[group]["compute"]["geomean"] <= 1.0


def test_more_than_a_third_of_them_take_less():
    shares = [row["ours"][0] / row["xla"][0] for row in kept().values()]
    assert sum(share < 0.95 for share in shares) > len(shares) / 3
