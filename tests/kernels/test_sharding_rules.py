"""What does a kernel's rule say, and what is wrong with one that does not fit?"""

from __future__ import annotations

import pytest

import autopart as ap
from autopart.core.kernel_calls.sharding_rule import factors_of
from autopart.core.op import MAX, SUM, WHOLE, TileMapping


def mappings(rule, operands, results):
    return factors_of(rule, operands, results).mappings()


def test_without_clauses_what_every_result_has_is_tiled():
    found = mappings("m k, k n -> m n", [(8, 16), (16, 4)], [(8, 4)])
    assert found == (TileMapping((0, WHOLE), (0,), 8), TileMapping((WHOLE, 1), (1,), 4))


def test_a_reduced_factor_leaves_parts_where_a_result_lacks_it_and_tiles_where_it_does_not():
    found = mappings("m k, k n -> m n, k; tile -; reduce k:max", [(8, 16), (16, 4)], [(8, 4), (16,)])
    assert found == (TileMapping((1, 0), (MAX, 0), 16),)


def test_fewer_heads_of_keys_than_of_queries_limit_the_slices():
    (heads,) = mappings("b h s, b h t -> b h s; tile h", [(1, 8, 4), (1, 2, 6)], [(1, 8, 4)])
    assert heads == TileMapping((1, 1), (1,), 2)


def test_a_dim_of_one_element_is_whole_whatever_its_name():
    found = mappings("b s, b s -> b s; tile b s", [(4, 6), (1, 6)], [(4, 6)])
    assert found == (TileMapping((0, WHOLE), (0,), 4), TileMapping((1, 1), (1,), 6))


def test_dots_lead_as_many_dims_as_are_left_and_a_compound_is_tiled_by_its_major_factor():
    found = mappings("... i, i -> ... i", [(2, 3, 4), (4,)], [(2, 3, 4)])
    assert [m.extent for m in found] == [2, 3, 4]
    (major,) = mappings("(b n) s, b -> (b n) s; tile b=4", [(8, 3), (4,)], [(8, 3)])
    assert major == TileMapping((0, 0), (0,), 4)


def test_a_rule_reads_back_as_it_is_written():
    once = factors_of("b h s, b h t, t -> b h s; tile b h=2; reduce t", [(4, 8, 3), (4, 2, 5), (5,)], [(4, 8, 3)])
    again = factors_of(str(once), [(4, 8, 3), (4, 2, 5), (5,)], [(4, 8, 3)])
    assert again == once
    assert again.mappings()[-1] == TileMapping((WHOLE, 2, 0), (SUM,), 5)


def test_what_is_cut_already_is_cut_less_often_again():
    whole = factors_of("b s -> b s; tile b s", [(4, 6)], [(4, 6)])
    half = factors_of(str(whole.after({"b": 2})), [(2, 6)], [(2, 6)])
    assert [factor.ways for factor in half.sliced] == [2, 6]


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("b s", "there is no ->"),
        ("b s, d -> b s", "it has 2 arrays where the call has 1"),
        ("b -> b s", r"\[b\] has 1 names for an array of shape \[4, 6\]"),
        ("b s -> b s; tile x", "has a dim x; there are b, s"),
        ("b s -> b _; tile s", "a result has no dim s"),
        ("b s -> b s; tile b=3", "b has 4 elements, which 3 does not divide"),
        ("b s -> b s; reduce b:mean", "mean is no reduction"),
        ("b s -> b s; cut b", '"cut b" is no clause'),
    ],
)
def test_a_rule_that_does_not_fit_is_refused_with_the_reason(rule, why):
    with pytest.raises(ap.ArgumentError, match=why):
        factors_of(rule, [(4, 6)], [(4, 6)])
