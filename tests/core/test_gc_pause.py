"""Is the cycle collector paused inside and as it was afterwards?"""

from __future__ import annotations

import gc

import pytest

from autopart.base.gc_pause import gc_paused


@pytest.fixture(params=[True, False], ids=["enabled", "disabled"])
def before(request):
    """Whether the collector is on before the pause; as it was after the test."""
    was = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if was else gc.disable)()


def test_it_is_off_inside_and_as_it_was_afterwards(before):
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled() == before


def test_it_is_as_it_was_after_an_error(before):
    with pytest.raises(KeyError), gc_paused():
        raise KeyError
    assert gc.isenabled() == before


def test_a_pause_inside_a_pause_does_not_end_it(before):
    with gc_paused():
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() == before
